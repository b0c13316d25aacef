package runc

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// owners is what an idmapped mount makes of the owners of its files: the lines of a user namespace's uid_map and gid_map,
// from ids on disk to host ids of the session's range. An id without a line does not exist in the mount.
type owners struct{ uids, gids string }

// idMaps keeps the user namespaces that idmapped mounts take their mapping from:
// making one costs a process, and a caller's next session often needs the same.
type idMaps struct {
	mu   sync.Mutex
	open map[owners]*os.File
}

const maxIDMaps = 256

// get returns a user namespace that has these ids and no other. The receiver closes it.
func (m *idMaps) get(o owners) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.open[o]
	if !ok {
		var err error
		if f, err = newUserNS(o); err != nil {
			return nil, err
		}
		for old, of := range m.open {
			if len(m.open) < maxIDMaps {
				break
			}
			of.Close()
			delete(m.open, old)
		}
		m.open[o] = f
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (m *idMaps) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, f := range m.open {
		f.Close()
		delete(m.open, o)
	}
}

// newUserNS makes the namespace with a child that is stopped at its execve, before
// it runs a single instruction, and killed once the namespace is held.
func newUserNS(o owners) (*os.File, error) {
	runtime.LockOSThread() // the tracer is this thread
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess("/proc/self/exe", []string{"userns"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{Ptrace: true, Cloneflags: syscall.CLONE_NEWUSER},
	})
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	defer child.Wait()
	defer child.Kill()
	if err := mapIDs(child.Pid, o); err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/" + strconv.Itoa(child.Pid) + "/ns/user")
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	return f, nil
}

// mapIDs writes the maps of the user namespace that a child of ours is in. (Package
// syscall would write them, but loses two descriptors whenever such a clone fails: Go 1.26.)
func mapIDs(pid int, o owners) error {
	for name, lines := range map[string]string{"uid_map": o.uids, "gid_map": o.gids} {
		if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/"+name, []byte(lines), 0); err != nil {
			return fmt.Errorf("map ids: %w", err)
		}
	}
	return nil
}

// mapping is a line of a map.
func mapping(from, to, count uint32) string { return fmt.Sprintf("%d %d %d\n", from, to, count) }

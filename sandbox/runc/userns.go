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

// idPair maps one owner of the caller's files to one owner in a session.
type idPair struct {
	fromUID, fromGID uint32 // as on disk
	toUID, toGID     uint32 // host ids of the session's range
}

// idMaps keeps the user namespaces that idmapped mounts take their mapping from:
// making one costs a process, and a caller's next session often needs the same.
type idMaps struct {
	mu   sync.Mutex
	open map[idPair]*os.File
}

const maxIDMaps = 256

// get returns a user namespace whose only ids are the pair's. The receiver closes it.
func (m *idMaps) get(p idPair) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.open[p]
	if !ok {
		var err error
		if f, err = newUserNS(p); err != nil {
			return nil, err
		}
		for old, of := range m.open {
			if len(m.open) < maxIDMaps {
				break
			}
			of.Close()
			delete(m.open, old)
		}
		m.open[p] = f
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
	for p, f := range m.open {
		f.Close()
		delete(m.open, p)
	}
}

// newUserNS makes the namespace with a child that is stopped at its execve, before
// it runs a single instruction, and killed once the namespace is held.
func newUserNS(p idPair) (*os.File, error) {
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
	if err := mapIDs(child.Pid, idMapping{p.fromUID, p.toUID, 1}, idMapping{p.fromGID, p.toGID, 1}); err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/" + strconv.Itoa(child.Pid) + "/ns/user")
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	return f, nil
}

// idMapping is one line of a user namespace's map.
type idMapping struct{ inside, outside, count uint32 }

// mapIDs writes the maps of the user namespace that a child of ours is in. (Package
// syscall would write them, but loses two descriptors whenever such a clone fails: Go 1.26.)
func mapIDs(pid int, uid, gid idMapping) error {
	for name, m := range map[string]idMapping{"uid_map": uid, "gid_map": gid} {
		line := fmt.Sprintf("%d %d %d\n", m.inside, m.outside, m.count)
		if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/"+name, []byte(line), 0); err != nil {
			return fmt.Errorf("map ids: %w", err)
		}
	}
	return nil
}

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
		Sys: &syscall.SysProcAttr{
			Ptrace:                     true,
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                []syscall.SysProcIDMap{{ContainerID: int(p.fromUID), HostID: int(p.toUID), Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{ContainerID: int(p.fromGID), HostID: int(p.toGID), Size: 1}},
			GidMappingsEnableSetgroups: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	defer child.Wait()
	defer child.Kill()
	f, err := os.Open("/proc/" + strconv.Itoa(child.Pid) + "/ns/user")
	if err != nil {
		return nil, fmt.Errorf("user namespace of an id mapping: %w", err)
	}
	return f, nil
}

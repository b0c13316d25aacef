package runc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// building is held, shared, while libcontainer starts a container: its intermediate
// processes are our children then, and its to reap.
var building sync.RWMutex

// reapStrays reaps intermediate processes that libcontainer has left. The first child of a start
// that fails early is ours (it is cloned with CLONE_PARENT), and libcontainer has not
// been told its process id; where the program of a runc ends, its children go to init's care, and we
// live on. What is being built now is left alone; the next failure comes by again.
func reapStrays() {
	if !building.TryLock() {
		return
	}
	defer building.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(pids)) {
			comm, err := os.ReadFile("/proc/" + field + "/comm")
			if err != nil || !bytes.HasPrefix(comm, []byte("runc:[0:")) && !bytes.HasPrefix(comm, []byte("runc:[1:")) {
				continue
			}
			if pid, err := strconv.Atoi(field); err == nil {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
			}
		}
	}
}

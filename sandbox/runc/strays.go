package runc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// building is held, shared, while libcontainer starts a container: its intermediate
// processes are our children then, and its to reap.
var building sync.RWMutex

// inits are the process ids of those that libcontainer has told us, until they are reaped: they are for their boxes to reap.
var inits sync.Map

// reapStrays reaps processes that libcontainer has left. The first child of a start
// that fails early is ours (it is cloned with CLONE_PARENT), and so is the one that would have become init; libcontainer has not
// been told their process ids. Where the program of a runc ends, its children go to init's care, and we
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
			if err != nil || !bytes.HasPrefix(comm, []byte("runc:[")) {
				continue
			}
			pid, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			if _, known := inits.Load(pid); !known {
				reap(pid)
			}
		}
	}
}

// reap reaps a process that has ended, or is about to: what it has told of its failure comes before its end.
func reap(pid int) {
	for range 20 {
		if n, err := unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil); n != 0 || err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

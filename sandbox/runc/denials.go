package runc

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/notify"
	"github.com/stockade-dev/stockade/sandbox/seccomp"
)

// denials are what was refused to one execution: the first of each kind, with a count. They are guarded by
// the session's mu.
type denials struct {
	Kinds   []sandbox.Denial
	Dropped int64 // for which there was no room
}

// add counts a denial, and says whether it is the first of its kind.
func (d *denials) add(one sandbox.Denial) (first bool) {
	for i := range d.Kinds {
		k := &d.Kinds[i]
		if k.Layer == one.Layer && k.Rule == one.Rule && k.Object == one.Object && k.Syscall == one.Syscall && k.Errno == one.Errno {
			k.Count++
			return false
		}
	}
	if len(d.Kinds) == sandbox.MaxDenials {
		d.Dropped++
		return false
	}
	one.Count, one.At = 1, time.Now()
	d.Kinds = append(d.Kinds, one)
	return true
}

// judge answers a notified call with what the profile says, as the filter alone would have, and takes it
// down. The call waits meanwhile, so that whose it is can be asked; whoever asks makes sure afterwards that
// the answer was about that process.
func (s *session) judge(call notify.Call) unix.Errno {
	verdict, _ := seccomp.Lookup(s.spec.Seccomp, call.NR, call.Args)
	errno := verdict.Errno
	if verdict.Allowed { // the filter would not have asked
		errno = unix.EPERM
	}
	denial := sandbox.Denial{Layer: "seccomp", Rule: verdict.Rule, Object: verdict.Object, Syscall: verdict.Syscall, Errno: unix.ErrnoName(errno)}
	if verdict.Least != "" {
		denial.Grant = "seccomp:" + verdict.Least
	}
	if denial.Syscall == "" {
		denial.Syscall = fmt.Sprint(call.NR)
	}
	group, err := groupOf(call.PID)
	if err == nil && !call.Valid() {
		return errno // whose it was has been killed
	}
	s.mu.Lock()
	x := s.executionIn(group)
	if x != nil {
		x.denials.add(denial)
	}
	// What is no execution's is init's own, or a thread's that nobody knows: somebody has made a mistake.
	stray := x == nil && s.stray.add(denial)
	s.mu.Unlock()
	if stray {
		s.tell("session %s: %s was refused to a process in group %q, which is no execution's", s.spec.Session, denial.Syscall, group)
	}
	return errno
}

// executionIn finds the execution whose group of the unified hierarchy this is, nil for any other. The
// caller holds mu.
func (s *session) executionIn(group string) *execution {
	dir, leaf := path.Split(group)
	if x := s.leaves[leaf]; x != nil && strings.HasSuffix(dir, s.executions()) {
		return x
	}
	return nil
}

// executions is the end of the name of the group of all executions, which no other session's has.
func (s *session) executions() string {
	dir := s.groups.Paths()[""]
	return "/" + path.Base(path.Dir(dir)) + "/" + path.Base(dir) + "/x/"
}

// groupOf is where a process is in the unified hierarchy.
func groupOf(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(group), nil
		}
	}
	return "", fmt.Errorf("process %d is in no group", pid)
}

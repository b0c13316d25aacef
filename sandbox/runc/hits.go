package runc

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// hits are the ceilings that were reached while the execution ran, from the counters of those who hold
// them, whatever the command made of it.
func (x *execution) hits() []sandbox.Hit {
	// A group that cannot be read any more is the session's, which has ended.
	hits, _ := x.leaf.Hits(x.before)
	if scope := x.spent.Load(); scope != nil {
		hit := sandbox.Hit{Ceiling: sandbox.HitCPUTime, Scope: *scope, Limit: int64(x.limits.CPUTime), Count: 1}
		used, err := x.leaf.CPUTime()
		if *scope == sandbox.ScopeSession {
			hit.Limit = int64(x.session.spec.Limits.CPUTime)
			used, err = x.session.groups.CPUTime()
		}
		if err == nil {
			hit.Peak = int64(used)
		}
		hits = append(hits, hit)
	}
	for _, d := range x.session.disks {
		hits = append(hits, d.hits()...)
	}
	for _, space := range x.session.spaces {
		full, _ := space.Full() // a look at what we hold open
		hits = append(hits, full...)
	}
	return hits
}

// counters are what the session's groups have counted so far. An execution that follows another is told what was
// read when that had ended.
func (s *session) counters() (cgroup.Events, error) {
	s.mu.Lock()
	counted := s.counted
	s.counted = nil
	s.started++
	s.mu.Unlock()
	if counted != nil {
		return *counted, nil
	}
	return s.groups.Events()
}

// count reads the counters ahead, when nothing runs that could change them and nobody waits.
func (s *session) count() {
	s.mu.Lock()
	started, quiet := s.started, len(s.leaves) == 0 && !s.closed
	s.mu.Unlock()
	if !quiet {
		return
	}
	now, err := s.groups.Events()
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == started {
		s.counted = &now
	}
}

// disk is a private file system of a session. The kernel does not count what it refuses on one; that it is
// full when a command ends is what can be known.
type disk struct {
	target string
	at     *os.File // a place, not what is there
}

// shm is the private file system that no Spec asks for: every session has it.
const shm = "/dev/shm"

// openDisks opens the private file systems of the session. The session closes them.
func (s *session) openDisks() error {
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	targets := []string{shm}
	for _, scratch := range s.spec.Scratch {
		targets = append(targets, scratch.Target)
	}
	for _, target := range targets {
		fd, err := view{root}.open(target)
		if err != nil {
			return err
		}
		s.disks = append(s.disks, disk{target, os.NewFile(uintptr(fd), target)})
	}
	return nil
}

// closeDisks lets go of them, and of their memory: what is open is there.
func (s *session) closeDisks() {
	for _, d := range s.disks {
		d.at.Close()
	}
}

func (d disk) hits() (hits []sandbox.Hit) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.at.Fd()), &st); err != nil {
		return nil
	}
	for _, c := range []struct {
		ceiling    string
		limit, off int64
		unit       int64
	}{
		{sandbox.HitDiskBytes, int64(st.Blocks), int64(st.Bavail), int64(st.Bsize)},
		{sandbox.HitDiskInodes, int64(st.Files), int64(st.Ffree), 1},
	} {
		if c.limit > 0 && c.off == 0 {
			hits = append(hits, sandbox.Hit{Ceiling: c.ceiling, Scope: sandbox.ScopeSession, Object: d.target, Limit: c.limit * c.unit, Peak: c.limit * c.unit})
		}
	}
	return hits
}

// fill is how much of it is used; nothing, when the session has ended.
func (d disk) fill() (bytes, inodes sandbox.Fill) {
	var st unix.Statfs_t
	at, err := d.at.SyscallConn()
	if err == nil {
		err = at.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &st) })
	}
	if err != nil {
		return bytes, inodes
	}
	blocks, files := int64(st.Blocks), int64(st.Files)
	return sandbox.Fill{Target: d.target, Used: (blocks - int64(st.Bavail)) * int64(st.Bsize), Limit: blocks * int64(st.Bsize)},
		sandbox.Fill{Target: d.target, Used: files - int64(st.Ffree), Limit: files}
}

// watchClock kills every execution when the session has used its processor time, and lets none start
// any more.
func (s *session) watchClock() {
	limit := s.spec.Limits.CPUTime
	if limit == 0 {
		return
	}
	s.clock = s.groups.Clock(limit, func() error {
		s.mu.Lock()
		s.spent = true
		for _, x := range s.execs {
			x.spend(sandbox.ScopeSession)
		}
		s.mu.Unlock()
		return s.groups.KillExecutions()
	})
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// resourceThreats use up what sessions and the supervisor live on (T059 to T075).
var resourceThreats = []threat{
	{id: "T059", what: "a fork bomb", try: forkBomb},
	{id: "T060", what: "a bomb of threads", try: threadBomb},
	{id: "T061", what: "a bomb of memory", try: memoryBomb},
	{id: "T062", what: "memory behind files", try: fileMemory},
	{id: "T063", what: "memory of the kernel", try: kernelMemory},
	{id: "T064", what: "a full disk", try: fullDisk},
	{id: "T065", what: "a disk full of empty files", try: fullInodes},
	{id: "T066", what: "a deep tree and a large directory", try: deepTree},
	{id: "T067", what: "sixty-four threads that compute", try: hog},
	{id: "T068", what: "a flood of writes", try: writeFlood},
	{id: "T069", what: "a flood of output that nobody reads", shown: "integration TestStreams"},
	{id: "T070", what: "a storm of followers", try: followerStorm},
	{id: "T071", what: "arguments as large as they get", try: largeArguments},
	{id: "T072", what: "the daemon is killed for a session's memory", try: firstVictim},
	{id: "T073", what: "the daemon runs out of descriptors", shown: "sandbox/runc TestOutOfDescriptors"},
	{id: "T074", what: "all terminals are taken", try: allTerminals},
	{id: "T075", what: "namespaces and groups run out", try: outOfNamespaces},
}

// hit reports whether a receipt names a ceiling, with its value.
func hit(r *api.Receipt, ceiling string) bool {
	for _, h := range r.Payload.Exec.LimitsHit {
		if h.Ceiling == ceiling && h.Limit > 0 && h.Hint != "" {
			return true
		}
	}
	return false
}

func (s *siege) named(r *api.Receipt, ceiling string) {
	s.Helper()
	if !hit(r, ceiling) {
		s.Errorf("the receipt does not name the ceiling %s: %+v", ceiling, r.Payload.Exec)
	}
}

// works: after a flood, another command of the session and another session work.
func (s *siege) works(session string) {
	s.Helper()
	for _, id := range []string{session, opened(s.T, s.c, nil).SessionID} {
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: id, Argv: []string{"true"}})
		if settled(s.T, r, err).Payload.Exec.ExitCode != 0 {
			s.Errorf("true in %s: %+v", id, r.Payload.Exec)
		}
	}
}

func forkBomb(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.PIDs = 32 })
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "fork-bomb"}, TimeoutNS: int64(20 * time.Second)})
	if err != nil {
		s.Fatal(err)
	}
	s.want("the first fork that fails", printed(r), "EAGAIN")
	s.named(r, "pids")
	s.works(session)
}

func threadBomb(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.PIDs = 32 })
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "thread-bomb"}, TimeoutNS: int64(20 * time.Second)})
	if err != nil {
		s.Fatal(err)
	}
	s.named(r, "pids")
	s.works(session)
}

// memoryBomb: the kill is inside only, and the receipt says so; also when it is the child of a shell, which lives.
func memoryBomb(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.MemoryBytes = 64 << 20 })
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "memory-bomb"}})
	if err != nil {
		s.Fatal(err)
	}
	if r.Payload.Exec.ErrorCode != api.CodeOOMKilled {
		s.Errorf("%+v", r.Payload.Exec)
	}
	s.named(r, "memory")
	r = shell(s.T, s.c, session, "/mnt/probe/probe memory-bomb; exit $?")
	s.named(r, "memory")
	s.works(session)
}

func fileMemory(s *siege) {
	for _, attempt := range []string{"fill-shm", "fill-memfd"} {
		session := s.session(func(o *api.SessionOpen) { o.Limits.MemoryBytes = 48 << 20 })
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", attempt, "/dev/shm/fill"}})
		if err != nil {
			s.Fatal(err)
		}
		if x := r.Payload.Exec; x.ErrorCode != api.CodeOOMKilled && !strings.Contains(printed(r), "ENOSPC") {
			s.Errorf("%s: %+v", attempt, x)
		}
		s.named(r, "memory")
	}
}

// kernelMemory: pipes, sockets, watches and message queues end with an error or at the memory ceiling, which counts them.
func kernelMemory(s *siege) {
	for _, attempt := range []string{"fill-pipes", "fill-sockets", "fill-epoll", "fill-inotify", "fill-eventfd", "fill-mq"} {
		session := s.session(func(o *api.SessionOpen) { o.Limits.MemoryBytes = 64 << 20 })
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", attempt}, TimeoutNS: int64(20 * time.Second)})
		if err != nil {
			s.Fatal(err)
		}
		switch got := printed(r); {
		case r.Payload.Exec.ErrorCode == api.CodeOOMKilled:
		case strings.HasPrefix(got, "E"):
		default:
			s.Errorf("%s: %q %+v", attempt, got, r.Payload.Exec)
		}
		s.works(session)
		s.close(session)
	}
}

func fullDisk(s *siege) {
	session := s.session(nil)
	r := shell(s.T, s.c, session, "dd if=/dev/zero of=/tmp/fill bs=1M; df -B1 --output=size /tmp | tail -1; exit 1")
	if !strings.Contains(text(r.Payload.Exec.Stderr), "No space left") {
		s.Errorf("%q", text(r.Payload.Exec.Stderr))
	}
	s.named(r, "disk_bytes")
	shell(s.T, s.c, session, "rm /tmp/fill")
	s.works(session)
}

func fullInodes(s *siege) {
	session := s.session(nil)
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "fill-inodes", "/tmp/many"}})
	if err != nil {
		s.Fatal(err)
	}
	s.want("the file that is too many", printed(r), "ENOSPC")
	s.named(r, "disk_inodes")
	begin := time.Now()
	s.close(session)
	if took := time.Since(begin); took > 5*time.Second {
		s.Errorf("the close took %v", took)
	}
}

// deepTree: what a session leaves on its own file systems goes with them; what it leaves in a caller's directory is the caller's.
func deepTree(s *siege) {
	session := s.session(nil)
	s.want("a tree of 10,000 levels", s.probe(session, "deep-tree", "/tmp", "10000"), "ok")
	begin := time.Now()
	s.close(session)
	if took := time.Since(begin); took > 5*time.Second {
		s.Errorf("the close took %v", took)
	}
}

// hog: sixty-four threads use no more than the ceiling in CPU time, by the kernel's count.
func hog(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.CPUMillis = 300 })
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "spin", "64"}, TimeoutNS: int64(3 * time.Second)})
	if err != nil {
		s.Fatal(err)
	}
	u := r.Payload.Exec.Usage
	if share := float64(u.CPUNS) / float64(u.WallNS); share > 0.45 {
		s.Errorf("%.2f CPUs of 0.3", share)
	}
}

func writeFlood(s *siege) {
	work := filepath.Join(shared(s.T), "work")
	if err := os.Mkdir(work, 0o777); err != nil {
		s.Fatal(err)
	}
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Limits: api.Limits{IOBytesPerSecond: 1 << 20}, Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}},
	}}})
	if err != nil {
		s.Fatal(err)
	}
	if r.Outcome != api.OutcomeOK {
		// Nothing here can hold the ceiling, and then there is no session.
		if r.ErrorCode != api.CodeUnsupportedByHost {
			s.Errorf("%s %s", r.ErrorCode, r.ErrorMessage)
		}
		return
	}
	x := shell(s.T, s.c, r.SessionID, "dd if=/dev/zero of=/work/fill bs=1M count=4 oflag=direct 2>&1")
	if wall := time.Duration(x.Payload.Exec.Usage.WallNS); wall < 2*time.Second {
		s.Errorf("4 MiB at 1 MiB/s in %v", wall)
	}
	s.close(r.SessionID)
}

func followerStorm(s *siege) {
	session := s.session(nil)
	no := false
	pending, refused, err := s.c.Start(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", "while :; do echo line; sleep 0.01; done"}, Wait: &no})
	if err != nil || refused != nil {
		s.Fatalf("%v %+v", err, refused)
	}
	before := open(s, s.d.PID())
	var followers sync.WaitGroup
	for range 16 {
		followers.Go(func() {
			for range rounds(s.T) / 16 {
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Millisecond)
				_, err := s.c.Watch(ctx, pending.ExecID, "", func(api.Event) error { return nil })
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					s.Error(err)
					return
				}
			}
		})
	}
	followers.Wait()
	s.c.CloseIdle()
	for end := time.Now().Add(5 * time.Second); open(s, s.d.PID()) > before+5; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("the daemon had %d descriptors, and has %d", before, open(s, s.d.PID()))
		}
	}
	s.close(session)
}

func largeArguments(s *siege) {
	session := s.session(nil)
	for _, k := range []struct {
		name string
		argv []string
		ok   bool
	}{
		{"the longest", []string{"true", strings.Repeat("a", 128<<10-1)}, true},
		{"one byte more", []string{"true", strings.Repeat("a", 128<<10)}, false},
		{"a hundred thousand", append([]string{"true"}, make([]string, 100_000)...), false},
	} {
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: k.argv})
		if err != nil {
			s.Errorf("%s: %v", k.name, err)
			continue
		}
		if ok := r.Outcome == api.OutcomeOK && r.Payload.Exec.ExitCode == 0; ok != k.ok || !ok && r.ErrorCode == "" {
			s.Errorf("%s: %s %s %s", k.name, r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// firstVictim: whatever runs inside is a better victim of the kernel than what holds it.
func firstVictim(s *siege) {
	session := s.session(nil)
	inside, err := strconv.Atoi(strings.TrimSpace(text(shell(s.T, s.c, session, "cat /proc/self/oom_score_adj").Payload.Exec.Stdout)))
	if err != nil {
		s.Fatal(err)
	}
	for _, pid := range []int{s.d.PID(), s.d.Runner()} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			s.Fatal(err)
		}
		if own, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || own >= inside {
			s.Errorf("process %d has %d, a command %d: %v", pid, own, inside, err)
		}
	}
	s.want("to become less of one", shellAnswer(s, session, "echo -1000 > /proc/self/oom_score_adj && echo done || echo refused"), "refused")
}

func shellAnswer(s *siege, session, script string) string {
	s.Helper()
	return strings.TrimSpace(text(shell(s.T, s.c, session, script+" 2>/dev/null").Payload.Exec.Stdout))
}

// allTerminals: a session has so many terminals of its own, and no more; the host's are not counted among them.
func allTerminals(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.Files = 1024 })
	out := s.probe(session, "fill-ptys")
	if n, why, _ := strings.Cut(out, " "); n == "0" || why != "ENOSPC" && why != "EMFILE" && why != "EIO" {
		s.Errorf("%q", out)
	}
	s.want("once they are given back", s.probe(session, "pty"), "0")
}

// outOfNamespaces: where the runner can make no more namespaces, an open is refused and leaves nothing; then it works again.
func outOfNamespaces(s *siege) {
	group := s.group()
	file := filepath.Join(group, "cgroup.max.descendants")
	if err := os.WriteFile(file, []byte("3"), 0o644); err != nil {
		s.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, []byte("max"), 0o644); err != nil {
			s.Error(err)
		}
	}()
	failed := 0
	for range 5 {
		r := s.attempt(api.Local{})
		if r.Outcome != api.OutcomeOK {
			failed++
		}
	}
	if failed == 0 {
		s.Error("five sessions were opened in a group that has room for none")
	}
	if err := os.WriteFile(file, []byte("max"), 0o644); err != nil {
		s.Fatal(err)
	}
	s.works(s.session(nil))
}

// group is the one below which the runner makes those of sessions, in the unified hierarchy.
func (s *siege) group() (found string) {
	s.Helper()
	err := filepath.WalkDir(unified(s.T), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Name() == "stockade-"+s.d.Instance() {
			found = path
			return filepath.SkipAll
		}
		return nil // groups of others come and go
	})
	if err != nil || found == "" {
		s.Fatalf("no group of instance %s: %v", s.d.Instance(), err)
	}
	return found
}

// open counts the descriptors of a process.
func open(s *siege, pid int) int {
	s.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		s.Fatal(err)
	}
	return len(entries)
}

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// resourceThreats use up what sessions and the supervisor live on (T059 to T075).
var resourceThreats = []threat{
	{id: "T059", what: "a fork bomb", try: forkBomb.held, control: forkBomb.free},
	{id: "T060", what: "a bomb of threads", try: threadBomb.held, control: threadBomb.free},
	{id: "T061", what: "a bomb of memory", try: memoryBombs, control: memoryBomb.free},
	{id: "T062", what: "memory behind files", try: fileMemory.held, control: fileMemory.free},
	{id: "T063", what: "memory of the kernel", try: kernelMemories, control: freeKernelMemory},
	{id: "T064", what: "a full disk", try: fullDisk.held, control: fullDisk.free},
	{id: "T065", what: "a disk full of empty files", try: fullInodes.held, control: fullInodes.free},
	{id: "T066", what: "a deep tree and a large directory", try: deepTree, control: deepByName},
	{id: "T067", what: "sixty-four threads that compute", try: hog, control: unboundedHog},
	{id: "T068", what: "a flood of writes", try: writeFlood, control: unboundedWrites},
	{id: "T069", what: "a flood of output that nobody reads", shown: "integration TestStreams"},
	{id: "T070", what: "a storm of followers", try: followerStorm, control: followersStay},
	{id: "T071", what: "arguments as large as they get", try: largeArguments, control: largeOutside},
	{id: "T072", what: "the daemon is killed for a session's memory", try: firstVictim, control: noVictim},
	{id: "T073", what: "the daemon runs out of descriptors", shown: "integration TestDaemonWithoutDescriptors"},
	{id: "T073", what: "the runner runs out of descriptors", shown: "sandbox/runc TestOutOfDescriptors"},
	{id: "T074", what: "all terminals are taken", try: allTerminals, control: moreTerminals},
	{id: "T075", what: "namespaces and groups run out", try: outOfNamespaces, control: enoughNamespaces},
}

// flood uses something up in a session that has a ceiling on it; a session with room for it is the control.
type flood struct {
	attempt      string            // of the probe; it says "ok" when there was enough
	tight, ample func(*api.Limits) // the ceiling that stops it, and one that does not
	stopped      []string          // what the probe then says, or "oom" where it is killed; anything but "ok" when nil
	named        string            // the ceiling in the receipt, where the kernel tells
}

// floods are several that make up one attack.
type floods []flood

var (
	forkBomb = flood{attempt: "fork-bomb 40", stopped: []string{"EAGAIN"}, named: "pids",
		tight: func(l *api.Limits) { l.PIDs = 32 }, ample: func(l *api.Limits) { l.PIDs = 1024 }}
	threadBomb = flood{attempt: "thread-bomb 64", named: "pids",
		tight: func(l *api.Limits) { l.PIDs = 32 }, ample: func(l *api.Limits) { l.PIDs = 512 }}
	memoryBomb = flood{attempt: "memory-bomb 128", stopped: []string{"oom"}, named: "memory",
		tight: func(l *api.Limits) { l.MemoryBytes = 64 << 20 }, ample: func(l *api.Limits) { l.MemoryBytes = 512 << 20 }}
	fileMemory = floods{
		{attempt: "fill-file /dev/shm/fill 56", stopped: []string{"oom", "ENOSPC"}, named: "memory", tight: littleMemory, ample: muchMemory},
		{attempt: "fill-memfd 96", stopped: []string{"oom", "ENOSPC"}, named: "memory", tight: littleMemory, ample: muchMemory},
	}
	// Pipes and sockets end at the memory ceiling, which counts them, what is small at that of open files.
	kernelMemory = floods{
		{attempt: "fill-pipes 100", stopped: []string{"oom"}, named: "memory", tight: littleMemory, ample: muchMemory},
		{attempt: "fill-sockets 400", stopped: []string{"oom"}, named: "memory", tight: littleMemory, ample: muchMemory},
		{attempt: "fill-epoll 100", stopped: []string{"EMFILE"}, tight: fewFiles, ample: manyFiles},
		{attempt: "fill-inotify 100", stopped: []string{"EMFILE"}, tight: fewFiles, ample: manyFiles},
		{attempt: "fill-eventfd 100", stopped: []string{"EMFILE"}, tight: fewFiles, ample: manyFiles},
	}
	fullDisk = flood{attempt: "fill-file /tmp/fill 48", stopped: []string{"ENOSPC"}, named: "disk_bytes",
		tight: func(l *api.Limits) { l.DiskBytes = 16 << 20 }, ample: func(*api.Limits) {}}
	fullInodes = flood{attempt: "fill-inodes /tmp/many 30000", stopped: []string{"ENOSPC"}, named: "disk_inodes",
		tight: func(l *api.Limits) { l.DiskInodes = 20000 }, ample: func(*api.Limits) {}}
)

func littleMemory(l *api.Limits) { l.MemoryBytes = 40 << 20 }
func muchMemory(l *api.Limits)   { l.MemoryBytes = 1 << 30 }
func fewFiles(l *api.Limits)     { l.Files = 64 }
func manyFiles(l *api.Limits)    { l.Files = 1024 }

// held: the flood is stopped inside, the receipt says by what, others work, and so does the session; its close is not slowed.
func (f flood) held(s *siege) {
	session, r, said := f.run(s, f.tight)
	switch x := r.Payload.Exec; {
	case x.ErrorCode == api.CodeOOMKilled && slices.Contains(f.stopped, "oom"), f.stopped == nil && said != "ok":
	case !slices.Contains(f.stopped, said):
		s.Errorf("%s: %q %+v", f.attempt, said, x)
	}
	if f.named != "" {
		s.named(r, f.named)
	}
	shell(s.T, s.c, session, "rm -rf /tmp/* /dev/shm/*") // what a full disk leaves no room for
	s.works(session)
	begin := time.Now()
	s.close(session)
	if took := time.Since(begin); took > 5*time.Second {
		s.Errorf("%s: the close took %v", f.attempt, took)
	}
}

// free: with room for it, the flood gets what it wants, and no ceiling is said to have been in its way.
func (f flood) free(s *siege) {
	session, r, said := f.run(s, f.ample)
	s.want("control: "+f.attempt, said, "ok")
	if hits := r.Payload.Exec.LimitsHit; len(hits) > 0 {
		s.Errorf("control: %s: %+v", f.attempt, hits)
	}
	s.close(session)
}

func (f flood) run(s *siege, ceiling func(*api.Limits)) (session string, r *api.Receipt, said string) {
	s.Helper()
	session = s.session(func(o *api.SessionOpen) { ceiling(&o.Limits) })
	argv := append([]string{"/mnt/probe/probe"}, strings.Fields(f.attempt)...)
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: argv, TimeoutNS: int64(time.Minute)})
	if err != nil {
		s.Fatal(err)
	}
	return session, r, printed(r)
}

func (all floods) held(s *siege) {
	for _, f := range all {
		f.held(s)
	}
}

func (all floods) free(s *siege) {
	for _, f := range all {
		f.free(s)
	}
}

// peaks reports whether it is known what has been used of a ceiling when it is reached: the kernel keeps the most of memory since 5.19, of processes since 6.1.
func peaks(s *siege, ceiling string) bool {
	s.Helper()
	if strings.HasPrefix(ceiling, "disk_") {
		return true
	}
	groups, err := cgroup.Discover(cgroup.Options{})
	if err != nil {
		s.Fatal(err)
	}
	file, known := groups.Peak(ceiling)
	return file != "" || !known
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
	// What reaches a ceiling has used most of it.
	for _, h := range r.Payload.Exec.LimitsHit {
		if h.Ceiling == ceiling && peaks(s, ceiling) && h.Peak <= h.Limit/2 { // more than all of it is charged to who is being killed
			s.Errorf("of %s %d are said to have been used, where the ceiling is %d", ceiling, h.Peak, h.Limit)
		}
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

// memoryBombs: the kill is inside only, and the receipt says so; also when it is the child of a shell, which lives.
func memoryBombs(s *siege) {
	memoryBomb.held(s)
	session := s.session(func(o *api.SessionOpen) { memoryBomb.tight(&o.Limits) })
	r := shell(s.T, s.c, session, "/mnt/probe/probe memory-bomb 128; exit $?")
	s.named(r, "memory")
}

// kernelMemories: what is not bounded by a ceiling of the session's is not to be had.
func kernelMemories(s *siege) {
	kernelMemory.held(s)
	s.want("message queues", s.probe(s.session(nil), "fill-mq", "5"), "EACCES", "EPERM", "ENOSYS")
	// What the kernel counts by user it counts as the owner's of a user namespace, too: each session has what a user has, and root nothing less.
	each, users := inotifyShares(s)
	for range users {
		session := s.session(func(o *api.SessionOpen) { o.Limits.Files, o.Background = 1024, new(true) })
		kept := shell(s.T, s.c, session, "/mnt/probe/probe keep-inotify "+each+" >/tmp/kept & until [ -s /tmp/kept ]; do sleep 0.05; done; cat /tmp/kept")
		s.want("inotify instances of a session", strings.TrimSpace(text(kept.Payload.Exec.Stdout)), "ok")
	}
	s.want("inotify instances of the host's", onHost(s, "fill-inotify", "20"), "ok")
}

// inotifyShares are a part of what a user may have of inotify instances, and how many users of that part have more than one user may.
func inotifyShares(s *siege) (each string, users int) {
	s.Helper()
	content, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		s.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		s.Fatal(err)
	}
	part := min(most*3/4, 900)
	return strconv.Itoa(part), most/part + 1
}

func freeKernelMemory(s *siege) {
	kernelMemory.free(s)
	s.want("control: message queues", s.outside(apart, "fill-mq", "5"), "ok")
	// User namespaces with one owner, which is nobody here.
	each, users := inotifyShares(s)
	var last string
	for range users {
		cmd := exec.CommandContext(s.Context(), "setpriv", "--reuid=64999", "--regid=64999", "--clear-groups", "unshare", "--user", filepath.Join(s.probes, "probe"), "keep-inotify", each)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if last, err = bufio.NewReader(out).ReadString('\n'); err != nil {
			s.Fatal(err)
		}
	}
	s.want("control: inotify instances of the last of several namespaces", strings.TrimSpace(last), "EMFILE")
}

// deepTree: what a session leaves on its own file systems goes with them, and until then the file tools answer with a part of it and
// how much there is.
func deepTree(s *siege) {
	many := s.many(10_000, 1_000_000)
	tree := shared(s.T)
	chmod(s.T, tree, 0o777)
	session := s.session(func(o *api.SessionOpen) {
		o.Limits.MemoryBytes = 4 << 30
		o.Target.Local.Mounts = append(o.Target.Local.Mounts, api.Mount{HostPath: tree, GuestPath: "/work", Mode: api.ModeOverlay, Bytes: 1 << 30, Inodes: 1 << 20})
	})
	s.want("a tree of 10,000 levels", s.probe(session, "deep-tree", "/tmp", "10000"), "ok")
	s.want(fmt.Sprint(many, " entries"), s.probe(session, "fill-inodes", "/work/many", strconv.Itoa(many)), "ok")
	for _, target := range []file.Target{{Path: "/work/many"}, {Path: "/tmp"}} {
		r, err := s.c.ListDir(s.Context(), api.FileList{SessionID: session, List: file.List{Target: target}})
		list := settled(s.T, r, err).Payload.File.List
		if target.Path == "/work/many" && (list.Count == nil || *list.Count != int64(many) || !list.Truncated || strings.Count(list.Entries.InlineText.Text, "\n") > 100) {
			s.Errorf("%s is listed: %+v", target.Path, list)
		}
		g, err := s.c.Glob(s.Context(), api.FileGlob{SessionID: session, Glob: file.Glob{Target: target, Pattern: "**/*"}})
		if err != nil || g.Payload.File == nil || !g.Payload.File.Glob.Truncated && g.Payload.File.Glob.Code == "" {
			s.Errorf("%s is searched: %+v, %v", target.Path, g, err)
		}
	}
	begin := time.Now()
	s.close(session)
	if took := time.Since(begin); took > 5*time.Second {
		s.Errorf("the close took %v", took)
	}
}

// deepByName: the tree is deeper than a name can be long, so that who removes by name leaves it.
func deepByName(s *siege) {
	dir := shared(s.T)
	s.want("control", s.alone(`mount -t tmpfs none "$2" && "$1" deep-tree "$2" 10000 && "$1" remove-by-name "$2"`, dir), "ok\nENAMETOOLONG")
}

// hog: sixty-four threads use no more than the ceiling in CPU time, by the kernel's count.
func hog(s *siege) {
	if share := s.share(300, 3*time.Second); share > 0.45 {
		s.Errorf("%.2f CPUs of 0.3", share)
	}
}

// unboundedHog: with two processors granted, the same threads take more, unless others are quicker all the time.
func unboundedHog(s *siege) {
	s.race("control: more than 0.45 CPUs", func() bool { return s.share(2000, time.Second) > 0.45 })
}

// share is how many processors sixty-four threads get.
func (s *siege) share(millis int64, within time.Duration) float64 {
	s.Helper()
	session := s.session(func(o *api.SessionOpen) { o.Limits.CPUMillis = millis })
	defer s.close(session)
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/probe", "spin", "64"}, TimeoutNS: int64(within)})
	if err != nil {
		s.Fatal(err)
	}
	u := r.Payload.Exec.Usage
	return float64(u.CPUNS) / float64(u.WallNS)
}

func writeFlood(s *siege) {
	wall, r := s.writes(1 << 20)
	if r.Outcome != api.OutcomeOK {
		// Nothing here can hold the ceiling, and then there is no session.
		if r.ErrorCode != api.CodeUnsupportedByHost {
			s.Errorf("%s %s", r.ErrorCode, r.ErrorMessage)
		}
		return
	}
	if wall < 2*time.Second {
		s.Errorf("4 MiB at 1 MiB/s in %v", wall)
	}
}

// unboundedWrites: without the ceiling there is a session, and the same takes less.
func unboundedWrites(s *siege) {
	s.race("control: 4 MiB in less than 2 s", func() bool {
		wall, r := s.writes(0)
		settled(s.T, r, nil)
		return wall < 2*time.Second
	})
}

// writes is how long 4 MiB take to a directory of the host's, in a session that may write so much in a second.
func (s *siege) writes(perSecond int64) (time.Duration, *api.Receipt) {
	s.Helper()
	work := filepath.Join(shared(s.T), "work")
	if err := os.Mkdir(work, 0o777); err != nil {
		s.Fatal(err)
	}
	chmod(s.T, work, 0o777)
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Limits: api.Limits{IOBytesPerSecond: perSecond}, Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}},
	}}})
	if err != nil {
		s.Fatal(err)
	}
	if r.Outcome != api.OutcomeOK {
		return 0, r
	}
	defer s.close(r.SessionID)
	x := shell(s.T, s.c, r.SessionID, "dd if=/dev/zero of=/work/fill bs=1M count=4 oflag=direct 2>&1")
	if x.Payload.Exec.ExitCode != 0 {
		s.Errorf("dd: %s", text(x.Payload.Exec.Stdout))
	}
	return time.Duration(x.Payload.Exec.Usage.WallNS), r
}

// followerStorm: whoever goes away is forgotten.
func followerStorm(s *siege) {
	session, exec := s.talker()
	defer s.close(session)
	before := open(s, s.d.PID())
	const abreast = 16
	each := (rounds(s.T) + abreast - 1) / abreast
	var followers sync.WaitGroup
	for range abreast {
		followers.Go(func() {
			for left := each; left > 0; {
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Millisecond)
				if s.follow(ctx, exec) {
					left--
				} else {
					time.Sleep(50 * time.Millisecond)
				}
				cancel()
			}
		})
	}
	followers.Wait()
	s.Logf("%d followers, %d at a time", each*abreast, abreast)
	s.c.CloseIdle()
	for end := time.Now().Add(5 * time.Second); open(s, s.d.PID()) > before+5; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("the daemon had %d descriptors, and has %d", before, open(s, s.d.PID()))
		}
	}
}

// followersStay: sixteen that do not go away are seen by the same count.
func followersStay(s *siege) {
	session, exec := s.talker()
	defer s.close(session)
	before := open(s, s.d.PID())
	ctx, leave := context.WithCancel(s.Context())
	var followers sync.WaitGroup
	defer func() { leave(); followers.Wait(); s.c.CloseIdle() }()
	for range 16 {
		followers.Go(func() { s.follow(ctx, exec) })
	}
	s.race("control: descriptors of followers", func() bool { return open(s, s.d.PID()) > before+5 })
}

// talker is a command that writes until its session is closed.
func (s *siege) talker() (session, exec string) {
	s.Helper()
	no := false
	session = s.session(nil)
	pending, refused, err := s.c.Start(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", "while :; do echo line; sleep 0.01; done"}, Wait: &no})
	if err != nil || refused != nil {
		s.Fatalf("%v %+v", err, refused)
	}
	return session, pending.ExecID
}

// follow reports whether it was let in: one user may only connect so often.
func (s *siege) follow(ctx context.Context, exec string) bool {
	_, err := s.c.Watch(ctx, exec, "", func(api.Event) error { return nil })
	if codeIs(err, api.CodeTooManyConnections) {
		return false
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		s.Error(err)
	}
	return true
}

// arguments by what is large about them. The kernel's own ceiling is on the length of one, ours on their number.
var arguments = []struct {
	name      string
	argv      []string
	in, naked bool // whether it is executed inside, and by anybody
}{
	{"the longest", []string{"true", strings.Repeat("a", 128<<10-1)}, true, true},
	{"one byte more", []string{"true", strings.Repeat("a", 128<<10)}, false, false},
	{"a hundred thousand", append([]string{"true"}, make([]string, 100_000)...), false, true},
}

func largeArguments(s *siege) {
	session := s.session(nil)
	for _, k := range arguments {
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: k.argv})
		if err != nil {
			s.Errorf("%s: %v", k.name, err)
			continue
		}
		if ok := r.Outcome == api.OutcomeOK && r.Payload.Exec.ExitCode == 0; ok != k.in || !ok && r.ErrorCode == "" {
			s.Errorf("%s: %s %s %s", k.name, r.Outcome, r.ErrorCode, r.ErrorMessage)
		}
	}
	s.works(session)
}

// largeOutside: what we refuse for its number is executed without us; what is too long reaches the kernel, which alone refuses it.
func largeOutside(s *siege) {
	for _, k := range arguments {
		err := exec.Command(k.argv[0], k.argv[1:]...).Run()
		if (err == nil) != k.naked || err != nil && !errors.Is(err, unix.E2BIG) {
			s.Errorf("control: %s: %v", k.name, err)
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

// noVictim: a child that nobody has looked after is no better victim than its parent, and may become less of one, by the right
// that a session's command does not have and root in a container may not have either.
func noVictim(s *siege) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		s.Fatal(err)
	}
	caps, err := strconv.ParseUint(onHost(s, "status", "CapEff"), 16, 64)
	if err != nil {
		s.Fatal(err)
	}
	want := strings.TrimSpace(string(own)) + "\nrefused"
	if caps&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		want = strings.TrimSpace(string(own)) + "\ndone"
	}
	out, err := exec.Command("sh", "-c", "cat /proc/self/oom_score_adj; echo -1000 > /proc/self/oom_score_adj && echo done || echo refused").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		s.Errorf("control: %q, %v, want %q", got, err, want)
	}
}

func shellAnswer(s *siege, session, script string) string {
	s.Helper()
	return strings.TrimSpace(text(shell(s.T, s.c, session, script+" 2>/dev/null").Payload.Exec.Stdout))
}

// allTerminals: a session has so many terminals of its own, and no more; the host's are not counted among them.
func allTerminals(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.Files = 1024 })
	out := s.probe(session, "fill-ptys", "100")
	if n, why, _ := strings.Cut(out, " "); n == "0" || why != "ENOSPC" && why != "EMFILE" && why != "EIO" {
		s.Errorf("%q", out)
	}
	s.want("once they are given back", s.probe(session, "pty"), "0")
}

// moreTerminals: an instance of devpts as it is when nobody has said how many there may be.
func moreTerminals(s *siege) {
	s.want("control", s.alone(`mount -t devpts -o newinstance,ptmxmode=666 none "$2" && mount --bind "$2/ptmx" /dev/ptmx && "$1" fill-ptys 100`, shared(s.T)), "100 ok")
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
	if failed := s.five(); failed == 0 {
		s.Error("five sessions were opened in a group that has room for none")
	}
	if err := os.WriteFile(file, []byte("max"), 0o644); err != nil {
		s.Fatal(err)
	}
	s.works(s.session(nil))
}

// enoughNamespaces: the same five in a group that has room.
func enoughNamespaces(s *siege) {
	if failed := s.five(); failed != 0 {
		s.Errorf("control: %d of five sessions were not opened", failed)
	}
}

// five opens as many sessions, and says how many were refused.
func (s *siege) five() (failed int) {
	s.Helper()
	for range 5 {
		if s.attempt(api.Local{}).Outcome != api.OutcomeOK {
			failed++
		}
	}
	return failed
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

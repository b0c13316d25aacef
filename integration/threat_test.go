package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// threat is one of the numbered attacks: tried here on the real binaries, or shown by a test
// of the package that holds it off.
type threat struct {
	id, what string
	try      func(*siege)
	control  func(*siege) // the same where the one protection is missing, upon something of the test's own: there it has to succeed
	shown    string       // "sandbox/launch TestRights": its comment names the id, and says what its control is
}

// siege is a supervisor under attack, with canaries around it.
type siege struct {
	*testing.T
	d        *testbox.Daemon
	c        *client.Client
	probes   string // directory with the probe, which sessions see as /mnt/probe
	canaries *canaries
}

// TestThreats makes the attacks one by one. A canary that was touched fails the attack that touched it.
func TestThreats(t *testing.T) {
	t.Parallel()
	d := start(t)
	probes := shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	k := newCanaries(t, d)
	for _, row := range threats {
		if row.try == nil {
			continue
		}
		t.Run(row.id+" "+row.what, func(t *testing.T) {
			k.unchanged(t)
			row.try(&siege{T: t, d: d, c: d.Client(), probes: probes, canaries: k})
			k.unchanged(t)
			t.Run("control", func(t *testing.T) {
				row.control(&siege{T: t, d: d, c: d.Client(), probes: probes, canaries: k})
				k.unchanged(t)
			})
		})
	}
}

// TestThreatList: every attack of the list has its row, every row has its control, and what a row says is shown elsewhere is there.
func TestThreatList(t *testing.T) {
	rowsOf := map[string]int{}
	for _, row := range rows {
		for id := range strings.FieldsSeq(row.id) {
			rowsOf[id]++
		}
		if row.outside.ok == nil || row.control.attr == nil {
			t.Errorf("%s %s: no control", row.id, row.attempt)
		}
	}
	for _, row := range threats {
		for id := range strings.FieldsSeq(row.id) {
			rowsOf[id]++
		}
		if row.shown == "" {
			if row.try == nil || row.control == nil {
				t.Errorf("%s %s: an attack and its control are needed, or the test that has both", row.id, row.what)
			}
			continue
		}
		dir, name, _ := strings.Cut(row.shown, " ")
		words := []string{row.id, "Control: "}
		if slices.ContainsFunc(fileThreats, func(f threat) bool { return f.id == row.id }) {
			words = words[:1] // what a tool answers is compared with what a command sees, or with another implementation
		}
		if !says(t, filepath.Join("..", dir), name, words...) {
			t.Errorf("%s: %s has no test %s whose comment has %q", row.id, dir, name, words)
		}
	}
	for _, id := range listed() {
		if rowsOf[id] == 0 {
			t.Errorf("%s: no row", id)
		}
	}
}

// listed are the attacks on isolation. Numbers that are missing from the list of attacks are missing here.
func listed() (ids []string) {
	absent := []int{2, 27, 34, 44}
	for n := 1; n <= 75; n++ {
		if !slices.Contains(absent, n) {
			ids = append(ids, fmt.Sprintf("T%03d", n))
		}
	}
	for n := 112; n <= 151; n++ { // file tools; the others are not in the list
		if !slices.Contains([]int{118, 122, 125, 131, 150}, n) {
			ids = append(ids, fmt.Sprintf("T%03d", n))
		}
	}
	return append(ids, "T101", "T102", "T103", "T104", "T105", "T107", "T108", "T109", "T110", "T111")
}

// says reports whether a test function of a directory has all these words in its comment.
func says(t *testing.T, dir, name string, words ...string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?m)((?:^//.*\n)+)func ` + regexp.QuoteMeta(name) + `\(`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := comment.FindSubmatch(source); m != nil {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(m[1]), w) })
		}
	}
	return false
}

// rounds is how often a race is run.
func rounds(t *testing.T) int {
	t.Helper()
	s := os.Getenv("STOCKADE_ROUNDS")
	if s == "" {
		return 500
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("STOCKADE_ROUNDS: %q", s)
	}
	return n
}

// shared is a directory that everybody may read.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		chmod(t, d, 0o755)
	}
	return dir
}

// many is how much of something there is: what the list of attacks says where races are run ten thousand times, as `make test-race` does.
func (s *siege) many(some, all int) int {
	s.Helper()
	if rounds(s.T) < 10_000 {
		return some
	}
	return all
}

// session opens a session that sees the probe.
func (s *siege) session(change func(*api.SessionOpen)) string {
	s.Helper()
	return s.opened(change).SessionID
}

func (s *siege) opened(change func(*api.SessionOpen)) *api.Receipt {
	s.Helper()
	return opened(s.T, s.c, func(o *api.SessionOpen) {
		o.Target.Local.Mounts = append(o.Target.Local.Mounts, api.Mount{HostPath: s.probes, GuestPath: "/mnt/probe", Mode: "ro"})
		if change != nil {
			change(o)
		}
	})
}

// probe makes an attempt inside.
func (s *siege) probe(session string, args ...string) string {
	s.Helper()
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: append([]string{"/mnt/probe/probe"}, args...)})
	if err != nil {
		s.Fatal(err)
	}
	return printed(r)
}

// outside makes an attempt where the protection is off: see control.
func (s *siege) outside(c control, args ...string) string {
	s.Helper()
	p := places{probes: s.probes}
	return p.outside(s.T, strings.Join(args, " "), c)
}

// alone runs a script in mount and pid namespaces of its own, with their proc, as root; whatever it starts ends with it. $1 is the probe.
func (s *siege) alone(script string, args ...string) string {
	s.Helper()
	argv := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", filepath.Join(s.probes, "probe")}
	out, err := exec.CommandContext(s.Context(), "unshare", append(argv, args...)...).CombinedOutput()
	if err != nil {
		s.Errorf("control: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// repeat makes an attempt as often as races are run, a few at a time: what flips meets each of them. It says how often, and how often with success.
func (s *siege) repeat(attempt func() bool) (times, succeeded int) {
	s.Helper()
	const abreast = 4
	times = rounds(s.T)
	var left, won atomic.Int64
	left.Store(int64(times))
	var all sync.WaitGroup
	for range abreast {
		all.Go(func() {
			for left.Add(-1) >= 0 && !s.Failed() {
				if attempt() {
					won.Add(1)
				}
			}
		})
	}
	all.Wait()
	return times, int(won.Load())
}

// bothWays is repeat, until an attempt has succeeded and another has not: what flips was met both ways. For minutes, because other tests may have the machine.
func (s *siege) bothWays(attempt func() bool) (times, succeeded int) {
	s.Helper()
	for end := time.Now().Add(5 * time.Minute); ; {
		n, won := s.repeat(attempt)
		times, succeeded = times+n, succeeded+won
		if s.Failed() || succeeded > 0 && succeeded < times {
			return times, succeeded
		}
		if time.Now().After(end) {
			s.Errorf("%d of %d: the race did not meet", succeeded, times)
			return times, succeeded
		}
	}
}

// race repeats what has to succeed once in a while; for minutes, because other tests may have the machine.
func (s *siege) race(what string, won func() bool) {
	s.Helper()
	for n, end := 1, time.Now().Add(5*time.Minute); ; n++ {
		switch {
		case won():
			s.Logf("%s: at the %d. time", what, n)
			return
		case time.Now().After(end):
			s.Errorf("%s: not in %d times", what, n)
			return
		}
	}
}

// want compares an answer.
func (s *siege) want(what, got string, wanted ...string) {
	s.Helper()
	if !slices.Contains(wanted, got) {
		s.Errorf("%s: %q, want %q", what, got, wanted)
	}
}

// canaries are what nobody inside may touch, read or see.
type canaries struct {
	all      []canary
	file     string
	accepted atomic.Int64 // connections to our listeners
	tcp      net.Listener
}

// canary is something of the host's that tells when somebody has been at it.
type canary struct {
	name string
	look func() string
	was  string
}

// watched are settings of the host that an escape likes to write.
var watched = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/protected_symlinks",
}

func newCanaries(t *testing.T, d *testbox.Daemon) *canaries {
	t.Helper()
	k := &canaries{file: filepath.Join(shared(t), "canary")}
	if err := os.WriteFile(k.file, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(slices.Clone(watched), k.file) {
		k.add(path, func() string { return digest(path) })
	}
	// That nobody has written to a program it says itself in no time, unless its times were set back; in the end it is read.
	for _, name := range []string{"stockade", "stockaded", "stockade-run", "stockade-init", "stockade-relay"} {
		path := filepath.Join(d.Bin, name)
		k.add(path, func() string { return inode(path) })
		was := digest(path)
		t.Cleanup(func() {
			if is := digest(path); is != was {
				t.Errorf("canary %s was %s, and is %s", path, was, is)
			}
		})
	}
	var err error
	if k.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	abstract, err := net.Listen("unix", fmt.Sprintf("@stockade-%s-%d", t.Name(), os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{k.tcp, abstract} {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				k.accepted.Add(1)
				c.Close()
			}
		}()
	}
	node := filepath.Join(filepath.Dir(k.file), "device")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	k.add("device node", func() string { return inode(node) })
	k.terminal(t)
	k.key(t)
	k.segment(t)
	return k
}

func (k *canaries) add(name string, look func() string) {
	k.all = append(k.all, canary{name, look, look()})
}

// terminal is one to which nobody writes, and into which nobody types: what is typed is echoed.
func (k *canaries) terminal(t *testing.T) {
	t.Helper()
	m, p := terminal(t)
	master, peer := int(m.Fd()), int(p.Fd())
	k.add("terminal", func() string {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(master), Events: unix.POLLIN}}, 0)
		modes, merr := unix.IoctlGetTermios(peer, unix.TCGETS)
		size, serr := unix.IoctlGetWinsize(peer, unix.TIOCGWINSZ)
		return fmt.Sprintf("%d to read, %+v, %+v, %v", ready, modes, size, errors.Join(err, merr, serr))
	})
}

// key is one in the keyring of our user.
func (k *canaries) key(t *testing.T) {
	t.Helper()
	key, err := unix.AddKey("user", fmt.Sprintf("stockade-%s-%d", t.Name(), os.Getpid()), []byte("canary"), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	k.add("key", func() string {
		is, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, key)
		buf := make([]byte, 16)
		n, rerr := unix.KeyctlBuffer(unix.KEYCTL_READ, key, buf, 0) // where our keyring is not that of our session, it is not to be read
		return fmt.Sprintf("%s, %v, %q, %v", is, err, buf[:max(0, min(n, len(buf)))], rerr)
	})
}

// segment is shared memory that nobody attaches: the kernel notes who was the last to do so, and when.
func (k *canaries) segment(t *testing.T) {
	t.Helper()
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	k.add("shared memory", func() string {
		var desc unix.SysvShmDesc
		_, err := unix.SysvShmCtl(id, unix.IPC_STAT, &desc)
		return fmt.Sprintf("%+v, %v", desc, err)
	})
}

// unchanged fails a test that finds a canary touched.
func (k *canaries) unchanged(t *testing.T) {
	t.Helper()
	for _, c := range k.all {
		if is := c.look(); is != c.was {
			t.Errorf("canary %s was %s, and is %s", c.name, c.was, is)
		}
	}
	if n := k.accepted.Swap(0); n > 0 {
		t.Errorf("%d connections reached the canaries", n)
	}
}

// digest is what can be seen of a file: its content, and of one on a disk when it changed.
func digest(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	seen := fmt.Sprintf("%x", sha256.Sum256(content))
	if info, err := os.Lstat(path); err == nil && !strings.HasPrefix(path, "/proc/") {
		seen += fmt.Sprintf(" %v %v", info.Mode(), info.ModTime())
	}
	return seen
}

// inode is what the kernel says of a file that was not read.
func inode(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("inode %d of %d, mode %o, device %d, %d bytes, changed %v %v", st.Ino, st.Dev, st.Mode, st.Rdev, st.Size, st.Mtim, st.Ctim)
}

// threats are the attacks that are not one line of the escape table.
var threats = slices.Concat(setupThreats, processThreats, resourceThreats, workspaceThreats, terminalThreats, fileThreats)

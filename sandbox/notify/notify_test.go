package notify

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused is the call that the test's filter notifies.
const refused = unix.SYS_ACCT

// A filter cannot be taken off again: the tests run themselves as the child that has it.
func TestMain(m *testing.M) {
	if role := os.Getenv("NOTIFY_TEST_ROLE"); role != "" {
		runtime.LockOSThread()
		roles[role]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func(){"caller": caller, "changing": changing, "many": many}

// path is what the argument of a changing caller points to.
var path atomic.Uint64

// changing makes calls whose argument another thread changes all the time.
func changing() {
	go func() {
		for n := uint64(0); ; n++ {
			path.Store(n)
		}
	}()
	listen()
	for {
		syscall.Syscall(refused, uintptr(unsafe.Pointer(&path)), 0, 0)
	}
}

// listen puts the filter on the calling thread and sends the listener to the parent.
func listen() {
	const nr = 0 // offset in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: refused, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fail(err)
	}
	fd, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		fail(e)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		fail(err)
	}
	unix.Close(int(fd))
}

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}

// caller makes as many calls as each line of its stdin says, and prints a line for each:
// its errno and how many there were of it in a row.
func caller() {
	listen()
	fmt.Println(unix.Gettid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			fail(err)
		}
		counts := make(map[syscall.Errno]int)
		for range n {
			_, _, e := syscall.Syscall6(refused, 1, 1<<63|2, 3, 4, 5, 6)
			counts[e]++
		}
		for _, e := range slices.Sorted(maps.Keys(counts)) {
			fmt.Printf("%s:%d ", unix.ErrnoName(e), counts[e])
		}
		fmt.Println()
	}
}

// many has a listener for each of many threads.
func many() {
	const threads = 50
	done := make(chan bool)
	for range threads {
		go func() {
			runtime.LockOSThread()
			listen()
			done <- true
			time.Sleep(time.Hour)
		}()
	}
	for range threads {
		<-done
	}
	io.Copy(io.Discard, os.Stdin)
}

// child is a process with the filter.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	ends  *os.File // of the socket
	stdin io.WriteCloser
	lines *bufio.Scanner
	tid   int
}

func start(t *testing.T, role string) *child {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer theirs.Close()
	c := &child{t: t, cmd: exec.Command("/proc/self/exe"), ends: ours}
	c.cmd.Env = append(os.Environ(), "NOTIFY_TEST_ROLE="+role)
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stderr = os.Stderr
	c.stdin, err = c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait(); ours.Close() })
	c.lines = bufio.NewScanner(out)
	if role == "caller" {
		if c.tid, err = strconv.Atoi(c.line()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// listener receives a descriptor that the child sent.
func (c *child) listener() *os.File {
	c.t.Helper()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(c.ends.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		c.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		c.t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		c.t.Fatal(fds, err)
	}
	return os.NewFile(uintptr(fds[0]), "listener")
}

func (c *child) line() string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatal("the child has ended")
	}
	return strings.TrimSpace(c.lines.Text())
}

// begin has the child make n calls; calls also waits for what became of them.
func (c *child) begin(n int) { fmt.Fprintln(c.stdin, n) }

func (c *child) calls(n int) string {
	c.t.Helper()
	c.begin(n)
	return c.line()
}

func serve(t *testing.T, listener *os.File, judge func(Call) unix.Errno) *Server {
	t.Helper()
	s, err := Serve(listener, judge)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// T056: the judge hears who calls what, in numbers only: what an argument points to can change, and is never read. It
// says with what the call fails; nothing lets one through. Control: a judge who reads what an argument points to reads something else
// the next time, as the kernel would.
func TestJudge(t *testing.T) {
	another := make(chan bool, 1)
	naive := start(t, "changing")
	serve(t, naive.listener(), func(call Call) unix.Errno {
		var read [2][8]byte
		if mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", call.PID)); err == nil {
			for i := range read {
				_, _ = mem.ReadAt(read[i][:], int64(call.Args[0]))
			}
			mem.Close()
		}
		if read[0] != read[1] && read[0] != [8]byte{} {
			select {
			case another <- true:
			default:
			}
		}
		return unix.EPERM
	})
	select {
	case <-another:
	case <-time.After(10 * time.Second):
		t.Error("control: what an argument points to stays the same")
	}

	c := start(t, "caller")
	type judged struct {
		Call
		status []byte
		valid  bool
	}
	calls, errnos := make(chan judged, 1), make(chan unix.Errno, 1)
	s := serve(t, c.listener(), func(call Call) unix.Errno {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", call.PID))
		calls <- judged{call, status, call.Valid()}
		return <-errnos
	})
	errnos <- unix.EXDEV
	if answers := c.calls(1); answers != "EXDEV:1" {
		t.Error(answers)
	}
	got := <-calls
	if got.PID != c.tid || got.NR != refused || got.Args != [6]uint64{1, 1<<63 | 2, 3, 4, 5, 6} {
		t.Errorf("%+v, want thread %d, number %d", got, c.tid, refused)
	}
	if !got.valid || !strings.Contains(string(got.status), fmt.Sprintf("\nTgid:\t%d\n", c.cmd.Process.Pid)) {
		t.Errorf("valid %v, status:\n%s", got.valid, got.status)
	}
	if got.Valid() {
		t.Error("a call that was answered is still valid")
	}
	errnos <- 0
	if answers := c.calls(1); answers != "EPERM:1" {
		t.Errorf("a judge who says 0: %s", answers)
	}

	s.Close()
	if answers := c.calls(3); answers != "ENOSYS:3" { // fails closed
		t.Errorf("after Close: %s", answers)
	}
	if _, err := s.File(); err == nil {
		t.Error("a closed server gives its descriptor")
	}
}

// A flood is answered at a rate, however many callers there are, and who waits can be killed.
func TestFlood(t *testing.T) {
	c := start(t, "caller")
	var judged atomic.Int64
	s := serve(t, c.listener(), func(Call) unix.Errno { judged.Add(1); return unix.EPERM })
	const calls = burst + rate/2
	before, begun := processTime(t), time.Now()
	if answers := c.calls(calls); answers != fmt.Sprintf("EPERM:%d", calls) {
		t.Fatal(answers)
	}
	took, cost := time.Since(begun), processTime(t)-before
	t.Logf("%d calls took %v and cost the server %v", calls, took, cost)
	if took < 400*time.Millisecond { // the second half of them: 500 ms
		t.Errorf("%d calls took %v", calls, took)
	}

	c.begin(1_000_000) // which take half an hour, if they are waited for
	begun = time.Now()
	time.Sleep(200 * time.Millisecond)
	if n, took := judged.Load()-calls, time.Since(begun); n > burst+int64(rate*took.Seconds()) {
		t.Errorf("%d calls judged in %v", n, took)
	}
	killed := time.Now()
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if took := time.Since(killed); took > 30*time.Second {
		t.Errorf("the flooder died after %v", took)
	}
	ended(t, s)
}

// A server ends by itself when no process has the filter any more.
func ended(t *testing.T, s *Server) {
	t.Helper()
	done := make(chan bool)
	go func() { s.served.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("nobody has the filter, and the server goes on")
	}
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Closing ends the wait of those who are held up, too.
func TestCloseInFlood(t *testing.T) {
	c := start(t, "caller")
	s := serve(t, c.listener(), func(Call) unix.Errno { return unix.EPERM })
	c.begin(50_000) // which take 100 s, if they are waited for
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	s.Close()
	answers := c.line()
	if took := time.Since(begun); took > 5*time.Second || !strings.Contains(answers, "ENOSYS:") {
		t.Errorf("%s, %v after Close", answers, took)
	}
}

// A successor answers what its predecessor has not: no call is lost, or answered by nobody.
func TestSuccession(t *testing.T) {
	c := start(t, "caller")
	var first, second atomic.Int64
	s := serve(t, c.listener(), func(Call) unix.Errno { first.Add(1); return unix.EPERM })
	const calls = burst + rate/5
	c.begin(calls)
	for first.Load() < burst/2 {
		time.Sleep(time.Millisecond)
	}
	inherited, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	seen := first.Load()
	successor := serve(t, inherited, func(Call) unix.Errno { second.Add(1); return unix.EPERM })
	if answers := c.line(); answers != fmt.Sprintf("EPERM:%d", calls) {
		t.Error(answers)
	}
	if first.Load() != seen || first.Load()+second.Load() < calls {
		t.Errorf("%d and then %d calls were judged; %d at the succession", first.Load(), second.Load(), seen)
	}
	c.stdin.Close()
	c.cmd.Wait()
	ended(t, successor)
}

// Signals interrupt a call that waits, and it is made again: its answer is the same.
func TestInterrupted(t *testing.T) {
	c := start(t, "caller")
	serve(t, c.listener(), func(Call) unix.Errno { time.Sleep(time.Millisecond); return unix.EPERM })
	c.begin(200)
	line := make(chan string)
	go func() { line <- c.line() }()
	for signals := 0; ; signals++ {
		select {
		case answers := <-line:
			if answers != "EPERM:200" {
				t.Errorf("%s after %d signals", answers, signals)
			}
			return
		default:
			unix.Tgkill(c.cmd.Process.Pid, c.tid, unix.SIGURG) // which Go's runtime takes and forgets
			time.Sleep(3 * time.Millisecond)
		}
	}
}

// A listener costs a goroutine and no thread.
func TestThreads(t *testing.T) {
	c := start(t, "many")
	before := threads(t)
	for range 50 {
		serve(t, c.listener(), func(Call) unix.Errno { return unix.EPERM })
	}
	time.Sleep(100 * time.Millisecond)
	if after := threads(t); after > before+5 {
		t.Errorf("%d threads, and %d with 50 listeners", before, after)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

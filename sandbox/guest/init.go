package guest

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

const socketFD = 3

// Capabilities that init keeps for itself; it is started with them and whatever the
// session grants, ambient, permitted and in its bounding set.
const initCaps = 1<<unix.CAP_KILL | // signal executions, which have other uids

	1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | // become the session's identity in the child
	1<<unix.CAP_SETPCAP // give up the bounding set and lock the securebits

// guestInit is PID 1 of a session.
//
// Two threads share it. One, the main thread at first, serves requests, and is the only one that makes
// processes; the reaper waits for them. The mutex makes one step of clone, entry in the
// table, and the answer "started"; and one step of reaping and removal from the table.
// So an exit is never reported before its start, and as long as a pid is in the table
// its process has not been reaped and the pid cannot name another.
type guestInit struct {
	buf     *packet.Buffer
	setup   Setup
	domain  *domain // Landlock's; nil without
	oomFD   int     // /proc/self/oom_score_adj
	ownOOM  []byte
	execOOM []byte
	shown   bool          // the thread that serves has the fsuid of executions, for the runner to read
	spawned chan struct{} // wakes the reaper, which has nothing to wait for without children
	status  chan int      // the exit status, once no thread serves any more

	mu    sync.Mutex
	calls map[int]uint64 // pid to the call of its spawn
	pids  map[uint64]int // and back
}

// defaultSlack is the kernel's timer slack of ordinary processes, in nanoseconds.
const defaultSlack = 50_000

// Run is the life of init, from the first instruction to the end of the session. It
// returns the exit status. The caller has locked the main goroutine to the main thread.
func Run() int {
	g := &guestInit{
		buf:     new(packet.Buffer),
		spawned: make(chan struct{}, 1),
		status:  make(chan int, 1),
		calls:   map[int]uint64{},
		pids:    map[uint64]int{},
	}

	// Strays first, while no descriptor of ours is open: whatever was inherited beyond the
	// socket must reach no execution, and nobody who manages to look into init.
	if err := unix.CloseRange(socketFD+1, ^uint(0), 0); err != nil {
		return 1
	}
	if _, err := unix.FcntlInt(socketFD, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return 1
	}

	// Opened while init is still dumpable: afterwards its /proc files belong to the root of
	// the user namespace. Whether it is needed, and missing, setup will say.
	g.oomFD, _ = unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)

	// Executions are cloned with CLONE_VM and share init's memory until execve: no process of
	// theirs may ptrace it, or read /proc/PID/mem (CVE-2016-9962).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}

	// Every signal gets a handler: executions inherit ignored signals, and handlers become the
	// default at execve. Nobody receives: Notify drops what does not fit.
	signal.Notify(make(chan os.Signal, 1))
	// Except that the reaper needs no signal: every end of a process would interrupt the main
	// thread, and wake another for nobody. The default is to be ignored without being
	// inherited, and keeps zombies, which SIG_IGN does not.
	// And that os/signal leaves 32 alone, the SIGCANCEL of C libraries: glibc's posix_spawn,
	// which make uses, ignores it in its children, and so in theirs.
	for _, sig := range []unix.Signal{unix.SIGCHLD, 32} {
		if err := defaultAction(sig); err != nil {
			return 1
		}
	}

	// One processor waits in vfork while the other reaps. More would bring more threads,
	// which the session's pids pay for; and garbage of a megabyte is enough between two
	// collections.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(25)

	call, err := g.receiveSetup()
	if err != nil {
		return 1
	}
	listener, refused := g.become()
	if refused != nil {
		g.send(kindFailed, call, refused)
		return 1
	}
	go g.reap()
	g.ready(call, listener)
	g.serve()
	return <-g.status
}

// defaultAction takes the runtime's handler from a signal; os/signal cannot.
func defaultAction(sig unix.Signal) error {
	var action [4]uint64 // struct sigaction of the kernel: SIG_DFL, no flags, no restorer, no mask
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// serve answers requests until the runner closes the socket, or another thread does. The end
// of init is the end of everything in the pid namespace.
func (g *guestInit) serve() {
	for {
		msg, fds, err := g.buf.Receive(socketFD)
		if err == io.EOF {
			g.status <- 0
			return
		}
		if err != nil {
			g.status <- 1
			return
		}
		if g.shown {
			if err := setfsuid(uint32(unix.Getuid())); err != nil {
				packet.CloseAll(fds)
				g.status <- 1
				return
			}
			g.shown = false
		}
		kind, call, rest := head(msg)
		moved := false
		switch kind {
		case kindSpawn:
			var f spawnFrame
			if err = decode(rest, &f); err == nil {
				err = g.spawn(call, &f, fds)
			}
		case kindSignal:
			var f signalFrame
			if err = decode(rest, &f); err == nil {
				g.answer(call, g.signal(&f))
			}
		case kindTerminal:
			if err = decode(rest, nil); err == nil {
				g.openTerminal(call)
			}
		case kindForeground:
			var f foregroundFrame
			if err = decode(rest, &f); err == nil && len(fds) != 1 {
				err = errMalformed
			}
			if err == nil {
				g.answer(call, g.foreground(fds[0], syscall.Signal(f.signal)))
			}
		case kindConnect:
			var f connectFrame
			if err = decode(rest, &f); err == nil {
				g.connect(call, f.port)
			}
		case kindAllow:
			if err = decode(rest, nil); err == nil {
				moved, err = g.extend(call, fds)
			}
		default:
			err = errMalformed
		}
		packet.CloseAll(fds)
		if err != nil {
			// Runner and init are built together: this is a bug, and the answer tells its caller.
			g.send(kindFailed, call, &Error{StageRequest, "decode", syscall.EPROTO})
		}
		if moved {
			return
		}
	}
}

// executorPath is init's own program, of which an execution has no copy to look up.
const executorPath = "/proc/self/exe"

// spawn starts one command, or the executor that will become it. Its errors are malformed
// requests; refusals are answers.
func (g *guestInit) spawn(call uint64, f *spawnFrame, fds []int) error {
	want := 3
	for _, more := range []bool{f.cgroup, f.executor, f.files} {
		if more {
			want++
		}
	}
	switch {
	case f.executor && f.files:
		return errMalformed
	case f.executor:
		f.Command = Command{Argv: []string{"stockade-init", "execute"}, Cwd: "/"}
	case f.files:
		f.Command = Command{Argv: []string{"stockade-init", "files"}, Cwd: "/"}
	}
	if len(fds) != want || len(f.Argv) == 0 || !strings.HasPrefix(f.Cwd, "/") {
		return errMalformed
	}
	attr := &syscall.ProcAttr{
		Dir:   f.Cwd,
		Env:   f.Env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys: &syscall.SysProcAttr{
			// A session and process group of its own, so that a signal finds the whole of it.
			Setsid: true,
			// The groups are inherited.
			Credential: &syscall.Credential{Uid: g.setup.UID, Gid: g.setup.GID, NoSetGroups: true},
		},
	}
	if f.cgroup {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fds[3]
	}
	program := executorPath
	switch {
	case f.executor:
		attr.Files = append(attr.Files, uintptr(fds[want-1]))
	case f.files:
		// Not init's own: what its user may not read is not dumpable from its first instruction on. There is no
		// moment in which a command, which has this user too, could write to the worker's memory.
		program = "/proc/self/fd/" + strconv.Itoa(fds[want-1])
	default:
		var refused *Error
		if e := g.asIdentity(func() syscall.Errno { program, refused = lookup(&f.Command); return 0 }); e != 0 {
			refused = &Error{StageProgram, "look up " + f.Argv[0], e}
		}
		if refused != nil {
			g.send(kindFailed, call, refused)
			return nil
		}
	}

	// Another execution can stop this child between its setuid and its execve, and so init,
	// which waits in vfork: until the leaf is killed, as the runner does when its patience
	// ends. The harm stays in the session.
	g.mu.Lock()
	defer g.mu.Unlock()
	g.adjustOOM(g.execOOM)
	pid, err := syscall.ForkExec(program, f.Argv, attr)
	g.adjustOOM(g.ownOOM)
	if err != nil {
		g.send(kindFailed, call, g.explain(program, f.Cwd, errno(err)))
		return nil
	}
	g.calls[pid] = call
	g.pids[call] = pid
	g.send(kindStarted, call, &startedFrame{int32(pid)})
	select {
	case g.spawned <- struct{}{}:
	default:
	}
	return nil
}

// cloneErrors are the errnos by which clone refuses, and execve does not: no more
// processes, or a cgroup that takes none.
var cloneErrors = []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EBUSY, syscall.EBADF, syscall.ENODEV, syscall.EOPNOTSUPP}

// explain finds out which step of a failed start gave the errno: the child reports one
// for all of clone, setuid, chdir and execve.
func (g *guestInit) explain(program, cwd string, e syscall.Errno) *Error {
	if refused := g.enter(cwd); refused != nil {
		return refused
	}
	allowed := g.asIdentity(func() syscall.Errno { return executable(within(cwd, program)) }) == 0
	if slices.Contains(cloneErrors, e) || allowed && (e == syscall.EACCES || e == syscall.EPERM) {
		return &Error{StageClone, "clone", e}
	}
	return &Error{StageProgram, "execve " + program, e}
}

// signal signals one command's process group, or everybody but init.
func (g *guestInit) signal(f *signalFrame) *Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := -1
	if f.target != 0 {
		pid := g.pids[f.target]
		if pid == 0 {
			return &Error{StageSignal, "kill", syscall.ESRCH}
		}
		group = -pid
	}
	return kill(group, syscall.Signal(f.signal))
}

// kill signals from a thread that Landlock has no say in: executions of before an Allow are in another
// domain than this one.
func kill(target int, sig syscall.Signal) *Error {
	killed := make(chan error)
	go func() { killed <- unix.Kill(target, sig) }()
	if err := <-killed; err != nil {
		return &Error{StageSignal, "kill", errno(err)}
	}
	return nil
}

// reap waits for children, ours and those orphaned to us, for ever.
func (g *guestInit) reap() {
	for {
		// WNOWAIT leaves the zombie, and so its pid, in place until the table is locked.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch err {
		case nil:
			g.reapAll()
		case unix.ECHILD:
			// Only spawn can change that: when an orphan comes, the child of ours that it
			// descends from has yet to be reaped.
			<-g.spawned
		}
	}
}

// reapAll reaps every zombie that there is, and reports those that have a call.
func (g *guestInit) reapAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		var status syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &ru)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		call := g.calls[pid]
		if call == 0 { // an orphan
			continue
		}
		delete(g.calls, pid)
		delete(g.pids, call)
		g.send(kindExited, call, &Exit{
			Status: status,
			CPU:    time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
			MaxRSS: ru.Maxrss << 10, // KiB
		})
	}
}

func (g *guestInit) answer(call uint64, refused *Error) {
	if refused != nil {
		g.send(kindFailed, call, refused)
		return
	}
	g.send(kindDone, call, nil)
}

// send sends one message. A failure means that the runner is gone, which serve will
// learn by itself.
func (g *guestInit) send(kind byte, call uint64, m member, fds ...int) {
	_ = packet.Send(socketFD, encode(kind, call, m), fds...)
}

package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// execution is one command, from its start until nothing of it is left and nobody will
// ask for it any more.
type execution struct {
	id         string
	background bool
	session    *session
	leaf       *cgroup.Leaf
	group      uint64                        // number of the leaf, in a session with a network
	limits     sandbox.ExecLimits            // of its own
	clock      *cgroup.Clock                 // of limits.CPUTime; nil without
	process    atomic.Pointer[guest.Process] // nil until it has been started
	before     cgroup.Events                 // of the session, when it started
	killed     atomic.Bool                   // by us: not by the memory ceiling
	spent      atomic.Pointer[string]        // whose processor time was used up, so that it was killed: a Hit's scope
	denials    denials                       // guarded by the session's mu, as what follows
	held
}

// Start starts a command in a session: born in a group of its own, as the granted
// identity, with three pipes and no other descriptor. If Start succeeds, exited is called once,
// unless the daemon's connection is lost before.
func (r *Runner) Start(ctx context.Context, e sandbox.Exec, stdin *os.File, exited func(sandbox.Result)) (_ launch.Streams, err error) {
	if stdin != nil {
		defer stdin.Close()
	}
	if err := e.Validate(); err != nil {
		return launch.Streams{}, err
	}
	if e.StdinOpen && stdin != nil {
		return launch.Streams{}, sandbox.Errorf(sandbox.CodeInvalidSpec, "stdin is open, and given")
	}
	if e.Files && stdin == nil {
		return launch.Streams{}, sandbox.Errorf(sandbox.CodeInvalidSpec, "file tools are served on a socket, and none is given")
	}
	s, err := r.session(e.Session)
	if err != nil {
		return launch.Streams{}, err
	}
	if err := r.renew(ctx, s); err != nil {
		return launch.Streams{}, err
	}
	var undo cleanup.Stack // what is undone when the start fails
	defer undo.Run()
	var ends cleanup.Stack // the ends of the pipes that are the command's
	defer ends.Run()

	x := &execution{id: e.ID, background: e.Background, limits: e.Limits, session: s}
	if x.leaf, err = s.leaf(e.Limits); err != nil {
		return launch.Streams{}, err
	}
	undo.Add(x.clear)
	if err := x.number(); err != nil {
		return launch.Streams{}, err
	}
	if err := s.add(x); err != nil {
		return launch.Streams{}, err
	}
	undo.Add(func() { s.drop(x) })

	streams := guest.Streams{Stdin: stdin, Cgroup: x.leaf.FD(), Worker: r.worker}
	undo.Add(x.release)
	if e.Terminal != nil {
		slave, err := x.openTerminal(ctx, e.Terminal)
		if err != nil {
			return launch.Streams{}, refused(err)
		}
		ends.Add(func() { slave.Close() })
		streams.Stdin, streams.Stdout, streams.Stderr = slave, slave, slave
	}
	for _, p := range []struct {
		held, theirs **os.File
		writes       bool // we do
	}{
		{&x.stdin, &streams.Stdin, true},
		{&x.stdout, &streams.Stdout, false},
		{&x.stderr, &streams.Stderr, false},
	} {
		if *p.theirs != nil {
			continue // a stdin that is given
		}
		r, w, err := s.pipe()
		if err != nil {
			return launch.Streams{}, err
		}
		if p.writes {
			r, w = w, r
		}
		ends.Add(func() { w.Close() })
		*p.held, *p.theirs = r, w
	}
	if !e.StdinOpen && x.stdin != nil {
		// An empty stdin is a pipe that nobody writes, not the host's /dev/null: no file of the
		// host's is ever open inside.
		x.stdin.Close()
		x.stdin = nil
	}

	if x.before, err = s.counters(); err != nil {
		return launch.Streams{}, err
	}
	x.started = time.Now()
	ours, err := x.streams()
	if err != nil {
		return launch.Streams{}, err
	}
	undo.Add(ours.Close)
	cmd := guest.Command{Argv: e.Argv, Env: e.Env, Cwd: e.Cwd, Files: e.Files}
	if e.Terminal != nil {
		cmd.Terminal, cmd.Script = true, e.Terminal.Script
	}
	process, err := x.spawn(ctx, cmd, streams)
	if err != nil {
		return launch.Streams{}, refused(err)
	}
	failpoint.Hit("runner.start.spawned")
	undo.Release()
	s.hold(x, process, exited)
	x.pump()
	if x.spent.Load() != nil { // meanwhile: the kill may have come before there was anything to kill
		_ = x.leaf.Kill()
	}
	go x.follow(process)
	return ours, nil
}

// leaf returns the group of an execution.
func (s *session) leaf(l sandbox.ExecLimits) (*cgroup.Leaf, error) {
	if grouped(l) {
		return s.groups.LeafWith(l)
	}
	return s.groups.Leaf()
}

// grouped reports whether there is a ceiling that a group holds. Its command waits, before it
// executes, to be put under it.
func grouped(l sandbox.ExecLimits) bool { return l.MemoryBytes != 0 || l.CPUMillis != 0 || l.PIDs != 0 }

// spawn starts the command, under its own ceilings from its first instruction on.
func (x *execution) spawn(ctx context.Context, cmd guest.Command, streams guest.Streams) (*guest.Process, error) {
	cmd.Parked = grouped(x.limits)
	if n := uint64(x.limits.Files); n != 0 {
		cmd.Rlimits = []guest.Rlimit{{Resource: unix.RLIMIT_NOFILE, Cur: n, Max: n}}
	}
	process, err := x.session.init.Spawn(ctx, cmd, streams)
	if err != nil {
		return nil, err
	}
	if cmd.Parked {
		pid, err := x.parked()
		if err == nil {
			err = x.leaf.Place(pid)
		}
		if err == nil {
			err = process.Release(ctx)
		}
		if err == nil {
			err = x.kept()
		}
		if err != nil {
			return nil, err
		}
	}
	x.watchClock()
	return process, nil
}

// keeping bounds how long the kernel may take to forget threads that execve has ended.
const keeping = time.Second

// kept waits until the command is within its ceiling of pids.
func (x *execution) kept() error {
	begun := time.Now()
	for pause := 100 * time.Microsecond; ; pause *= 2 {
		err := x.leaf.Kept()
		if err == nil || time.Since(begun) > keeping {
			return err
		}
		time.Sleep(pause)
	}
}

// parked is the process that is to become the command, by its number outside: the only one in the leaf.
func (x *execution) parked() (int, error) {
	data, err := os.ReadFile(x.session.groups.Paths()[""] + "/x/" + x.leaf.Name() + "/cgroup.procs")
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("the group of a parked command holds %.100q: %w", data, err)
	}
	return pid, nil
}

// watchClock kills the execution when it has used its processor time.
func (x *execution) watchClock() {
	if x.limits.CPUTime == 0 {
		return
	}
	x.clock = x.leaf.Clock(x.limits.CPUTime, func() error {
		x.spend(sandbox.ScopeExecution)
		return x.leaf.Kill()
	})
}

// spend notes that it is killed for the processor time that was used up: its own, or the session's.
func (x *execution) spend(scope string) {
	x.spent.CompareAndSwap(nil, &scope)
	x.killed.Store(true)
}

// pipe makes a pipe that belongs to the session's identity, so that /dev/stdout and
// its like can be opened again inside.
func (s *session) pipe() (r, w *os.File, err error) {
	var fds [2]int
	// Blocking, as a command expects its streams. Nobody here reads or writes them: os.Pipe
	// would have the runtime's poller wake for both.
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	if err := unix.Fchown(fds[1], s.hostUID(), s.hostGID()); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("chown pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// refused gives init's refusals their codes.
func refused(err error) error {
	var e *guest.Error
	switch {
	case errors.Is(err, guest.ErrGone):
		return errEnded
	case errors.As(err, &e) && e.Stage == guest.StageTerminal:
		return sandbox.Errorf(sandbox.CodeTerminal, "%s: %v", e.Op, e.Errno)
	case errors.As(err, &e) && e.Stage == guest.StageWorkdir:
		return sandbox.Errorf(sandbox.CodeInvalidWorkdir, "%s: %v", e.Op, e.Errno)
	case errors.As(err, &e):
		return sandbox.Errorf(sandbox.CodeSpawn, "%s: %v", e.Op, e.Errno)
	}
	return err
}

// follow waits for the command, ends what it left behind, and reports.
func (x *execution) follow(process *guest.Process) {
	exit, ok := <-process.Exited
	ended := time.Now()
	if !ok { // init is gone, and the kernel has killed everything inside
		exit.Status = syscall.WaitStatus(syscall.SIGKILL)
	}
	if x.background {
		x.settle()
	} else {
		x.hearOut()
		x.empty()
	}
	usage, err := x.leaf.Usage()
	if err != nil || usage.CPU < exit.CPU {
		usage.CPU = exit.CPU
	}
	usage.PeakMemory = exit.MaxRSS
	result := sandbox.Result{ExitCode: -1, Usage: usage, Started: x.started, Ended: ended}
	if exit.Status.Signaled() {
		result.Signal = int(exit.Status.Signal())
		result.OOM = ok && exit.Status.Signal() == syscall.SIGKILL && !x.killed.Load() &&
			(usage.OOMKills > 0 || x.session.groups.OOMKills() > x.before.OOMKills)
	} else {
		result.ExitCode = exit.Status.ExitStatus()
	}
	result.Hits = x.hits()
	result.Network = x.traffic()
	x.session.end(x, result)
	x.session.groups.Restock() // now that nobody waits
	x.leave()
}

// leave waits until nothing is left of an execution that has ended. What stays in the
// background can still be signalled and killed by the name of the execution that started it.
func (x *execution) leave() {
	x.session.mu.Lock()
	x.told = true
	x.session.mu.Unlock()
	_ = x.leaf.Wait(context.Background()) // without an end it returns for no other reason
	if x.clock != nil {
		x.clock.Stop()
	}
	_ = x.leaf.Remove()
	if x.session.connected() {
		x.session.network.Forget(x.group)
	}
	x.session.finish(x)
	x.session.count()
}

// hearing is how long those who listen to a terminal have when its leader has ended: the kernel tells them (SIGHUP), and a
// program that is told may want to put something down.
const hearing = time.Second

// hearOut waits for them, unless they are to be killed.
func (x *execution) hearOut() {
	if x.outlet == nil || x.killed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hearing)
	defer cancel()
	_ = x.leaf.Wait(ctx)
}

// empty kills whatever is left in the leaf and waits until it is gone.
func (x *execution) empty() {
	if empty, err := x.leaf.Empty(); err == nil && empty {
		return
	}
	_ = x.leaf.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	_ = x.leaf.Wait(ctx)
}

// clear takes away the leaf of an execution that was not started, or of which nobody
// knows whether it was: init may come to it later.
func (x *execution) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	_ = x.leaf.Clear(ctx)
}

// Signal signals the process group of an execution, or with exec "" everything in
// the session but init. What is frozen gets it when it goes on.
func (r *Runner) Signal(ctx context.Context, session, exec string, sig int) error {
	s, err := r.session(session)
	if err != nil {
		return err
	}
	if exec == "" {
		return undelivered(s.init.SignalAll(ctx, syscall.Signal(sig)))
	}
	x, err := s.exec(exec)
	if err != nil {
		return err
	}
	process := x.process.Load()
	if process == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "%s has not been started", exec)
	}
	return undelivered(process.Signal(ctx, syscall.Signal(sig)))
}

// Foreground signals the process group that an execution's terminal listens to.
func (r *Runner) Foreground(ctx context.Context, id, exec string, sig int) error {
	var master *os.File
	var init *guest.Conn
	err := r.kept(id, exec, func(s *session, x *execution) (err error) {
		if x.outlet == nil {
			return sandbox.Errorf(sandbox.CodeNoExec, "%s has no terminal any more", exec)
		}
		init = s.init
		master, err = duplicate(x.stdin)
		return err
	})
	if err != nil {
		return err
	}
	defer master.Close()
	return undelivered(init.Foreground(ctx, master, syscall.Signal(sig)))
}

// undelivered says what it means that a signal was not delivered.
func undelivered(err error) error {
	switch {
	case errors.Is(err, syscall.ESRCH):
		return sandbox.Errorf(sandbox.CodeNoExec, "it has ended")
	case errors.Is(err, syscall.EINVAL):
		return sandbox.Errorf(sandbox.CodeInvalidSpec, "no such signal")
	case errors.Is(err, guest.ErrGone):
		return errEnded
	}
	return err
}

// Kill kills the whole tree of an execution, or with exec "" of every execution.
func (r *Runner) Kill(_ context.Context, session, exec string) error {
	s, err := r.session(session)
	if err != nil {
		return err
	}
	if exec != "" {
		x, err := s.exec(exec)
		if err != nil {
			return err
		}
		x.killed.Store(true)
		return x.leaf.Kill()
	}
	s.mu.Lock()
	for _, x := range s.execs {
		x.killed.Store(true)
	}
	s.mu.Unlock()
	return s.groups.KillExecutions()
}

package guest

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spawner are the steps by which a thread becomes the one that executions are cloned from.
func (g *guestInit) spawner() []step {
	s := &g.setup
	return []step{
		// Already set by whoever built the session; set again so that a mistake there cannot
		// matter here. Seccomp and Landlock need it, for want of CAP_SYS_ADMIN.
		{"no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		// The kernel's default: that of the runner may be looser.
		{"timer slack", func() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0) }},
		{"priority", ordinary},
		// The fsuid is init's, except while the thread looks paths up and before the first request, because
		// CLONE_INTO_CGROUP is judged by it.
		{"setgroups", func() error { return setgroups(s.Groups) }},
		{"setfsgid", func() error { return setfsgid(s.GID) }},
		// The bounding set while CAP_SETPCAP is still there: nothing that an execution executes
		// gives it back what it lacks.
		{"bounding set", func() error { return bound(s.Capabilities) }},
		// Inheritable first: ambient may not exceed it.
		{"capset", func() error { return capset(thisThread, initCaps|s.Capabilities, s.Capabilities) }},
		{"ambient set", func() error { return raiseAmbient(s.Capabilities) }},
		// Uid 0 of the session is no root: execve gives it nothing. All bits are locked.
		{"securebits", func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0) }},
		// CAP_SETPCAP has done its work.
		{"capset", func() error {
			return capset(thisThread, initCaps&^(1<<unix.CAP_SETPCAP)|s.Capabilities, s.Capabilities)
		}},
	}
}

// ordinary takes from the thread what an operator gave the runner so that it goes before others: a session goes before
// nobody. That it yields, it keeps.
func ordinary() error {
	const zero = 20 // the system call answers 20 less the niceness
	p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || p <= zero {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
}

// SpawnerName is the name of the thread that executions are cloned from, once it is not the main thread any
// more. What is cloned has it until it executes.
const SpawnerName = "spawner"

// extend adds a place to what may be written. Nobody can be given a right: the thread
// that makes executions is replaced by one that has entered the domain with its new rule. It
// serves once nobody has the other end of a pipe any more, the second of fds.
func (g *guestInit) extend(call uint64, fds []int) (moved bool, err error) {
	if len(fds) != 2 {
		return false, errMalformed
	}
	if g.domain == nil {
		g.answer(call, nil)
		return false, nil
	}
	if err := g.domain.allow(fds[0], Access{Write: true}.rights()); err != nil {
		g.answer(call, &Error{StageSetup, "landlock", errno(err)})
		return false, nil
	}
	became := make(chan *Error)
	go func() {
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		refused := take(append(g.spawner(), step{"threads", warm}, step{"landlock", g.domain.enter},
			// The runner finds it by that among the others, to have it counted with the executions.
			step{"name", func() error { return nameThread(SpawnerName) }}))
		if refused == nil {
			g.send(kindStarted, call, &startedFrame{int32(unix.Gettid())})
			await(fds[1])
		}
		became <- refused
		if refused == nil {
			g.serve()
		}
	}()
	if refused := <-became; refused != nil {
		g.answer(call, refused)
		return false, nil
	}
	return true, nil
}

// nameThread names the calling thread.
func nameThread(name string) error {
	b, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
}

// await returns at the end of file.
func await(pipe int) {
	var b [1]byte
	for {
		if _, err := unix.Read(pipe, b[:]); err != unix.EINTR {
			return
		}
	}
}

package guest

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// receiveSetup waits for the first message, which has to be setup.
func (g *guestInit) receiveSetup() (call uint64, err error) {
	msg, fds, err := g.buf.Receive(socketFD)
	if err != nil {
		return 0, err
	}
	packet.CloseAll(fds)
	kind, call, rest := head(msg)
	err = decode(rest, &g.setup)
	if err == nil && kind != kindSetup {
		err = errMalformed
	}
	if err != nil {
		g.send(kindFailed, call, &Error{StageRequest, "setup", syscall.EPROTO})
	}
	return call, err
}

// step is one of those by which init, or a thread of it, becomes something else.
type step struct {
	op string
	do func() error
}

// take takes steps up to the first that fails.
func take(steps []step) *Error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			if refused, ok := err.(*Error); ok {
				return refused
			}
			return &Error{StageSetup, s.op, errno(err)}
		}
	}
	return nil
}

// become turns init, and its main thread in particular, into what executions inherit.
// Nothing has been cloned yet, and nothing is after a failure. It returns the listener of the
// filter's notifications, or -1.
func (g *guestInit) become() (listener int, refused *Error) {
	s := &g.setup
	listener = -1
	return listener, take(slices.Concat([]step{
		// A process-wide attribute that needs nothing.
		{"umask", func() error { unix.Umask(int(s.Umask)); return nil }},
		// It has to be readable and writable by now, because the files have changed hands.
		{"oom_score_adj", g.readOOM},
		// Every thread loses what init was started with beyond this, ambient and inheritable sets included.
		{"capset", func() error { return capset(allThreads, initCaps|s.Capabilities, 0) }},
	}, g.spawner(), []step{
		// The limit on processes counts threads: they come first.
		{"threads", warm},
		{"rlimits", func() error { return limit(s.Rlimits, minProcesses) }},
		// Changed credentials made init as dumpable as fs.suid_dumpable says.
		{"dumpable", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
		// Trust nothing of the above: read it back, and try to take it back, while it is the
		// kernel that refuses and not the filter.
		{"verify", func() error { return verify(s) }},
		// Nothing above needs what it takes, and openat2 is still there.
		{"landlock", g.restrict},
		{"workdir", func() error {
			if refused := g.enter(s.Workdir); refused != nil {
				return refused
			}
			return nil
		}},
		// The kernel knows of no uid of executions before there is one: here it can be read until the first request.
		{"setfsuid", func() error { g.shown = true; return setfsuid(s.UID) }},
		// Last, because the filter may refuse what came before, or tell of it, which nobody
		// answers yet. On every thread at once.
		{"seccomp", func() (err error) { listener, err = filter(s.Filter, s.Report); return err }},
		{"verify seccomp", func() error { return filtered(s.Filter) }},
	}))
}

// ready answers setup. The listener is the runner's from now on: nobody inside must
// ever hold it.
func (g *guestInit) ready(call uint64, listener int) {
	f := &readyFrame{}
	if g.domain != nil {
		f.landlock = uint32(g.domain.abi)
	}
	if listener < 0 {
		g.send(kindReady, call, f)
		return
	}
	g.send(kindReady, call, f, listener)
	unix.Close(listener)
}

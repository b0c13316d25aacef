package launch

import (
	"context"
	"os"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// Resolved is the answer for one host path: what it leads to, or why it cannot be reached.
type Resolved struct {
	Source sandbox.Source
	Err    *sandbox.Error // nil when Source is set
}

// Streams are the daemon's ends of an execution's pipes: duplicates, because the handler
// keeps its own for the daemon that comes next. Serve closes them once they have been sent.
type Streams struct {
	Stdin          *os.File // nil unless it is to be written
	Stdout, Stderr *os.File
	Started        time.Time
}

// Close closes what there is; of a nil *os.File that is an error, and nothing else.
func (s Streams) Close() {
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		f.Close()
	}
}

// Handler does what the daemon asks. Every call runs in a goroutine of its own; its
// ctx ends when the daemon gives the call up, and when the connection is lost.
// Errors that are *sandbox.Error cross with their code, others as CodeInternal.
//
// It outlives its daemons. What stands when a connection is lost is held for the next one,
// which asks for Sessions first.
type Handler interface {
	Host() sandbox.Host
	// Sessions tells what is held, in order of names.
	Sessions() []sandbox.Held
	// Owner is the user whose session it is.
	Owner(session string) (uid uint32, err error)
	// Resolve answers path by path, in order.
	Resolve(ctx context.Context, caller sandbox.Caller, paths []string) ([]Resolved, error)
	Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error)
	// Start starts a command. stdin is the handler's to close, nil for an empty one, and for a pipe
	// of the handler's if e.StdinOpen. If Start returned no error, exited is called, from
	// any goroutine and at any time: once, unless the connection is lost before.
	Start(ctx context.Context, e sandbox.Exec, stdin *os.File, exited func(sandbox.Result)) (Streams, error)
	// Attach gives what Start gave, of an execution that was started before and has not been
	// forgotten. If it has ended, exited is called at once.
	Attach(session, exec string, exited func(sandbox.Result)) (Streams, error)
	// Forget gives up the result and the pipes of an execution. It is called in the order of
	// messages, between two others, and does not wait.
	Forget(session, exec string)
	// CloseStdin closes the handler's end of a stdin that is open; one that is not is no error.
	CloseStdin(session, exec string) error
	// Signal signals an execution, or with exec "" every execution of the session.
	Signal(ctx context.Context, session, exec string, sig int) error
	// Foreground signals the process group that an execution's terminal listens to.
	Foreground(ctx context.Context, session, exec string, sig int) error
	// Kill kills the whole tree of an execution, or with exec "" of every execution.
	Kill(ctx context.Context, session, exec string) error
	// Freeze stops an execution, or with exec "" the session's, until it is called with false.
	Freeze(ctx context.Context, session, exec string, frozen bool) error
	Load(session string) (sandbox.Load, error)
	// Collect opens regular files of the session. Serve closes them once they have been sent.
	Collect(ctx context.Context, session string, paths []string) ([]sandbox.Artifact, error)
	// Connect makes a connection to a port of the session's loopback, from inside. Serve closes the socket once it has been sent.
	Connect(ctx context.Context, session string, port uint16) (*os.File, error)
	// Changes tells what an overlay has that its source has not, in order of paths: limit of them at
	// most, those after a path, and whether there are more. An empty target is the session's only overlay.
	Changes(ctx context.Context, session, target, after string, limit int) (changes []sandbox.Change, more bool, err error)
	// Commit makes the changes of an overlay to its source: those at and below paths, or with none all.
	// What was done before an error is said beside it.
	Commit(ctx context.Context, session, target string, paths []string) (sandbox.Committed, error)
	// Discard empties an overlay.
	Discard(ctx context.Context, session, target string) error
	// Narrow takes a part of the network away, and tells how many live connections that has cut.
	Narrow(ctx context.Context, session string, n sandbox.Network) (cut int64, err error)
	Close(ctx context.Context, session string) (sandbox.Usage, error)
	// Disconnected is called once for each connection that is lost, when every call has returned; a
	// Resolve that hangs with a file system may be the exception. It ends the sessions that end with
	// their daemon, and forgets whom it would have told of exits.
	Disconnected()
	// Abandoned is called when no daemon has come for what is held. It ends every session.
	Abandoned()
}

package launch

import (
	"context"
	"os"

	"github.com/stockade-dev/stockade/sandbox"
)

// Resolved is the answer for one host path: what it leads to, or why it cannot be reached.
type Resolved struct {
	Source sandbox.Source
	Err    *sandbox.Error // nil when Source is set
}

// Handler does what the daemon asks. Every call runs in a goroutine of its own; its
// ctx ends when the daemon gives the call up, and when the connection is lost.
// Errors that are *sandbox.Error cross with their code, others as CodeInternal.
type Handler interface {
	Host() sandbox.Host
	// Resolve answers path by path, in order.
	Resolve(ctx context.Context, caller sandbox.Caller, paths []string) ([]Resolved, error)
	Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error)
	// Start starts a command. stdin is the handler's to close, nil for an empty one. The
	// returned read ends are closed by Serve once they have been sent. exited is called
	// once, from any goroutine and at any time, if Start returned no error.
	Start(ctx context.Context, e sandbox.Exec, stdin *os.File, exited func(sandbox.Result)) (stdout, stderr *os.File, err error)
	// Signal signals an execution, or with exec "" every execution of the session.
	Signal(ctx context.Context, session, exec string, sig int) error
	// Kill kills the whole tree of an execution, or with exec "" of every execution.
	Kill(ctx context.Context, session, exec string) error
	// Collect opens regular files of the session. Serve closes them once they have been sent.
	Collect(ctx context.Context, session string, paths []string) ([]sandbox.Artifact, error)
	Close(ctx context.Context, session string) (sandbox.Usage, error)
	// Disconnected is called once, when the connection is lost and every call has returned; a
	// Resolve that hangs with a file system may be the exception.
	Disconnected()
}

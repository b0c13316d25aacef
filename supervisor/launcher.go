package supervisor

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Launcher is the privileged side as the supervisor sees it: sandbox/launch.Runner
// in production, a fake in tests, which therefore need neither root nor a kernel
// that can build sandboxes.
//
// An error that a caller may see is a *sandbox.Error; its code becomes the
// error_code of the receipt.
type Launcher interface {
	// Host returns what the kernel and this place offer, probed once by the runner.
	Host() sandbox.Host

	// Resolve looks at host paths under the caller's identity. The answer has one
	// element per path, in order.
	Resolve(ctx context.Context, caller sandbox.Caller, paths []string) ([]launch.Resolved, error)

	// Open builds a session and returns what the kernel says is in force. A failed
	// Open leaves nothing behind.
	Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error)

	// Start starts one execution. The launcher duplicates stdin, which stays the
	// caller's to close; nil means end of file at once.
	Start(ctx context.Context, x sandbox.Exec, stdin *os.File) (*sandbox.Process, error)

	// Sessions returns what is held for whoever comes after a supervisor that is gone.
	Sessions(ctx context.Context) ([]sandbox.Held, error)

	// Attach takes over an execution that was started and not forgotten, as Start gave it.
	Attach(ctx context.Context, session, exec string) (*sandbox.Process, error)

	// Forget says that the end of an execution is durable: nobody will attach to it. It
	// waits for nothing.
	Forget(session, exec string)

	// CloseStdin ends the stdin of an execution that was started with it open.
	CloseStdin(ctx context.Context, session, exec string) error

	// Freeze stops an execution, or with exec "" all of the session but its init, where it
	// stands, and lets it go on.
	Freeze(ctx context.Context, session, exec string, frozen bool) error

	// Load returns what a session uses now.
	Load(ctx context.Context, session string) (sandbox.Load, error)

	// Signal delivers sig to the processes of an execution.
	Signal(ctx context.Context, session, exec string, sig int) error

	// Foreground delivers sig to the process group that the terminal of an execution listens to.
	Foreground(ctx context.Context, session, exec string, sig int) error

	// Kill ends the whole tree of an execution, whatever it does.
	Kill(ctx context.Context, session, exec string) error

	// Collect opens regular files of a session, by inside path, without following
	// symbolic links out of it. A directory stands for the files below it.
	Collect(ctx context.Context, session string, paths []string) ([]sandbox.Artifact, error)

	// Changes returns what an overlay has that its source has not, in order of paths, after a path and at
	// most so many, and whether there are more.
	Changes(ctx context.Context, session, target, after string, limit int) ([]sandbox.Change, bool, error)

	// Commit makes the changes of an overlay to its source: those at and below paths, or with none all. What
	// runs in the session stands still meanwhile. Beside an error it says how far it came.
	Commit(ctx context.Context, session, target string, paths []string) (sandbox.Committed, error)

	// Discard empties an overlay.
	Discard(ctx context.Context, session, target string) error

	// Connect makes a connection to a port of the session's loopback, from inside.
	Connect(ctx context.Context, session string, port uint16) (net.Conn, error)

	// Narrow leaves a session n of its network, and returns how many live connections that cut off.
	Narrow(ctx context.Context, session string, n sandbox.Network) (cut int64, err error)

	// Close destroys a session with everything in it and returns what it used.
	// Closing an unknown session is CodeNoSession.
	Close(ctx context.Context, session string) (sandbox.Usage, error)

	// Done is closed when the runner is gone, and every session with it.
	Done() <-chan struct{}
}

// runnerError is an error of the launcher as the caller sees it.
func runnerError(err error) *api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return api.Errorf(api.Code(e.Code), "%s", e.Msg)
	}
	return api.Errorf(api.CodeRunnerUnavailable, "%v", err)
}

// gone reports that the execution ended, or has not begun, as the signal came.
func gone(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && (e.Code == sandbox.CodeNoExec || e.Code == sandbox.CodeNoSession)
}

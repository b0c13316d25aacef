package server

import (
	"context"
	"io"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Supervisor is what is served: supervisor.Supervisor in production, a script in tests of what
// streams do when the other side is slow, stops, or has forgotten.
//
// A read is answered with what was asked for, with the receipt of its denial, or with an error;
// exactly one of them is there. An error that a caller may see is an *api.Error.
type Supervisor interface {
	// Do carries an operation out and returns its receipt. emit, if not nil, gets what happens on
	// the way; the end of ctx ends the waiting, not the operation.
	Do(ctx context.Context, req *api.Request, emit func(api.Event)) (*api.Receipt, error)

	// Start is Do of a host.exec that waits so long as the request says, and no longer; of another operation, one
	// that does not wait for somebody's leave. Exactly one of the answers is there.
	Start(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error)

	// OpenShell is Do of a host.shell.open that waits for the shell's prompt. Exactly one of the answers is there.
	OpenShell(ctx context.Context, req *api.Request) (*api.Shell, *api.Receipt, error)

	// FollowShell gives emit what comes out of a shell after a token, until the shell has ended.
	FollowShell(ctx context.Context, req *api.Request, emit func(*api.ShellOutput)) (denial *api.Receipt, err error)

	// AttachShell is Do of a host.shell.attach: it types what comes from moves, until that is closed or the shell has ended. tell
	// is called when it begins to.
	AttachShell(ctx context.Context, req *api.Request, moves <-chan *api.ShellInput, tell func(news string)) (*api.Receipt, error)

	// OpenRecording returns the recording of a shell, an asciicast. The caller closes it.
	OpenRecording(ctx context.Context, req *api.Request) (io.ReadCloser, *api.Receipt, error)

	// Forward is Do of a host.session.forward: it is open until closed is. tell gets the name under which connections join it.
	Forward(ctx context.Context, req *api.Request, closed <-chan struct{}, tell func(intent string)) (*api.Receipt, error)

	// Join makes a connection inside, for a forwarding of p's that is open. The caller closes it. It is closed, and
	// so is cut, when the forwarding ends.
	Join(ctx context.Context, p api.Principal, intent string) (conn joined, cut <-chan struct{}, err error)

	// PutBlob is Do of a blob.put.
	PutBlob(ctx context.Context, req *api.Request, content io.Reader) (*api.Receipt, error)

	// Watch gives emit what follows the cursor of an execution, and returns its receipt when it has
	// ended.
	Watch(ctx context.Context, req *api.Request, emit func(api.Event)) (receipt, denial *api.Receipt, err error)

	// FollowEvents gives emit what follows a position in an event log, as long as anything can.
	FollowEvents(ctx context.Context, req *api.Request, emit func(api.Notice)) (denial *api.Receipt, err error)

	// OpenBlob returns the content of a blob and its size. The caller closes it.
	OpenBlob(ctx context.Context, req *api.Request) (io.ReadCloser, int64, *api.Receipt, error)

	Session(ctx context.Context, req *api.Request) (*api.Session, *api.Receipt, error)
	Sessions(ctx context.Context, req *api.Request) (*api.SessionList, *api.Receipt, error)
	Process(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error)
	Processes(ctx context.Context, req *api.Request) (*api.ProcessList, *api.Receipt, error)
	Wait(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error)
	Output(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error)
	Shell(ctx context.Context, req *api.Request) (*api.Shell, *api.Receipt, error)
	ShellOutput(ctx context.Context, req *api.Request) (*api.ShellOutput, *api.Receipt, error)
	Events(ctx context.Context, req *api.Request) (*api.NoticeList, *api.Receipt, error)
	Intent(ctx context.Context, req *api.Request) (*api.Intent, *api.Receipt, error)
	Intents(ctx context.Context, req *api.Request) (*api.IntentList, *api.Receipt, error)
	Frames(ctx context.Context, req *api.Request) (*api.FrameList, *api.Receipt, error)
	Receipt(ctx context.Context, req *api.Request) (*api.Receipt, *api.Receipt, error)
	Receipts(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error)
	Audit(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error)
	Approval(ctx context.Context, req *api.Request) (*api.Approval, *api.Receipt, error)
	Approvals(ctx context.Context, req *api.Request) (*api.ApprovalList, *api.Receipt, error)
	Checkpoint(ctx context.Context, req *api.Request) (*api.Checkpoint, *api.Receipt, error)
	Decide(ctx context.Context, req *api.Request) (*api.Decision, *api.Receipt, error)
	HostInfo(ctx context.Context, req *api.Request) (*api.HostInfo, *api.Receipt, error)
	Capabilities(ctx context.Context, req *api.Request) (*api.Capabilities, *api.Receipt, error)
	Diff(ctx context.Context, req *api.Request) (*api.SpaceResult, *api.Receipt, error)
	Quiescence(ctx context.Context, req *api.Request) (*api.Quiescence, *api.Receipt, error)
	Settings(ctx context.Context, req *api.Request) (*api.Settings, *api.Receipt, error)
	Snapshot(ctx context.Context, req *api.Request) (*api.Snapshot, *api.Receipt, error)
	PolicyStatus(ctx context.Context, req *api.Request) (*api.PolicyStatus, *api.Receipt, error)
	PolicyPreview(ctx context.Context, req *api.Request) (*api.PolicyPreview, *api.Receipt, error)
	Version() api.Version
}

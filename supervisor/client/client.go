// Package client speaks to a supervisor over its unix socket.
//
// A [Client] is safe for concurrent use. An operation that was denied or faulted is
// not a Go error: it comes back as a receipt, whose Outcome says so. What never became
// an operation (a body that does not decode, an unknown route) is an *api.Error, and
// everything else is a failure of the connection.
//
// An operation with effect is sent once: one whose answer was lost may have taken place.
// With a key ([Client.WithKey]) the caller may ask again, and gets the receipt of the first
// time; so may net/http, when an idle connection turns out to be gone. What is followed is a read, and goes on by itself from the last position that
// arrived when the connection is lost, also over a restart of the supervisor: [Client.Watch],
// [Client.WaitProcess], [Client.FollowFrames], [Client.FollowEvents], and [Client.ExecStream] from the moment
// at which the supervisor has accepted the command. They give up after some ten seconds in
// which nothing arrived, and none of them begins with a supervisor that is not there. Nothing
// else is tried twice.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Client is a connection pool to one supervisor.
type Client struct {
	http  *http.Client
	dial  func(ctx context.Context) (net.Conn, error) // of what is no request and its answer
	scope api.Scope
	key   string
	lost  func(error)
	async bool            // prefer not to wait for leave
	pause []time.Duration // between attempts to take up again what was followed
}

// New returns a client of the supervisor that listens on the socket. It connects with
// the first call.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dial(ctx, socket)
		if err != nil {
			return nil, err
		}
		return &asking{Conn: conn, asked: make(chan struct{})}, nil
	}
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext:         dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}}, dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "", "") }, pause: pauses}
}

// dial connects. Where others connect faster than the supervisor accepts, the queue of the socket is full for a
// moment: a blocking connect(2) waits then, and Go's, which does not block, gets EAGAIN.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	for begin := time.Now(); ; {
		conn, err := d.DialContext(ctx, "unix", socket)
		if !errors.Is(err, syscall.EAGAIN) || time.Since(begin) > patience {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
}

// patience is how long a connection waits for its turn in the queue.
const patience = 5 * time.Second

// asking is a connection that hears nothing before it has asked. Whom the supervisor turns away it tells so at once, and hangs
// up: net/http takes an answer without a question for a fault, and stops reading when it cannot ask.
type asking struct {
	net.Conn
	asked chan struct{}
	once  sync.Once
}

func (c *asking) Write(b []byte) (n int, err error) {
	first := false
	c.once.Do(func() { first = true })
	n, err = c.Conn.Write(b)
	if first {
		close(c.asked)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return len(b), nil // what it was told is there to be read, or the end
		}
	}
	return n, err
}

func (c *asking) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *asking) Close() error {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Close()
}

// WithScope returns a client that declares scope with every call.
func (c *Client) WithScope(scope api.Scope) *Client {
	d := *c
	d.scope = scope
	return &d
}

// WithKey returns a client whose operations with effect carry an idempotency key: the same
// operation with the same key takes place once, whoever asks how often, and is answered with
// one receipt, also across a restart of the supervisor. Another operation with the same key is
// refused, so such a client is for one operation. Reads do not carry it.
func (c *Client) WithKey(key string) *Client {
	d := *c
	d.key = key
	return &d
}

// WithLost returns a client that tells fn why what is followed broke off, each time before it is
// taken up again: a person who waits may want to know.
func (c *Client) WithLost(fn func(error)) *Client {
	d := *c
	d.lost = fn
	return &d
}

// Do carries out an operation with effect by its name, and returns when it is settled.
func (c *Client) Do(ctx context.Context, op api.Op, parameters any) (*api.Receipt, error) {
	return receipt(c.named(ctx, op, parameters))
}

// CloseIdle closes the connections that no call uses. The client stays usable.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Open asks for a session.
func (c *Client) Open(ctx context.Context, open api.SessionOpen) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/sessions", open))
}

// Session returns a session of the caller's.
func (c *Client) Session(ctx context.Context, id string) (*api.Session, error) {
	return document[api.Session](c.get(ctx, "/v1/sessions/"+url.PathEscape(id), nil))
}

// Sessions lists the caller's sessions, newest first. Labels, State and Limit of the
// filter count.
func (c *Client) Sessions(ctx context.Context, filter api.Read) ([]api.Session, error) {
	list, err := document[api.SessionList](c.get(ctx, "/v1/sessions", query(filter)))
	if err != nil {
		return nil, err
	}
	return list.Sessions, nil
}

// Signal delivers a signal to every live execution of a session.
func (c *Client) Signal(ctx context.Context, signal api.SessionSignal) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/signal", signal))
}

// Close ends a session.
func (c *Client) Close(ctx context.Context, session api.SessionClose) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/close", session))
}

// PauseSession freezes everything in a session.
func (c *Client) PauseSession(ctx context.Context, session api.SessionTarget) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpSessionPause, session))
}

// ResumeSession lets everything in a session go on.
func (c *Client) ResumeSession(ctx context.Context, session api.SessionTarget) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpSessionResume, session))
}

// Narrow leaves a session less of its network. What is reached through the rest is cut off.
func (c *Client) Narrow(ctx context.Context, narrow api.SessionNarrow) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpSessionNarrow, narrow))
}

// PutBlob stores everything that content holds. A ref that is not "" is checked
// against it. Policy judges the size before the first byte travels, so content that
// cannot tell its size is read into a temporary file first.
func (c *Client) PutBlob(ctx context.Context, content io.Reader, ref string) (*api.Receipt, error) {
	content, size, done, err := measure(content)
	if err != nil {
		return nil, fmt.Errorf("measure the content: %w", err)
	}
	defer done()
	q := url.Values{}
	if ref != "" {
		q.Set("blob_ref", ref)
	}
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	return receipt(c.send(ctx, http.MethodPut, "/v1/blobs", q, content, size, h))
}

// Blob returns the content of a blob and its size. The caller closes it.
func (c *Client) Blob(ctx context.Context, ref string) (io.ReadCloser, int64, error) {
	a := c.get(ctx, "/v1/blobs/"+url.PathEscape(ref), nil)
	if a.err != nil {
		return nil, 0, a.err
	}
	if a.resp.StatusCode != http.StatusOK {
		_, err := document[struct{}](a)
		return nil, 0, err
	}
	return a.resp.Body, a.resp.ContentLength, nil
}

// Receipt returns the receipt of an operation.
func (c *Client) Receipt(ctx context.Context, intentID string) (*api.Receipt, error) {
	return document[api.Receipt](c.get(ctx, "/v1/receipts/"+url.PathEscape(intentID), nil))
}

// Receipts lists the first of the caller's receipts that the supervisor looks at and that fit, newest first: one page.
func (c *Client) Receipts(ctx context.Context, filter api.Read) ([]api.Receipt, error) {
	list, err := c.ReceiptPage(ctx, filter)
	if err != nil {
		return nil, err
	}
	return list.Receipts, nil
}

// ReceiptPage is a page of the caller's receipts that fit ([api.Read.Fits]), and where the next begins (After of the next filter).
func (c *Client) ReceiptPage(ctx context.Context, filter api.Read) (*api.ReceiptList, error) {
	return document[api.ReceiptList](c.get(ctx, "/v1/receipts", query(filter)))
}

// Audit is ReceiptPage of everybody's receipts.
func (c *Client) Audit(ctx context.Context, filter api.Read) (*api.ReceiptList, error) {
	return document[api.ReceiptList](c.get(ctx, "/v1/audit", query(filter)))
}

// Checkpoint has the journal signed as far as it goes, and returns the signed note.
func (c *Client) Checkpoint(ctx context.Context) (*api.Checkpoint, error) {
	return document[api.Checkpoint](c.get(ctx, "/v1/checkpoint", nil))
}

// Decide asks what policy would say to an operation: Op and its parameters count.
func (c *Client) Decide(ctx context.Context, req api.Request) (*api.Decision, error) {
	unkeyed := c.WithKey("") // a question has no effect
	return document[api.Decision](unkeyed.post(ctx, "/v1/decide", api.AskOf(&req)))
}

// Host returns what the machine offers and what the operator allows.
func (c *Client) Host(ctx context.Context) (*api.HostInfo, error) {
	return document[api.HostInfo](c.get(ctx, "/v1/host", nil))
}

// Capabilities returns what a session can be held by there, as far as the host and its operator go.
func (c *Client) Capabilities(ctx context.Context) (*api.Capabilities, error) {
	return document[api.Capabilities](c.get(ctx, "/v1/capabilities", nil))
}

// Quiescence says what keeps the supervisor from being quiet.
func (c *Client) Quiescence(ctx context.Context) (*api.Quiescence, error) {
	return document[api.Quiescence](c.get(ctx, "/v1/quiescence", nil))
}

// Snapshot returns the digest of everything that the supervisor knows, and of how much of the
// journal it is made.
func (c *Client) Snapshot(ctx context.Context) (*api.Snapshot, error) {
	return document[api.Snapshot](c.get(ctx, "/v1/snapshot", nil))
}

// Drain has the supervisor take no new sessions and executions, or with Undo again.
func (c *Client) Drain(ctx context.Context, drain api.Drain) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/drain", drain))
}

// Settings says how the supervisor was set up, and which level its log has.
func (c *Client) Settings(ctx context.Context) (*api.Settings, error) {
	return document[api.Settings](c.get(ctx, "/v1/settings", nil))
}

// LogLevel gives the supervisor's log another level.
func (c *Client) LogLevel(ctx context.Context, level api.LogLevel) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/log/level", level))
}

// PolicyStatus says which revisions of the policy decide.
func (c *Client) PolicyStatus(ctx context.Context) (*api.PolicyStatus, error) {
	return document[api.PolicyStatus](c.get(ctx, "/v1/policy", nil))
}

// PolicyPreview validates the policy that is there, and says what its activation would mean.
func (c *Client) PolicyPreview(ctx context.Context, ask api.PolicyActivate) (*api.PolicyPreview, error) {
	unkeyed := c.WithKey("") // a question has no effect
	return document[api.PolicyPreview](unkeyed.post(ctx, "/v1/policy/preview", ask))
}

// ActivatePolicy has the policy that is there decide, once it has been validated.
func (c *Client) ActivatePolicy(ctx context.Context, ask api.PolicyActivate) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/policy/activate", ask))
}

// Version returns who answers.
func (c *Client) Version(ctx context.Context) (*api.Version, error) {
	return document[api.Version](c.get(ctx, "/v1/version", nil))
}

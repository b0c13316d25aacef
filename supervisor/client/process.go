package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Exec runs a command and returns when it has ended.
func (c *Client) Exec(ctx context.Context, exec api.Exec) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/exec", exec))
}

// Start starts a command and does not wait for its end: with WaitMS, so long for it and its
// output, otherwise not at all. The answer is a receipt when the command has ended already or
// was refused, and otherwise what there is so far.
func (c *Client) Start(ctx context.Context, exec api.Exec) (*api.Pending, *api.Receipt, error) {
	if exec.WaitMS == 0 {
		exec.Wait = new(bool)
	}
	a := c.post(ctx, "/v1/exec", exec)
	if a.err != nil || a.resp.StatusCode != http.StatusAccepted {
		r, err := receipt(a)
		return nil, r, err
	}
	p, err := document[api.Pending](a)
	return p, nil, err
}

// Process returns the record of an execution.
func (c *Client) Process(ctx context.Context, execID string) (*api.Process, error) {
	return document[api.Process](c.get(ctx, execution(execID), nil))
}

// Processes lists the caller's executions, newest first. SessionID, State, Active, Labels, Limit
// and After of the filter count.
func (c *Client) Processes(ctx context.Context, filter api.Read) (*api.ProcessList, error) {
	return document[api.ProcessList](c.get(ctx, "/v1/executions", query(filter)))
}

// Output returns what an execution wrote after a cursor, in order of arrival: After, WaitMS and
// MaxBytes of page count. When Gone is set, the cursor is not kept any more, and the bytes are
// not what follows it.
func (c *Client) Output(ctx context.Context, execID string, page api.Read) (*api.Pending, error) {
	q := query(api.Read{After: page.After, WaitMS: page.WaitMS, MaxBytes: page.MaxBytes})
	return document[api.Pending](c.get(ctx, execution(execID)+"/output", q))
}

// Input writes to the stdin of an execution that was started with StdinOpen.
func (c *Client) Input(ctx context.Context, input api.ProcessInput) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessInput, input))
}

// SignalProcess delivers a signal to an execution.
func (c *Client) SignalProcess(ctx context.Context, signal api.ProcessSignal) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessSignal, signal))
}

// Modify changes a running execution.
func (c *Client) Modify(ctx context.Context, modify api.ProcessModify) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessModify, modify))
}

// Pause freezes an execution.
func (c *Client) Pause(ctx context.Context, process api.ProcessTarget) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessPause, process))
}

// Resume lets a paused execution go on.
func (c *Client) Resume(ctx context.Context, process api.ProcessTarget) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessResume, process))
}

// Cancel ends an execution with its whole tree.
func (c *Client) Cancel(ctx context.Context, cancel api.ProcessCancel) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessCancel, cancel))
}

// Delete takes an execution that has ended out of the registry. Its receipt stays.
func (c *Client) Delete(ctx context.Context, process api.ProcessTarget) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessDelete, process))
}

// Stop cancels every live execution of the caller's that fits.
func (c *Client) Stop(ctx context.Context, stop api.ProcessStop) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpProcessStop, stop))
}

// Intent returns an operation with effect, in flight or settled.
func (c *Client) Intent(ctx context.Context, intentID string) (*api.Intent, error) {
	return document[api.Intent](c.get(ctx, intent(intentID), nil))
}

// Intents lists the caller's operations with effect, newest first. SessionID and Limit of the
// filter count.
func (c *Client) Intents(ctx context.Context, filter api.Read) ([]api.Intent, error) {
	list, err := document[api.IntentList](c.get(ctx, "/v1/intents", query(filter)))
	if err != nil {
		return nil, err
	}
	return list.Intents, nil
}

// Frames returns the frames of an intent that follow the one with the number After: WaitMS and
// Limit of page count, too.
func (c *Client) Frames(ctx context.Context, intentID string, page api.Read) (*api.FrameList, error) {
	q := query(api.Read{After: page.After, WaitMS: page.WaitMS, Limit: page.Limit})
	return document[api.FrameList](c.get(ctx, intent(intentID)+"/frames", q))
}

// Events returns a page of the event log of a session, or of the principal when SessionID of page
// is empty. After, WaitMS and Limit count, too. When Gone is set, the position is not kept any
// more.
func (c *Client) Events(ctx context.Context, page api.Read) (*api.NoticeList, error) {
	q := query(api.Read{After: page.After, WaitMS: page.WaitMS, Limit: page.Limit})
	return document[api.NoticeList](c.get(ctx, log(page.SessionID), q))
}

func execution(id string) string { return "/v1/executions/" + url.PathEscape(id) }
func intent(id string) string    { return "/v1/intents/" + url.PathEscape(id) }

// log is the event log of a session, or of the principal.
func log(session string) string {
	if session == "" {
		return "/v1/events"
	}
	return "/v1/sessions/" + url.PathEscape(session) + "/events"
}

// milliseconds rounds up: a wait that is not zero must not become none.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

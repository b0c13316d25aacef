package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// OpenShell opens a shell and returns it when its prompt is there, or after WaitMS. The answer is a receipt when it was
// refused, or has ended already.
func (c *Client) OpenShell(ctx context.Context, shell api.Exec) (*api.Shell, *api.Receipt, error) {
	a := c.post(ctx, "/v1/shells", shell)
	if a.err != nil || a.resp.StatusCode != http.StatusAccepted {
		r, err := receipt(a)
		return nil, r, err
	}
	s, err := document[api.Shell](a)
	return s, nil, err
}

// Shell returns a shell, live or ended.
func (c *Client) Shell(ctx context.Context, execID string) (*api.Shell, error) {
	return document[api.Shell](c.get(ctx, shell(execID), nil))
}

// ShellOutput returns what came out of a shell after a token: After, WaitMS and MaxBytes of page count.
func (c *Client) ShellOutput(ctx context.Context, execID string, page api.Read) (*api.ShellOutput, error) {
	q := query(api.Read{After: page.After, WaitMS: page.WaitMS, MaxBytes: page.MaxBytes})
	return document[api.ShellOutput](c.get(ctx, shell(execID)+"/output", q))
}

// FollowShell hands what comes out of a shell after a token to fn, until it has ended. Lost connections are taken up
// again. An error of fn ends the stream, not the shell.
func (c *Client) FollowShell(ctx context.Context, execID, after string, fn func(*api.ShellOutput) error) error {
	return c.resume(ctx, false, func() (bool, error) {
		progress := false
		err := lines(c.stream(ctx, shell(execID)+"/output", after), func(line []byte) (bool, error) {
			o, err := decode[api.ShellOutput](line)
			if err != nil || o.ExecID == "" { // a sign of life
				return false, err
			}
			if err := fn(o); err != nil {
				return false, err
			}
			after, progress = o.Token, true
			return o.End, nil
		})
		return progress, err
	})
}

// Type types into a shell, and sends its signals.
func (c *Client) Type(ctx context.Context, input api.ShellInput) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpShellInput, input))
}

// RunInShell has a shell that is at its prompt run one command, and returns when that has ended.
func (c *Client) RunInShell(ctx context.Context, run api.ShellRun) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpShellRun, run))
}

// ResizeShell gives the terminal of a shell another size.
func (c *Client) ResizeShell(ctx context.Context, resize api.ShellResize) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpShellResize, resize))
}

// CloseShell ends a shell.
func (c *Client) CloseShell(ctx context.Context, hangup api.ShellClose) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpShellClose, hangup))
}

// Recording returns what a shell looked like, as an asciicast v2: input says whether with what was typed. The caller closes it.
func (c *Client) Recording(ctx context.Context, execID string, input bool) (io.ReadCloser, error) {
	q := url.Values{}
	if input {
		q.Set("input", "true")
	}
	a := c.get(ctx, shell(execID)+"/recording", q)
	if a.err != nil {
		return nil, a.err
	}
	if a.resp.StatusCode != http.StatusOK {
		_, err := document[struct{}](a)
		return nil, err
	}
	return a.resp.Body, nil
}

func shell(execID string) string { return "/v1/shells/" + url.PathEscape(execID) }

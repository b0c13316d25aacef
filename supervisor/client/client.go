// Package client speaks to a supervisor over its unix socket.
//
// A [Client] is safe for concurrent use. An operation that was denied or faulted is
// not a Go error: it comes back as a receipt, whose Outcome says so. What never became
// an operation (a body that does not decode, an unknown route) is an *api.Error, and
// everything else is a failure of the connection. The package never retries: an
// operation whose answer was lost may have taken place.
package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Client is a connection pool to one supervisor.
type Client struct {
	http  *http.Client
	scope api.Scope
}

// New returns a client of the supervisor that listens on the socket. It connects with
// the first call.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext:         dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}}}
}

// WithScope returns a client that declares scope with every call.
func (c *Client) WithScope(scope api.Scope) *Client {
	return &Client{http: c.http, scope: scope}
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

// Exec runs a command and returns when it has ended.
func (c *Client) Exec(ctx context.Context, exec api.Exec) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/exec", exec))
}

// ExecStream runs a command and hands every event to fn as it comes, the receipt
// included. An error of fn ends the stream, not the command.
func (c *Client) ExecStream(ctx context.Context, exec api.Exec, fn func(api.Event) error) (*api.Receipt, error) {
	return stream(c.call(ctx, http.MethodPost, "/v1/exec", exec, ndjson), fn)
}

// Follow hands the output of an execution to fn, from the offsets on, and returns its
// receipt when it has ended.
func (c *Client) Follow(ctx context.Context, execID string, from api.Offsets, fn func(api.Event) error) (*api.Receipt, error) {
	q := url.Values{}
	if from.Stdout > 0 {
		q.Set("stdout", strconv.FormatInt(from.Stdout, 10))
	}
	if from.Stderr > 0 {
		q.Set("stderr", strconv.FormatInt(from.Stderr, 10))
	}
	path := "/v1/executions/" + url.PathEscape(execID) + "/output"
	return stream(c.do(ctx, http.MethodGet, path, q, nil, http.Header{"Accept": {ndjson}}), fn)
}

// Signal delivers a signal to every live execution of a session.
func (c *Client) Signal(ctx context.Context, signal api.SessionSignal) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/signal", signal))
}

// Close ends a session.
func (c *Client) Close(ctx context.Context, session api.SessionClose) (*api.Receipt, error) {
	return receipt(c.post(ctx, "/v1/close", session))
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

// Receipts lists the caller's receipts, newest first. SessionID, ExecID, Op, Outcome and
// Limit of the filter count.
func (c *Client) Receipts(ctx context.Context, filter api.Read) ([]api.Receipt, error) {
	list, err := document[api.ReceiptList](c.get(ctx, "/v1/receipts", query(filter)))
	if err != nil {
		return nil, err
	}
	return list.Receipts, nil
}

// Checkpoint has the journal signed as far as it goes, and returns the signed note.
func (c *Client) Checkpoint(ctx context.Context) (*api.Checkpoint, error) {
	return document[api.Checkpoint](c.get(ctx, "/v1/checkpoint", nil))
}

// Decide asks what policy would say to an operation: Op and its parameters count.
func (c *Client) Decide(ctx context.Context, req api.Request) (*api.Decision, error) {
	return document[api.Decision](c.post(ctx, "/v1/decide", api.Ask{
		Op: req.Op, Open: req.Open, Exec: req.Exec, Signal: req.Signal, Close: req.Close,
	}))
}

// Host returns what the machine offers and what the operator allows.
func (c *Client) Host(ctx context.Context) (*api.HostInfo, error) {
	return document[api.HostInfo](c.get(ctx, "/v1/host", nil))
}

// Version returns who answers.
func (c *Client) Version(ctx context.Context) (*api.Version, error) {
	return document[api.Version](c.get(ctx, "/v1/version", nil))
}

const ndjson = "application/x-ndjson"

// answer is a response, or why there is none.
type answer struct {
	resp *http.Response
	err  error
}

func (c *Client) get(ctx context.Context, path string, q url.Values) answer {
	return c.do(ctx, http.MethodGet, path, q, nil, nil)
}

func (c *Client) post(ctx context.Context, path string, v any) answer {
	return c.call(ctx, http.MethodPost, path, v, "")
}

func (c *Client) call(ctx context.Context, method, path string, v any, accept string) answer {
	body, err := api.Encode(v)
	if err != nil {
		return answer{err: err}
	}
	h := http.Header{"Content-Type": {"application/json"}}
	if accept != "" {
		h.Set("Accept", accept)
	}
	return c.do(ctx, method, path, nil, bytes.NewReader(body), h)
}

// host is what the Host header says: the name of the only virtual host that the
// supervisor answers to.
const host = "stockade"

func (c *Client) do(ctx context.Context, method, path string, q url.Values, body io.Reader, h http.Header) answer {
	return c.send(ctx, method, path, q, body, 0, h)
}

// send is do with a body of a known size; 0 leaves it to net/http to find out.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, body io.Reader, size int64, h http.Header) answer {
	target := "http://" + host + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return answer{err: err}
	}
	if h != nil {
		req.Header = h
	}
	if size > 0 {
		req.ContentLength = size
	}
	if c.scope != (api.Scope{}) {
		scope, err := api.Encode(c.scope)
		if err != nil {
			return answer{err: err}
		}
		req.Header.Set("Stockade-Scope", string(scope))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: fmt.Errorf("%s %s: %w", method, path, unwrap(err))}
	}
	return answer{resp: resp}
}

// unwrap takes away the URL that net/http puts before an error: it is not one that
// anybody could visit.
func unwrap(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// query says a filter in the words of the URL.
func query(r api.Read) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"session_id": r.SessionID, "exec_id": r.ExecID,
		"state": r.State, "op": string(r.Op), "outcome": string(r.Outcome)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for k, v := range r.Labels {
		q.Add("label", k+"="+v)
	}
	if r.Limit > 0 {
		q.Set("limit", strconv.FormatInt(r.Limit, 10))
	}
	return q
}

// receipt reads a receipt, whatever its outcome.
func receipt(a answer) (*api.Receipt, error) {
	if a.err != nil {
		return nil, a.err
	}
	defer a.resp.Body.Close()
	body, err := io.ReadAll(a.resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the receipt: %w", err)
	}
	if e := refusal(a.resp, body); e != nil {
		return nil, e
	}
	r, err := decode[api.Receipt](body)
	if err != nil {
		return nil, err
	}
	if r.IntentID == "" {
		return nil, fmt.Errorf("answer %s is not a receipt", a.resp.Status)
	}
	return r, nil
}

// document reads any other body.
func document[T any](a answer) (*T, error) {
	if a.err != nil {
		return nil, a.err
	}
	defer a.resp.Body.Close()
	body, err := io.ReadAll(a.resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if e := refusal(a.resp, body); e != nil {
		return nil, e
	}
	if a.resp.StatusCode >= 400 { // the receipt of a denial, in place of what was asked for
		r, err := decode[api.Receipt](body)
		if err != nil {
			return nil, err
		}
		return nil, api.Errorf(r.ErrorCode, "%s", r.ErrorMessage)
	}
	return decode[T](body)
}

// stream reads events until the receipt.
func stream(a answer, fn func(api.Event) error) (*api.Receipt, error) {
	if a.err != nil {
		return nil, a.err
	}
	if !strings.HasPrefix(a.resp.Header.Get("Content-Type"), ndjson) {
		return receipt(a) // it ended before it began
	}
	defer a.resp.Body.Close()
	lines := bufio.NewReader(a.resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("the stream ended without a receipt: %w", err)
		}
		event, err := decode[api.Event](line)
		if err != nil {
			return nil, err
		}
		if err := fn(*event); err != nil {
			return nil, err
		}
		if event.Receipt != nil {
			return event.Receipt, nil
		}
	}
}

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

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

// named carries out an operation by its name, which takes every way to name an execution.
func (c *Client) named(ctx context.Context, op api.Op, v any) answer {
	return c.post(ctx, "/v1/ops/"+string(op), v)
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
	if c.key != "" && method != http.MethodGet {
		req.Header.Set("Idempotency-Key", c.key)
	}
	if c.async {
		req.Header.Set("Prefer", "respond-async")
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
		return answer{err: &lost{fmt.Errorf("%s %s: %w", method, path, unwrap(err))}}
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

// lost is the end of a connection, or that there was none.
type lost struct{ error }

func (l *lost) Unwrap() error { return l.error }

// Lost reports whether err is the end of a connection, or that there was none: a read can be asked again.
func Lost(err error) bool {
	_, ok := errors.AsType[*lost](err)
	return ok
}

// query says a filter in the words of the URL.
func query(r api.Read) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"session_id": r.SessionID, "exec_id": r.ExecID, "state": r.State,
		"op": string(r.Op), "outcome": string(r.Outcome), "after": r.After, "order": r.Order,
		"agent_id": r.AgentID, "world_id": r.WorldID, "chat_id": r.ChatID, "code": string(r.Code), "rule": r.Rule, "path": r.Path,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for k, v := range r.Labels {
		q.Add("label", k+"="+v)
	}
	if r.UID != nil {
		q.Set("uid", strconv.FormatInt(*r.UID, 10))
	}
	for name, n := range map[string]int64{"limit": r.Limit, "wait_ms": r.WaitMS, "max_bytes": r.MaxBytes, "since_ns": r.SinceNS, "until_ns": r.UntilNS} {
		if n > 0 {
			q.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if r.Active {
		q.Set("active", "true")
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
		return nil, &lost{fmt.Errorf("read the receipt: %w", err)}
	}
	if e := refusal(a.resp, body); e != nil {
		return nil, e
	}
	r, err := decode[api.Receipt](body)
	if err != nil {
		return nil, err
	}
	if r.IntentID == "" || a.resp.StatusCode == http.StatusAccepted {
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
		return nil, &lost{fmt.Errorf("read the answer: %w", err)}
	}
	if e := refusal(a.resp, body); e != nil {
		return nil, e
	}
	if a.resp.StatusCode >= 400 && a.resp.StatusCode != http.StatusGone { // the receipt of a denial, in place of what was asked for
		r, err := decode[api.Receipt](body)
		if err != nil {
			return nil, err
		}
		return nil, api.Errorf(r.ErrorCode, "%s", r.ErrorMessage)
	}
	return decode[T](body)
}

// decode reads an answer. Unlike the supervisor, which judges strangers, a client
// ignores members that a newer supervisor may have added.
func decode[T any](body []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	return v, nil
}

// refusal returns the error that a body is, or nil when it is something else.
func refusal(resp *http.Response, body []byte) error {
	if resp.StatusCode < 400 {
		return nil
	}
	var b struct {
		Error    *api.Error `json:"error"`
		IntentID string     `json:"intent_id"`
	}
	err := json.Unmarshal(body, &b)
	if err == nil && b.Error == nil && resp.StatusCode == http.StatusGone {
		return nil // a document that says what is not kept any more
	}
	if err != nil || (b.Error == nil && b.IntentID == "") {
		return fmt.Errorf("answer %s without a code", resp.Status)
	}
	if b.Error == nil {
		return nil
	}
	return b.Error
}

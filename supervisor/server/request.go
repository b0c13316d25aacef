package server

import (
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// facade is what requests that come this way say about it.
const facade = "http"

// request begins an operation: who asks, by the kernel's word and the declared scope.
func (c *call) request(op api.Op) (*api.Request, *api.Error) {
	req := &api.Request{Op: op.Canonical(), Principal: c.principal, Facade: facade}
	if req.Op != op {
		req.RequestedKind = op
	}
	header := c.r.Header["Stockade-Scope"]
	switch {
	case len(header) == 0:
		return req, nil
	case len(header) > 1:
		return nil, api.Errorf(api.CodeInvalidHeader, "Stockade-Scope occurs %d times", len(header))
	}
	scope, err := api.Decode[api.Scope]([]byte(header[0]))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidHeader, "Stockade-Scope: %s", err.Message)
	}
	req.Principal.Scope = scope
	return req, nil
}

// declare takes over the scope that a body declares.
func declare(req *api.Request, body api.Scope) *api.Error {
	switch req.Principal.Scope {
	case body, api.Scope{}:
		req.Principal.Scope = body
		return nil
	}
	if body == (api.Scope{}) {
		return nil
	}
	return api.Errorf(api.CodeInvalidHeader, "the Stockade-Scope header and the body declare different scopes")
}

// asked decodes a body that is no operation's parameters.
func asked[T any](c *call) (ask T, err *api.Error) {
	body, err := c.body()
	if err != nil {
		return ask, err
	}
	return api.Decode[T](body)
}

// fromBody makes a request of an operation whose parameters are the body.
func (c *call) fromBody(op api.Op) (*api.Request, *api.Error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	return c.fromParameters(op, body)
}

// fromPath makes a request of an operation on what the path names. The body adds the other
// parameters; where there are none it may be empty.
func (c *call) fromPath() (*api.Request, *api.Error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	req, err := c.fromParameters(c.row.op, body)
	if err != nil {
		return nil, err
	}
	name, field := "session_id", req.SessionID()
	if ref := req.Ref(); req.Verdict != nil {
		name, field = "approval_id", &req.Verdict.ApprovalID
	} else if ref == nil {
		// it is on a session
	} else if name, field = "exec_id", &ref.ExecID; ref.IntentID != "" {
		return nil, api.Errorf(api.CodeInvalidParams, "the path names the execution; leave intent_id out of the body")
	}
	id := c.r.PathValue(name)
	if *field != "" && *field != id {
		return nil, api.Errorf(api.CodeInvalidParams, "the path and the body name different objects; leave %s out of the body", name)
	}
	*field = id
	return req, nil
}

func (c *call) fromParameters(op api.Op, body []byte) (*api.Request, *api.Error) {
	req, err := c.request(op)
	if err != nil {
		return nil, err
	}
	scope, err := req.SetParameters(body)
	if err != nil {
		return nil, err
	}
	if err := declare(req, scope); err != nil {
		return nil, err
	}
	if req.Reads() {
		return req, c.unkeyed()
	}
	return req, c.keyed(req)
}

// keyed takes over the key that makes an operation with effect happen once.
func (c *call) keyed(req *api.Request) *api.Error {
	values, ok := c.r.Header["Idempotency-Key"]
	if !ok {
		return nil
	}
	const most = 128
	if len(values) != 1 || values[0] == "" || len(values[0]) > most ||
		strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }) {
		return api.Errorf(api.CodeInvalidHeader, "Idempotency-Key is one header of 1 to %d printable ASCII characters", most)
	}
	req.Key = values[0]
	return nil
}

// unkeyed refuses a key where it would mean nothing: its sender takes the request for another.
func (c *call) unkeyed() *api.Error {
	if _, ok := c.r.Header["Idempotency-Key"]; ok {
		return api.Errorf(api.CodeInvalidHeader, "Idempotency-Key is for operations with effect; this one can be repeated as it is")
	}
	return nil
}

// fromURL makes a request of a read whose parameters are in the path and the query.
func (c *call) fromURL() (*api.Request, *api.Error) {
	req, err := c.request(c.row.op)
	if err != nil {
		return nil, err
	}
	if err := c.unkeyed(); err != nil {
		return nil, err
	}
	q := c.query
	req.Read = &api.Read{
		SessionID: c.r.PathValue("session_id") + q.Get("session_id"),
		ExecID:    c.r.PathValue("exec_id") + q.Get("exec_id"),
		IntentID:  c.r.PathValue("intent_id"),
		BlobRef:   c.r.PathValue("blob_ref"),
		Approval:  c.r.PathValue("approval_id"),
		State:     q.Get("state"),
		After:     q.Get("after"),
		Op:        api.Op(q.Get("op")).Canonical(),
		Outcome:   api.Outcome(q.Get("outcome")),
		Order:     q.Get("order"),
		AgentID:   q.Get("agent_id"),
		WorldID:   q.Get("world_id"),
		ChatID:    q.Get("chat_id"),
		Code:      api.Code(q.Get("code")),
		Rule:      q.Get("rule"),
		Path:      q.Get("path"),
	}
	if q.Get("uid") != "" {
		req.Read.UID = new(int64)
		if *req.Read.UID, err = c.number("uid"); err != nil {
			return nil, err
		}
	}
	for name, field := range map[string]*int64{
		"limit": &req.Read.Limit, "wait_ms": &req.Read.WaitMS, "max_bytes": &req.Read.MaxBytes,
		"since_ns": &req.Read.SinceNS, "until_ns": &req.Read.UntilNS,
	} {
		if *field, err = c.number(name); err != nil {
			return nil, err
		}
	}
	for name, field := range map[string]*bool{"active": &req.Read.Active, "input": &req.Read.Input} {
		if *field, err = c.flag(name); err != nil {
			return nil, err
		}
	}
	for _, label := range q["label"] {
		name, value, ok := strings.Cut(label, "=")
		if _, twice := req.Read.Labels[name]; !ok || twice {
			return nil, api.Errorf(api.CodeInvalidHeader, "label is NAME=VALUE, each name once")
		}
		if req.Read.Labels == nil {
			req.Read.Labels = map[string]string{}
		}
		req.Read.Labels[name] = value
	}
	return req, nil
}

// resume takes over where a reader of a stream has come to. The header wins over the URL: a
// reader that comes back sends the URL that it began with, and in the header how far it has come
// since.
func (c *call) resume(req *api.Request) *api.Error {
	values, ok := c.r.Header["Last-Event-Id"]
	switch {
	case !ok:
		return nil
	case len(values) > 1:
		return api.Errorf(api.CodeInvalidHeader, "Last-Event-ID occurs %d times", len(values))
	case values[0] == "": // a reader that was given no id
		return nil
	case !utf8.ValidString(values[0]):
		return api.Errorf(api.CodeInvalidCursor, "Last-Event-ID is not UTF-8")
	}
	req.Read.After = values[0]
	return nil
}

// parseQuery reads the parameters of a URL as strictly as a body: only those that the
// route has, and each once but label.
func parseQuery(u *url.URL, names []string) (url.Values, *api.Error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || !utf8.ValidString(u.Path) {
		return nil, api.Errorf(api.CodeInvalidHeader, "the URL is malformed")
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			return nil, api.Errorf(api.CodeInvalidHeader, "the route has no parameter %.80q", name)
		}
		if len(values) > 1 && name != "label" {
			return nil, api.Errorf(api.CodeInvalidHeader, "the parameter %s occurs twice", name)
		}
		if !utf8.ValidString(strings.Join(values, "")) {
			return nil, api.Errorf(api.CodeInvalidHeader, "the parameter %s is not UTF-8", name)
		}
	}
	return q, nil
}

// bytes reads a parameter in base64, as a body would have it.
func (c *call) bytes(name string) ([]byte, *api.Error) {
	b, err := base64.StdEncoding.Strict().DecodeString(c.query.Get(name))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidHeader, "%s is not base64", name)
	}
	return b, nil
}

func (c *call) number(name string) (int64, *api.Error) {
	text := c.query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, api.Errorf(api.CodeInvalidHeader, "%s is not a number from 0 on", name)
	}
	return n, nil
}

// body reads the whole JSON body, within its bounds of size and time (T157).
func (c *call) body() ([]byte, *api.Error) {
	if err := c.contentType("application/json"); err != nil {
		return nil, err
	}
	size := c.r.ContentLength
	if size < 0 || size > api.MaxBody {
		size = api.MaxBody
	}
	if !c.weigh(load{bytes: size}) {
		return nil, errTooMuch
	}
	c.control.SetReadDeadline(time.Now().Add(c.server.options.BodyTimeout))
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, api.MaxBody))
	if err != nil {
		// The deadline stays, or net/http would wait for the rest of the body.
		return nil, bodyError(err)
	}
	c.unweigh(load{bytes: size - int64(len(b))}) // it did not say its size
	c.control.SetReadDeadline(time.Time{})       // the connection may be quiet while the answer is made
	return b, nil
}

// contentType refuses a body that says it is something else. One that says nothing is
// taken for what the route expects.
func (c *call) contentType(want string) *api.Error {
	values := c.r.Header["Content-Type"]
	if len(values) == 0 {
		return nil
	}
	media, params, err := mime.ParseMediaType(values[0])
	charset, hasCharset := params["charset"]
	if err != nil || len(values) > 1 || media != want || hasCharset && !strings.EqualFold(charset, "utf-8") {
		return api.Errorf(api.CodeUnsupportedMediaType, "the body of this route is %s", want)
	}
	return nil
}

func bodyError(err error) *api.Error {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return api.Errorf(api.CodeTooLarge, "the body is larger than %d bytes", e.Limit)
	}
	return api.Errorf(api.CodeDecodeError, "the body did not arrive")
}

// patient reads long content, each part of which may take the time of a body.
type patient struct {
	c *call
	r io.Reader
}

func (p patient) Read(b []byte) (int, error) {
	p.c.control.SetReadDeadline(time.Now().Add(p.c.server.options.BodyTimeout))
	n, err := p.r.Read(b)
	switch err {
	case nil:
	case io.EOF:
		p.c.control.SetReadDeadline(time.Time{})
	default:
		err = api.Errorf(api.CodeBlobMismatch, "the content did not arrive whole")
	}
	return n, err
}

// format returns the stream that the caller accepts, if it does.
func (c *call) format() (format, bool) {
	for _, accept := range c.r.Header["Accept"] {
		for _, one := range strings.Split(accept, ",") {
			media, _, err := mime.ParseMediaType(one)
			if err != nil {
				continue
			}
			if i := slices.IndexFunc(formats, func(f format) bool { return f.media == media }); i >= 0 {
				return formats[i], true
			}
		}
	}
	return format{}, false
}

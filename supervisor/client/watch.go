package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// pauses are what lies between two attempts to take up again what was followed: about ten
// seconds together, in which a supervisor restarts.
var pauses = []time.Duration{
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond,
	800 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second, 2 * time.Second, 3 * time.Second,
}

// ExecStream runs a command and hands every event to fn as it comes, the receipt
// included. An error of fn ends the stream, not the command. Once the command was accepted, a
// lost connection is taken up again as by Watch.
func (c *Client) ExecStream(ctx context.Context, exec api.Exec, fn func(api.Event) error) (*api.Receipt, error) {
	s := stream{fn: fn}
	r, err := s.receipt(c.call(ctx, http.MethodPost, "/v1/exec", exec, ndjson))
	if s.exec == "" || !passing(ctx, err) {
		return r, err
	}
	c.tell(err)
	return c.follow(ctx, true, execution(s.exec)+"/output", &s)
}

// Watch hands every event of an execution that follows the cursor to fn, the receipt included,
// and returns the receipt when it has ended. "" is the beginning. A lost connection is taken up
// again after the last event that fn has seen. An error of fn ends the stream.
func (c *Client) Watch(ctx context.Context, execID, after string, fn func(api.Event) error) (*api.Receipt, error) {
	return c.follow(ctx, false, execution(execID)+"/output", &stream{fn: fn, cursor: after})
}

// FollowFrames hands every frame of an intent after the one with the number after to fn, and returns
// the receipt once it is settled. Lost connections are taken up again.
func (c *Client) FollowFrames(ctx context.Context, intentID string, after int64, fn func(api.Frame) error) (*api.Receipt, error) {
	return c.follow(ctx, false, intent(intentID)+"/frames", &stream{cursor: position(after), fn: func(e api.Event) error {
		if e.Frame == nil {
			return nil
		}
		return fn(*e.Frame)
	}})
}

// FollowEvents hands every event after the one with the number after of a session's log, or of the
// principal's when sessionID is empty, to fn. It ends with ctx, with an error of fn, or when the
// supervisor says that nothing will follow. Lost connections are taken up again.
func (c *Client) FollowEvents(ctx context.Context, sessionID string, after int64, fn func(api.Notice) error) error {
	return c.resume(ctx, false, func() (bool, error) {
		progress := false
		err := lines(c.stream(ctx, log(sessionID), position(after)), func(line []byte) (bool, error) {
			n, err := decode[api.Notice](line)
			if err != nil || n.Seq == 0 { // a sign of life
				return false, err
			}
			if err := fn(*n); err != nil {
				return false, err
			}
			after, progress = n.Seq, true
			return false, nil
		})
		if err == errEnded {
			err = nil
		}
		return progress, err
	})
}

// WaitProcess returns the record of an execution when it has ended, or after wait, if that is not
// zero, whatever its state is. Lost connections are taken up again.
func (c *Client) WaitProcess(ctx context.Context, execID string, wait time.Duration) (p *api.Process, err error) {
	const turn = 30 * time.Second
	until := time.Now().Add(wait)
	for begun := false; ; begun = true {
		ask := turn
		if wait > 0 {
			ask = min(turn, max(time.Until(until), time.Millisecond)) // 0 would leave it to the supervisor
		}
		err = c.resume(ctx, begun, func() (bool, error) {
			q := url.Values{"wait_ms": {strconv.FormatInt(milliseconds(ask), 10)}}
			p, err = document[api.Process](c.get(ctx, execution(execID)+"/wait", q))
			return err == nil, err
		})
		if err != nil || p.State.Final() || wait > 0 && !time.Now().Before(until) {
			return p, err
		}
	}
}

// follow reads a stream until its receipt, however often it has to be taken up again.
func (c *Client) follow(ctx context.Context, begun bool, path string, s *stream) (r *api.Receipt, err error) {
	err = c.resume(ctx, begun, func() (bool, error) {
		before := s.seen
		var err error
		r, err = s.receipt(c.stream(ctx, path, s.cursor))
		return s.seen > before, err
	})
	return r, err
}

// resume tries until the outcome is one that another attempt would not change. What brings
// progress begins to be patient anew. Where nothing has begun, a supervisor that is not there is
// an outcome, too.
func (c *Client) resume(ctx context.Context, begun bool, try func() (progress bool, err error)) error {
	for attempt := 0; ; attempt++ {
		progress, err := try()
		if progress {
			attempt = 0
		}
		if !passing(ctx, err) || attempt >= len(c.pause) || !begun && unreachable(err) {
			return err
		}
		begun = true
		c.tell(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.pause[attempt]):
		}
	}
}

// tell says to who wants to know that something broke off and is taken up again.
func (c *Client) tell(err error) {
	if c.lost != nil {
		c.lost(err)
	}
}

// passing reports whether err may be over in a moment: a connection was lost, or the supervisor
// is about to be another one.
func passing(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code == api.CodeShuttingDown || e.Code == api.CodeTooManyConnections
	}
	_, ok := errors.AsType[*lost](err)
	return ok
}

// unreachable reports whether there was not even a connection.
func unreachable(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// stream asks for a stream from a position on.
func (c *Client) stream(ctx context.Context, path, after string) answer {
	q := url.Values{}
	if after != "" {
		q.Set("after", after)
	}
	return c.do(ctx, http.MethodGet, path, q, nil, http.Header{"Accept": {ndjson}})
}

// position is the cursor behind something with a number.
func position(seq int64) string {
	if seq == 0 {
		return ""
	}
	return strconv.FormatInt(seq, 10)
}

// stream is a stream of events, and how far it has come.
type stream struct {
	fn     func(api.Event) error
	exec   string // that the events are of
	cursor string // of the last event that fn has seen
	seen   int
}

// receipt reads events until the receipt.
func (s *stream) receipt(a answer) (r *api.Receipt, err error) {
	if a.err == nil && !strings.HasPrefix(a.resp.Header.Get("Content-Type"), ndjson) {
		return receipt(a) // it ended before it began
	}
	err = lines(a, func(line []byte) (bool, error) {
		e, err := decode[api.Event](line)
		if err != nil {
			return false, err
		}
		if err := s.fn(*e); err != nil {
			return false, err
		}
		if e.ExecID != "" {
			s.exec = e.ExecID
		}
		if e.Cursor != "" {
			s.cursor = e.Cursor
			s.seen++
		}
		r = e.Receipt
		return r != nil, nil
	})
	if err == errEnded {
		err = &lost{fmt.Errorf("the stream ended without a receipt: %w", io.ErrUnexpectedEOF)}
	}
	return r, err
}

var errEnded = errors.New("the stream has ended")

// lines hands lines to fn until it has had enough, and returns errEnded when the supervisor ended
// the stream before that.
func lines(a answer, fn func(line []byte) (enough bool, err error)) error {
	if a.err != nil {
		return a.err
	}
	if !strings.HasPrefix(a.resp.Header.Get("Content-Type"), ndjson) {
		_, err := document[struct{}](a)
		if err == nil {
			err = fmt.Errorf("answer %s is not a stream", a.resp.Status)
		}
		return err
	}
	defer a.resp.Body.Close()
	r := bufio.NewReader(a.resp.Body)
	for {
		line, err := r.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return errEnded
		case err == io.EOF:
			return &lost{fmt.Errorf("the stream ended in a line: %w", io.ErrUnexpectedEOF)}
		case err != nil:
			return &lost{fmt.Errorf("the stream broke off: %w", err)}
		}
		if enough, err := fn(line); enough || err != nil {
			return err
		}
	}
}

package supervisor

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// inputLimit is how long an input may take, its wait for those before it included. A command
// that does not read must not keep its caller, and whoever closes the supervisor, for ever.
const inputLimit = 30 * time.Second

// newsOfEnd is how long it may take to hear of the end of a command that is seen to read no more.
const newsOfEnd = 100 * time.Millisecond

// input is the stdin of an execution that was started with it open. Requests write to it one at
// a time, in the order of their admission (R146, R147).
type input struct {
	opened chan struct{} // closed when there is a pipe
	ended  chan struct{} // closed when nothing is read any more

	mu    sync.Mutex
	pipe  sandbox.Inlet // nil before there is one, and where stdin has been closed before
	over  bool          // ended is closed
	turns []*turn       // of those who write or wait to, first come first
	bytes int64         // that they have said they bring

	content io.ReadCloser // what stdin begins with; nil when it begins with the first input
	first   *turn         // of content
	feeding sync.WaitGroup

	// Whose turn it is has these.
	seen   map[string]bool // input ids of which a byte is in the pipe: the last,
	ids    []string        // in their order, as many as the next supervisor would know
	total  int64           // bytes that are
	closed bool
}

// turn is the right to write, once ready is closed.
type turn struct {
	ready chan struct{}
	bytes int64
}

func newInput() *input {
	return &input{opened: make(chan struct{}), ended: make(chan struct{}), seen: map[string]bool{}}
}

// take joins the queue.
func (in *input) take() *turn {
	t, _ := in.join(0, math.MaxInt, 0)
	return t
}

// join is take where no more than so many may be in the queue, and bring no more than so many bytes; one always may.
func (in *input) join(n int64, requests int, bytes int64) (*turn, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.turns) >= requests || len(in.turns) > 0 && bytes > 0 && in.bytes+n > bytes {
		return nil, false
	}
	t := &turn{make(chan struct{}), n}
	in.turns = append(in.turns, t)
	in.bytes += n
	if len(in.turns) == 1 {
		close(t.ready)
	}
	return t, true
}

// queued is what is in the queue.
func (in *input) queued() (requests int, bytes int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.turns), in.bytes
}

// give leaves the queue.
func (in *input) give(t *turn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := slices.Index(in.turns, t)
	if at < 0 {
		return // it has been given back
	}
	in.turns = slices.Delete(in.turns, at, at+1)
	in.bytes -= t.bytes
	if at == 0 && len(in.turns) > 0 {
		close(in.turns[0].ready)
	}
}

// begins says what stdin begins with: it has the first turn.
func (in *input) begins(content io.ReadCloser) {
	if content != nil {
		in.content, in.first = content, in.take()
	}
}

// open makes the pipe known, with what was done to it before by another supervisor. Without a
// pipe it has been closed.
func (in *input) open(pipe sandbox.Inlet, so ledger.Progress) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return
	}
	in.pipe, in.closed, in.total = pipe, pipe == nil, so.InputBytes
	for _, id := range so.InputIDs {
		in.note(id)
	}
	close(in.opened)
}

// note knows an input id from now on.
func (in *input) note(id string) {
	in.seen[id] = true
	if in.ids = append(in.ids, id); len(in.ids) > ledger.KeptInputs {
		delete(in.seen, in.ids[0])
		in.ids = in.ids[1:]
	}
}

// feed writes what stdin begins with.
func (in *input) feed(x *execution, s *Supervisor) {
	if in.content == nil || in.pipe == nil {
		return
	}
	in.feeding.Go(func() {
		defer in.give(in.first)
		n, err := io.Copy(in.pipe, in.content)
		in.total += n
		if errors.Is(err, os.ErrClosed) {
			return // it was not all, and must not look so
		}
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			s.log.Warn("stdin", "exec_id", x.id, "error", err)
		}
		x.tell(s)
		x.frame(s, api.FrameInput, api.FramePayload{InputBytes: in.total})
	})
}

// end closes what is left of it, and with it a write that waits.
func (in *input) end() {
	in.mu.Lock()
	first := !in.over
	if first {
		in.over = true
		close(in.ended)
		if in.pipe != nil {
			in.pipe.Close()
		}
	}
	in.mu.Unlock()
	in.feeding.Wait()
	if first && in.content != nil {
		in.content.Close()
	}
}

// await waits until t may write to the pipe.
func (in *input) await(ctx context.Context, t *turn) *api.Error {
	for _, ready := range []<-chan struct{}{in.opened, t.ready} {
		select {
		case <-ready:
		case <-in.ended:
			return errEnded
		case <-ctx.Done():
			return errFull
		}
	}
	if isClosed(in.ended) {
		return errEnded
	}
	return nil
}

// write writes all of b, or as much as the command takes before ctx ends (R148).
func (in *input) write(ctx context.Context, b []byte) (int64, *api.Error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		in.pipe.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := in.pipe.Write(b)
	if !stop() {
		<-interrupted
		in.pipe.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return int64(n), nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return int64(n), errFull
	}
	// The pipe of a command that has died breaks before we hear of it.
	heard := time.NewTimer(newsOfEnd)
	defer heard.Stop()
	select {
	case <-in.ended:
		return int64(n), errEnded
	case <-heard.C:
	}
	return int64(n), api.Errorf(api.CodeStdinClosed, "the command reads no more: %v", err)
}

var (
	errFull  = api.Errorf(api.CodeStdinFull, "the command did not read all of it within %v; the rest is to be sent again, as another input", inputLimit)
	errEnded = api.Errorf(api.CodeExecEnded, "the execution has ended")
)

// host.process.input

// planInput takes the place in the queue: the order of inputs is that of their admission.
func planInput(s *Supervisor, c *call) *refusal {
	if x := c.control.target; x != nil && x.input != nil {
		c.control.turn = x.input.take()
	}
	return nil
}

func abandonInput(_ *Supervisor, c *call) {
	if c.control.turn != nil {
		c.control.target.input.give(c.control.turn)
	}
}

// actInput writes, and says so with a frame of the execution. An input id is used up when a byte
// of its input may be in the pipe: the same again is a duplicate, whatever it says.
func actInput(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, x := c.req.Input, c.control.target
	defer abandonInput(s, c)
	if s.hasEnded(c) {
		return s.tooLate(c)
	}
	in := x.input
	if in == nil {
		return s.faultedControl(c, errStdinClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, inputLimit)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if err := in.await(ctx, c.control.turn); err != nil {
		return s.faultedInput(c, 0, err)
	}
	switch {
	case ask.InputID != "" && in.seen[ask.InputID]:
		return s.controlled(c, api.ControlDuplicate), nil
	case in.closed:
		return s.faultedControl(c, errStdinClosed)
	}
	var n int64
	var err *api.Error
	if b := inputBytes(ask.Data); len(b) > 0 {
		typed := x.noteTyping(s, b, ask.Data.SecretText != nil)
		n, err = in.write(ctx, b)
		typed(n)
	}
	failpoint.Hit("supervisor.input.written")
	if err == nil && ask.Close {
		in.close(s, x)
	}
	in.total += n
	if n > 0 || err == nil {
		if ask.InputID != "" {
			in.note(ask.InputID)
		}
		x.tell(s)
		x.frame(s, api.FrameInput, api.FramePayload{InputID: ask.InputID, InputBytes: in.total, InputClosed: in.closed})
		failpoint.Hit("supervisor.input.framed")
	}
	if err != nil {
		return s.faultedInput(c, n, err)
	}
	p := s.controlled(c, api.ControlAccepted)
	p.Control.Bytes = n
	return p, nil
}

var errStdinClosed = api.Errorf(api.CodeStdinClosed, "the execution has no stdin that is open")

func (s *Supervisor) faultedInput(c *call, written int64, err *api.Error) (api.Payload, *api.Error) {
	if err == errEnded {
		p, err := s.tooLate(c)
		p.Control.Bytes = written
		return p, err
	}
	p, err := s.faultedControl(c, err)
	p.Control.Bytes = written
	return p, err
}

// close ends stdin: our end of the pipe, and the one that the runner holds for who comes after us.
func (in *input) close(s *Supervisor, x *execution) {
	in.closed = true
	in.pipe.Close()
	x.closeStdin(s)
}

// closeStdin has the runner give up its end of stdin: the command then reads end of file.
func (x *execution) closeStdin(s *Supervisor) {
	if err := s.launcher.CloseStdin(s.ctx, x.session.id, x.id); err != nil && !gone(err) {
		s.log.Warn("close stdin", "exec_id", x.id, "error", err)
	}
}

func inputBytes(data *api.Stdin) []byte {
	switch {
	case data == nil:
	case data.InlineText != nil:
		return []byte(data.InlineText.Text)
	case data.InlineBytes != nil:
		return data.InlineBytes.Bytes
	case data.SecretText != nil:
		return []byte(data.SecretText.Text)
	}
	return nil
}

package supervisor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// followShell keeps the state of a shell up with its output, and records how it changes. The function that it returns ends
// that, having seen all that there is.
func (x *execution) followShell(s *Supervisor) (unfollow func()) {
	sh := x.shell
	if sh == nil {
		return func() {}
	}
	x.tell(s)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last, quiet := false, int64(0); !last; {
			output := x.log.Changed()
			select {
			case <-over:
				last = true
			default:
			}
			was := sh.state()
			if err := sh.advance(x.log, last, s.now()); err != nil {
				s.log.Warn("output of a shell cannot be read", "exec_id", x.id, "error", err)
			}
			after, at := sh.guessIn()
			if at > 0 && at == quiet {
				sh.guess(s.now())
				after, at = 0, 0
			}
			if now := sh.state(); now != was && now == api.ShellIdle {
				x.session.touch(s.now()) // from here on it waits
			}
			x.tellShell(s)
			if last {
				return
			}
			quiet = untilOutput(output, sh.kick, over, after, at)
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// untilOutput waits for news of a shell. It returns at if there was none for so long, and otherwise 0.
func untilOutput(output, kick, over <-chan struct{}, after time.Duration, at int64) (quiet int64) {
	var calm <-chan time.Time
	if after > 0 {
		t := time.NewTimer(after)
		defer t.Stop()
		calm = t.C
	}
	select {
	case <-output:
	case <-kick:
	case <-over:
	case <-calm:
		return at
	}
	return 0
}

// tellShell records the changes of state that no frame tells of yet.
func (x *execution) tellShell(s *Supervisor) {
	sh := x.shell
	sh.mu.Lock()
	news, skipped := sh.news, sh.skipped
	sh.news, sh.skipped = nil, 0
	sh.mu.Unlock()
	for i, n := range news {
		p := x.totals()
		p.Status, p.CommandID, p.ExitCode, p.Commands, p.Offset = n.status, n.command, n.exitCode, n.count, n.at
		if n.timed {
			s.metrics.Command(n.took)
		}
		if i == len(news)-1 {
			p.Skipped = skipped
		}
		x.frame(s, api.FrameShell, p)
		s.log.Debug("shell", "session_id", x.session.id, "exec_id", x.id, "intent_id", x.call.intent, "command_id", n.command, "status", n.status)
	}
}

// recollection is what the frames of a shell say, of those that are kept.
func (s *Supervisor) recollection(intent string) (*recollection, error) {
	var all []api.Frame
	for {
		var after int64
		if len(all) > 0 {
			after = all[len(all)-1].Seq
		}
		frames, _, err := s.framesAfter(intent, after, after, framesAtOnce)
		all = append(all, frames...)
		if err != nil || len(frames) == 0 {
			return recollect(all), err
		}
	}
}

// source is where the output of the execution is read.
func (x *execution) source() outputSource {
	if x.shell != nil {
		return unmarked{logTape(x.log, x.shell.nonce, false)}
	}
	return logSource{x.log}
}

// unmarked is the output of a shell for readers who are not told of its marks.
type unmarked struct{ *tape }

func (u unmarked) next(at *cursor, most int64) (api.Chunk, error) {
	for {
		p, err := u.read(max(at.stdout, u.tape.first), most)
		if errors.Is(err, spool.ErrGone) { // overwritten meanwhile: there is news, and the next look begins later
			return api.Chunk{}, nil
		}
		if err != nil || p.next == p.offset {
			return api.Chunk{}, err
		}
		at.stdout = p.next
		if len(p.bytes) > 0 {
			return api.Chunk{Seq: 1, Stream: "stdout", Offset: p.offset, Bytes: p.bytes, AtNS: p.atNS}, nil
		}
	}
}

func (u unmarked) first(at cursor) cursor {
	at.stdout = max(at.stdout, u.tape.first)
	return at
}

// keptTape is the output of a shell that has ended, from wherever it is kept.
func (s *Supervisor) keptTape(r *api.Receipt) (*tape, func(), error) {
	nonce := prompt.Nonce(s.salt, r.ExecID)
	if r.Payload.Exec == nil {
		return &tape{ReaderAt: inline{nil}, whole: true, nonce: nonce, arrived: atOnce}, func() {}, nil
	}
	if !s.admission.enter() { // see keptOutput
		return nil, nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	log, err := s.spool.Recover(r.ExecID, math.MaxInt64)
	s.admission.leave()
	if err == nil {
		if log.Kept(spool.Stdout) == r.Payload.Exec.StdoutBytes && log.Kept(spool.Stdout) > 0 {
			log.Seal()
			return logTape(log, nonce, true), log.Close, nil
		}
		log.Close()
	}
	out := r.Payload.Exec.Stdout
	if out == nil { // what there was is not kept any more
		end := r.Payload.Exec.StdoutBytes
		return &tape{ReaderAt: inline{nil}, first: end, end: end, whole: true, nonce: nonce, arrived: atOnce}, func() {}, nil
	}
	content, err := s.recorded(out)
	if err != nil {
		return nil, nil, missing(err)
	}
	return &tape{
		ReaderAt: later{content, out.Offset}, first: out.Offset, end: out.Offset + out.Kept(), whole: true, nonce: nonce, arrived: atOnce,
	}, func() { content.Close() }, nil
}

func atOnce(int64) (until, atNS int64) { return math.MaxInt64, 0 }

// later is content that begins at an offset.
type later struct {
	io.ReaderAt
	offset int64
}

func (l later) ReadAt(p []byte, off int64) (int, error) { return l.ReaderAt.ReadAt(p, off-l.offset) }

// host.shell.open

// promptWithin is how long an open waits for the first prompt where its caller does not say.
const promptWithin = 2 * time.Second

// OpenShell is Do for a host.shell.open: the answer is the shell when its prompt is there, or after WaitMS; or the
// receipt of one that was refused or has ended by then.
func (s *Supervisor) OpenShell(ctx context.Context, req *api.Request) (*api.Shell, *api.Receipt, error) {
	c, err := s.begin(ctx, req, brought{})
	if err != nil {
		return nil, nil, err
	}
	if err := c.admission(ctx); err != nil {
		return nil, nil, err
	}
	within := promptWithin
	if req.Exec.WaitMS > 0 {
		within = time.Duration(req.Exec.WaitMS) * time.Millisecond
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		if c.execution == nil { // refused, or settled under its key
			r, err := c.wait(ctx)
			return nil, r, err
		}
		x := c.execution
		state := x.shell.changed.next()
		waits := c.leave != nil && !isClosed(c.leave.over)
		if x.shell.state() == api.ShellIdle || waits {
			return s.openedShell(c), nil, nil
		}
		select {
		case <-state:
		case <-c.done:
			return nil, c.receipt, c.err
		case <-limit.C:
			return s.openedShell(c), nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (s *Supervisor) openedShell(c *call) *api.Shell {
	p, _ := s.chronicle.process(c.req.Principal, api.ProcessRef{ExecID: c.execution.id})
	return s.shellNow(c.req.Principal, p)
}

// host.shell.get

// Shell returns a shell of the caller's.
func (s *Supervisor) Shell(ctx context.Context, req *api.Request) (*api.Shell, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if !p.Shell {
		return nil, nil, errNoShell
	}
	if x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: p.ExecID}); x != nil && x.follow() {
		err := x.shell.advance(x.log, false, s.now())
		x.leave()
		if err != nil {
			return nil, nil, api.Errorf(api.CodeBlobFailed, "output: %v", err)
		}
	}
	return s.shellNow(req.Principal, p), nil, nil
}

// shellNow is a shell by its record and, while it lives, what is known of it beyond that.
func (s *Supervisor) shellNow(principal api.Principal, p api.Process) *api.Shell {
	d := &api.Shell{Process: *s.current(p), Queue: api.ShellQueue{State: "empty"}}
	d.Status, d.Cols, d.Rows = s.shellStatus(principal, p.ExecID)
	d.StatusNumber, d.Alive = d.Status.Number(), d.Status.Alive()
	d.Token, d.First = token(p.ExecID, d.StdoutBytes), token(p.ExecID, 0)
	x := s.registry.execution(principal, api.ProcessRef{ExecID: p.ExecID})
	if x == nil || x.shell == nil || !x.follow() {
		return d
	}
	defer x.leave()
	sh := x.shell
	d.Prompt = sh.prompt()
	d.First = token(x.id, x.log.First(spool.Stdout))
	if d.Queue.Requests, d.Queue.Bytes = x.input.queued(); d.Queue.Requests > 0 {
		d.Queue.State = "busy"
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d.Status, d.Marked, d.Command = sh.status, sh.marked, sh.current
	d.StatusNumber, d.Alive = d.Status.Number(), d.Status.Alive()
	d.Commands = append(d.Commands, sh.ended...)
	d.Writer, d.Observers = sh.audience()
	return d
}

// howEnded is how a shell ended, in a sentence.
func howEnded(p api.Process) string {
	how := "ended"
	switch {
	case p.ErrorCode != "":
		how = string(p.ErrorCode)
	case p.Signal != "":
		how = "killed by SIG" + p.Signal
	case p.ExitCode != nil:
		how = fmt.Sprintf("exited with %d", *p.ExitCode)
	}
	return fmt.Sprintf("%s after %v, %d bytes of output", how, time.Duration(p.DurationNS).Round(time.Millisecond), p.StdoutBytes)
}

// host.shell.output

// ShellOutput returns output of a shell after the token Read.After, with what its marks say of it, at most MaxBytes. Where there is none
// yet it waits, for WaitMS, for some or for another state (R161).
func (s *Supervisor) ShellOutput(ctx context.Context, req *api.Request) (*api.ShellOutput, *api.Receipt, error) {
	var page *api.ShellOutput
	denial, err := s.readShell(ctx, req, func(o *api.ShellOutput) bool {
		page = o
		return false
	})
	return page, denial, err
}

// FollowShell hands out the same as it comes, until the shell has ended.
func (s *Supervisor) FollowShell(ctx context.Context, req *api.Request, emit func(*api.ShellOutput)) (*api.Receipt, error) {
	follow := *req.Read
	follow.WaitMS = followTurn.Milliseconds()
	again := *req
	again.Read = &follow
	return s.readShell(ctx, &again, func(o *api.ShellOutput) bool {
		if len(o.Chunks) > 0 || o.End || o.Truncated {
			emit(o)
		}
		return !o.End
	})
}

// followTurn is how long one look may take of who follows.
const followTurn = 30 * time.Second

// readShell hands pages to emit as long as that wants more.
func (s *Supervisor) readShell(ctx context.Context, req *api.Request, emit func(*api.ShellOutput) bool) (denial *api.Receipt, err error) {
	p, denial, err := s.permitProcess(req)
	switch {
	case denial != nil || err != nil:
		return denial, err
	case !p.Shell:
		return nil, errNoShell
	}
	var at int64
	if req.Read.After == tailToken(p.ExecID) {
		if at, err = s.tail(ctx, req, p.ExecID); err != nil {
			return nil, err
		}
	} else if req.Read.After != "" {
		var bad *api.Error
		if at, bad = parseToken(req.Read.After, p.ExecID); bad != nil {
			return nil, bad
		}
	}
	most := min(cmp.Or(req.Read.MaxBytes, pendingBytes), mostPending)
	for {
		page, err := s.shellPage(ctx, req, p.ExecID, &at, most)
		if err != nil || !emit(page) {
			return nil, err
		}
	}
}

// tailBytes is what somebody gets to see who comes to a shell that goes on.
const tailBytes = 32 << 10

// tail is where the last lines of a shell's output begin.
func (s *Supervisor) tail(ctx context.Context, req *api.Request, exec string) (int64, error) {
	x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: exec})
	if x == nil || x.shell == nil || !x.follow() {
		return 0, nil // it has ended: all that there is
	}
	defer x.leave()
	t := logTape(x.log, x.shell.nonce, false)
	at := t.end - tailBytes
	if at <= t.first {
		return t.first, nil
	}
	b := make([]byte, tailBytes)
	n, err := t.ReadAt(b, at)
	if err != nil && err != io.EOF {
		return t.first, nil // it was overwritten meanwhile
	}
	return at + int64(bytes.IndexByte(b[:n], '\n')+1), nil
}

// shellPage gives what follows an offset, and moves it.
func (s *Supervisor) shellPage(ctx context.Context, req *api.Request, exec string, at *int64, most int64) (*api.ShellOutput, error) {
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	var was api.ShellState
	for {
		x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: exec})
		if x == nil || !x.follow() {
			if x != nil { // between its log and its receipt
				if _, err := x.call.wait(ctx); err != nil {
					return nil, err
				}
			}
			return s.endedPage(req, exec, at, most)
		}
		output, state := x.log.Changed(), x.shell.changed.next()
		page, err := s.livePage(x, at, most)
		x.leave()
		switch {
		case errors.Is(err, spool.ErrGone): // overwritten while it was read
			continue
		case err != nil:
			return nil, outputError(err)
		}
		changed := was != "" && was != page.Status
		was = page.Status
		if len(page.Chunks) > 0 || page.Truncated || changed {
			return page, nil
		}
		select {
		case <-output:
		case <-state:
		case <-x.call.done:
			if x.call.err != nil { // it goes on, but not with this supervisor
				return nil, x.call.err
			}
		case <-deadline.C:
			return page, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Supervisor) livePage(x *execution, at *int64, most int64) (*api.ShellOutput, error) {
	t := logTape(x.log, x.shell.nonce, false)
	if *at > t.end {
		return nil, api.Errorf(api.CodeInvalidToken, "the token is beyond what this shell has written")
	}
	page := &api.ShellOutput{ExecID: x.id, SessionID: x.session.id}
	// The state is that of at least so much.
	if err := x.shell.advance(x.log, false, s.now()); err != nil {
		return nil, err
	}
	var err error
	noted := s.endings(x.call.intent, x.id, *at)
	commands := func(off int64) (string, bool, error) { // the last as the shell knows them, and those before as its frames have them
		if command, known := x.shell.endedAt(off); known {
			return command, true, nil
		}
		return noted.at(off)
	}
	if page.Chunks, page.Truncated, err = shellChunks(t, x.id, at, most, commands); err != nil {
		return nil, err
	}
	s.bookmarks.put(bookmark{x.id, *at, noted.passed})
	page.Token = token(x.id, *at)
	page.Status = x.shell.state()
	page.Number = page.Status.Number()
	if p := x.shell.prompt(); p != nil && p.Source == "pattern" && *at == t.end && len(page.Chunks) > 0 {
		page.Chunks[len(page.Chunks)-1].Prompt = p
	}
	return page, nil
}

func (s *Supervisor) endedPage(req *api.Request, exec string, at *int64, most int64) (*api.ShellOutput, error) {
	byID := *req.Read
	byID.ExecID, byID.IntentID = exec, ""
	r, err := s.receiptOf(&api.Request{Principal: req.Principal, Read: &byID})
	if err != nil {
		return nil, err
	}
	t, done, err := s.keptTape(r)
	if err != nil {
		return nil, err
	}
	defer done()
	if *at > t.end {
		return nil, api.Errorf(api.CodeInvalidToken, "the token is beyond what this shell has written")
	}
	page := &api.ShellOutput{ExecID: r.ExecID, SessionID: r.SessionID}
	noted := s.endings(r.IntentID, exec, *at)
	if page.Chunks, page.Truncated, err = shellChunks(t, exec, at, most, noted.at); err != nil {
		return nil, outputError(err)
	}
	s.bookmarks.put(bookmark{exec, *at, noted.passed})
	page.Status, _, _ = s.shellStatus(req.Principal, exec)
	page.Number = page.Status.Number()
	page.Token = token(exec, *at)
	if page.End = *at >= t.end; page.End {
		page.Receipt = r
	}
	return page, nil
}

// endings are those of a shell's commands from an offset of its output on.
func (s *Supervisor) endings(intent, exec string, from int64) *endings {
	return &endings{passed: s.bookmarks.before(exec, from), read: func(after int64) ([]api.Frame, error) {
		frames, _, err := s.framesAfter(intent, after, after, framesAtOnce)
		return frames, err
	}}
}

func outputError(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return api.Errorf(api.CodeBlobFailed, "output: %v", err)
}

// shellChunks reads up to most bytes, and what it costs to say where they belong. What a mark says is said of the chunk that it
// ends; commands knows which it was.
func shellChunks(t *tape, exec string, at *int64, most int64, commands commandsAt) (all []api.ShellChunk, truncated bool, err error) {
	if truncated = *at < t.first; truncated {
		*at = t.first
	}
	var line []byte // since a prompt began
	for most > 0 {
		p, err := t.read(*at, most)
		if errors.Is(err, spool.ErrGone) && len(all) > 0 {
			break // what follows is said to be gone by the next page
		}
		if err != nil {
			return nil, false, err
		}
		if p.next == p.offset {
			break
		}
		*at = p.next
		c := api.ShellChunk{Token: token(exec, p.next), Offset: p.offset, Bytes: p.bytes, AtNS: p.atNS, Truncated: truncated && len(all) == 0}
		line = append(line, p.bytes...)
		line = line[max(0, len(line)-keptLine):]
		told := false
		if m := p.mark; m != nil {
			switch m.Kind {
			case prompt.Prompt:
				line = line[:0]
			case prompt.Input:
				c.Prompt, told = &api.ShellPrompt{Text: readable(line), Source: "mark"}, true
			case prompt.Done:
				told, err = tellEnd(&c, m, commands, p.offset+int64(len(p.bytes)))
				if err != nil {
					return nil, false, err
				}
			}
		}
		if len(p.bytes) == 0 && !told && !c.Truncated {
			continue
		}
		all = append(all, c)
		most -= int64(len(p.bytes)) + chunkCost
	}
	return all, truncated, nil
}

// tellEnd says of a chunk that a command ended with it.
func tellEnd(c *api.ShellChunk, m *prompt.Mark, commands commandsAt, at int64) (told bool, err error) {
	code, ok := m.ExitCode()
	if !ok {
		return false, nil
	}
	command, known, err := commands(at)
	if err != nil || known && command == "" {
		return false, err
	}
	c.CommandID, c.ExitCode = command, &code
	return true, nil
}

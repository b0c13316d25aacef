package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// record is what a reader has of an execution.
type record struct {
	stdout, stderr bytes.Buffer
	frames         []int64
	cursors        []string
	receipt        *api.Receipt
}

// take adds an event and finds whatever does not follow what is there.
func (r *record) take(e api.Event) error {
	switch e.Kind {
	case "output":
		buf := map[string]*bytes.Buffer{"stdout": &r.stdout, "stderr": &r.stderr}[e.Stream]
		if buf == nil || e.Offset != int64(buf.Len()) || len(e.Bytes) == 0 {
			return fmt.Errorf("%d bytes of %q at %d do not follow", len(e.Bytes), e.Stream, e.Offset)
		}
		buf.Write(e.Bytes)
	case "frame":
		if e.Frame == nil || e.Frame.Seq != int64(len(r.frames)+1) {
			return fmt.Errorf("frame %+v does not follow %v", e.Frame, r.frames)
		}
		r.frames = append(r.frames, e.Frame.Seq)
	case "gone":
		return fmt.Errorf("gone: %+v", e.Gone)
	}
	if want := r.cursor(); e.Cursor != "" && e.Cursor != want {
		return fmt.Errorf("cursor %s after %s", e.Cursor, want)
	}
	if e.Cursor != "" {
		r.cursors = append(r.cursors, e.Cursor)
	}
	return nil
}

func (r *record) cursor() string {
	return fmt.Sprintf("%d.%d.%d", len(r.frames), r.stdout.Len(), r.stderr.Len())
}

// at is the record of a reader that has come to a place and no further.
func (r *record) at(frames, stdout, stderr int) *record {
	c := &record{frames: slices.Clone(r.frames[:frames])}
	c.stdout.Write(r.stdout.Bytes()[:stdout])
	c.stderr.Write(r.stderr.Bytes()[:stderr])
	return c
}

func (r *record) equal(o *record) bool {
	return bytes.Equal(r.stdout.Bytes(), o.stdout.Bytes()) && bytes.Equal(r.stderr.Bytes(), o.stderr.Bytes()) && slices.Equal(r.frames, o.frames)
}

// begin starts a command and does not wait for it.
func (b *box) begin(t testing.TB, exec api.Exec) *api.Pending {
	t.Helper()
	p, r, err := b.Start(t.Context(), exec)
	if err != nil || p == nil {
		t.Fatalf("start: %+v %v", r, err)
	}
	return p
}

// From whatever place a reader goes on, those that were given out and those between, it gets the rest and
// nothing else: of both streams, and of the frames (R118, R128, R132, R230).
func TestResumeAnywhere(t *testing.T) {
	b := newBox(t, Options{})
	b.fake.pace = make(chan struct{})
	x := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"chatter", "400"}})
	var frames int
	for i := range 400 {
		b.fake.pace <- struct{}{}
		if i%40 == 20 { // milestones
			for _, act := range []func(context.Context, api.ProcessTarget) (*api.Receipt, error){b.Pause, b.Resume} {
				if r, err := act(t.Context(), api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: x.ExecID}}); err != nil || r.Outcome != api.OutcomeOK {
					t.Fatalf("%+v %v", r, err)
				}
				frames++
			}
		}
	}
	whole := &record{}
	r, err := b.Watch(t.Context(), x.ExecID, "", whole.take)
	if err != nil || r.IntentID != x.IntentID || r.Outcome != api.OutcomeOK {
		t.Fatalf("%+v %v", r, err)
	}
	var want [2]strings.Builder
	for i := range 400 {
		fmt.Fprintf(&want[i%2], "line %d %s\n", i, strings.Repeat("x", i%97))
	}
	if whole.stdout.String() != want[0].String() || whole.stderr.String() != want[1].String() || len(whole.frames) < frames+1 {
		t.Fatalf("%d and %d bytes, %d frames of %d or more", whole.stdout.Len(), whole.stderr.Len(), len(whole.frames), frames+1)
	}
	for i := range 100 {
		f, out, errs := rand.IntN(len(whole.frames)+1), rand.IntN(whole.stdout.Len()+1), rand.IntN(whole.stderr.Len()+1)
		if i%2 == 0 {
			fmt.Sscanf(whole.cursors[rand.IntN(len(whole.cursors))], "%d.%d.%d", &f, &out, &errs)
		}
		rest := whole.at(f, out, errs)
		if i%5 == 0 {
			err = b.pages(t.Context(), x.ExecID, rest)
			rest.frames = whole.frames // pages have none
		} else {
			_, err = b.Watch(t.Context(), x.ExecID, rest.cursor(), rest.take)
		}
		if err != nil || !rest.equal(whole) {
			t.Fatalf("from %d.%d.%d: %v", f, out, errs, err)
		}
	}
}

// pages reads output to its end, a few bytes at a time.
func (b *box) pages(ctx context.Context, exec string, to *record) error {
	frames := len(to.frames)
	for after := to.cursor(); ; {
		p, err := b.Output(ctx, exec, api.Read{After: after, WaitMS: 10_000, MaxBytes: 4096})
		if err != nil {
			return err
		}
		seq := int64(0)
		for _, c := range p.Output {
			if c.Seq < seq {
				return fmt.Errorf("chunk %d after %d", c.Seq, seq)
			}
			seq = c.Seq
			if err := to.take(api.Event{Kind: "output", Stream: c.Stream, Offset: c.Offset, Bytes: c.Bytes}); err != nil {
				return err
			}
		}
		if after = p.Cursor; !strings.HasSuffix(after, strings.TrimPrefix(to.cursor(), fmt.Sprint(frames))) {
			return fmt.Errorf("cursor %s at %s", after, to.cursor())
		}
		if p.End {
			to.receipt = p.Receipt
			return nil
		}
	}
}

// A reader whose connection is cut again and again while the command runs has every byte and every
// frame once; and so has one beside it that is never cut.
func TestCutWhileItRuns(t *testing.T) {
	b := newBox(t, Options{})
	b.fake.pace = make(chan struct{})
	x := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"chatter", "300"}})
	var readers sync.WaitGroup
	var steady, cut record
	var steadyErr, cutErr error
	readers.Go(func() { _, steadyErr = b.Watch(t.Context(), x.ExecID, "", steady.take) })
	readers.Go(func() {
		for {
			left := 1 + rand.IntN(5)
			_, cutErr = b.Watch(t.Context(), x.ExecID, cut.cursor(), func(e api.Event) error {
				if err := cut.take(e); err != nil {
					return err
				}
				if left--; left == 0 {
					return errStop
				}
				return nil
			})
			if cutErr != errStop {
				return
			}
		}
	})
	for range 300 {
		b.fake.pace <- struct{}{}
	}
	readers.Wait()
	if steadyErr != nil || cutErr != nil || !steady.equal(&cut) || strings.Count(cut.stdout.String()+cut.stderr.String(), "line ") != 300 {
		t.Errorf("%v, %v: %s and %s", steadyErr, cutErr, steady.cursor(), cut.cursor())
	}
}

// Who subscribes twice gets the same frames twice, numbered from 1; and those of one intent never
// come with another's (R128, R131, R139).
func TestTwoSubscribers(t *testing.T) {
	b := newBox(t, Options{})
	id := b.open(t)
	var pending []*api.Pending
	for range 3 {
		pending = append(pending, b.begin(t, api.Exec{SessionID: id, Argv: []string{"sleep"}}))
	}
	got := make([][]api.Frame, 2*len(pending))
	var readers sync.WaitGroup
	for i := range got {
		of := pending[i%len(pending)]
		readers.Go(func() {
			r, err := b.FollowFrames(t.Context(), of.IntentID, 0, func(f api.Frame) error {
				if f.IntentID != of.IntentID || f.Payload.ExecID != of.ExecID || f.Seq != int64(len(got[i])+1) {
					t.Errorf("%s gets %+v", of.IntentID, f)
				}
				got[i] = append(got[i], f)
				return nil
			})
			if err != nil || r.IntentID != of.IntentID || r.FrameSeq != int64(len(got[i])) {
				t.Errorf("%+v %v, %d frames", r, err, len(got[i]))
			}
		})
	}
	for _, p := range pending {
		target := api.ProcessTarget{ProcessRef: api.ProcessRef{IntentID: p.IntentID}}
		for { // what has not started cannot be paused
			now, err := b.Process(t.Context(), p.ExecID)
			if err != nil {
				t.Fatal(err)
			}
			if now.State == api.StateRunning {
				break
			}
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			for _, do := range []func(context.Context, api.ProcessTarget) (*api.Receipt, error){b.Pause, b.Resume} {
				if r, err := do(t.Context(), target); err != nil || r.Outcome != api.OutcomeOK {
					t.Errorf("%+v %v", r, err)
				}
			}
		}
		if r, err := b.Cancel(t.Context(), api.ProcessCancel{ProcessRef: target.ProcessRef}); err != nil || r.Outcome != api.OutcomeOK {
			t.Errorf("%+v %v", r, err)
		}
	}
	readers.Wait()
	for i, frames := range got[:len(pending)] {
		if len(frames) < 7 || fmt.Sprintf("%+v", frames) != fmt.Sprintf("%+v", got[i+len(pending)]) {
			t.Errorf("\n%+v\n%+v", frames, got[i+len(pending)])
		}
		page, err := b.Frames(t.Context(), pending[i].IntentID, api.Read{After: "2", Limit: 3})
		if err != nil || fmt.Sprintf("%+v", page.Frames) != fmt.Sprintf("%+v", frames[2:5]) || page.Receipt != nil {
			t.Errorf("%+v %v", page, err)
		}
	}
}

// Readers that take nothing hold up neither the command nor a reader that does (R154, R245).
func TestStalledReaders(t *testing.T) {
	b := newBox(t, Options{})
	x := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"flood"}})
	for range 8 {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/executions/%s/output HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", x.ExecID)
		io.ReadFull(conn, make([]byte, 16)) // it has begun
	}
	var got record
	if _, err := b.Watch(t.Context(), x.ExecID, "", got.take); err != nil || got.stdout.Len() != 8<<20 {
		t.Errorf("%d bytes, %v", got.stdout.Len(), err)
	}
}

// A poll answers at once when there is something, and when there is nothing as soon as there is, or
// when its time is over.
func TestLongPoll(t *testing.T) {
	b := newBox(t, Options{})
	b.fake.pace = make(chan struct{}, 10)
	x := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"chatter", "3"}})
	poll := func(after string, wait int64) (*api.Pending, time.Duration) {
		t.Helper()
		begun := time.Now()
		p, err := b.Output(t.Context(), x.ExecID, api.Read{After: after, WaitMS: wait})
		if err != nil {
			t.Fatal(err)
		}
		return p, time.Since(begun)
	}
	p, _ := poll("", 0)
	if len(p.Output) != 0 || p.End || p.State.Final() {
		t.Errorf("%+v", p)
	}
	if p, took := poll(p.Cursor, 50); len(p.Output) != 0 || took < 50*time.Millisecond {
		t.Errorf("%+v after %v", p, took)
	}
	time.AfterFunc(20*time.Millisecond, func() { b.fake.pace <- struct{}{} })
	p, took := poll(p.Cursor, 60_000)
	if len(p.Output) != 1 || string(p.Output[0].Bytes) != "line 0 \n" || took > 30*time.Second {
		t.Fatalf("%+v after %v", p, took)
	}
	if again, took := poll("", 60_000); len(again.Output) != 1 || again.Cursor != p.Cursor || took > 30*time.Second {
		t.Errorf("%+v after %v", again, took)
	}
	b.fake.pace <- struct{}{}
	b.fake.pace <- struct{}{}
	for !p.End {
		p, took = poll(p.Cursor, 60_000)
	}
	if p.Receipt == nil || p.Receipt.IntentID != x.IntentID || p.State != api.StateCompleted || took > 30*time.Second {
		t.Errorf("%+v after %v", p, took)
	}
	begun := time.Now()
	if w, err := b.WaitProcess(t.Context(), x.ExecID, time.Minute); err != nil || w.State != api.StateCompleted || time.Since(begun) > 30*time.Second {
		t.Errorf("%+v %v", w, err)
	}
}

// A life of an execution through the client (R225 to R239).
func TestLifeOfExecution(t *testing.T) {
	b, ctx := newBox(t, Options{}), t.Context()
	session := b.open(t)
	x := b.begin(t, api.Exec{SessionID: session, Argv: []string{"cat"}, StdinOpen: true, Labels: map[string]string{"a": "b"}})
	ref := api.ProcessRef{ExecID: x.ExecID}
	input := func(id, text string, end bool) *api.Receipt {
		t.Helper()
		r, err := b.Input(ctx, api.ProcessInput{ProcessRef: ref, InputID: id, Data: &api.Stdin{InlineText: &api.InlineText{Text: text}}, Close: end})
		if err != nil || r.Outcome != api.OutcomeOK {
			t.Fatalf("%+v %v", r, err)
		}
		return r
	}
	if r := input("1", "one", false); r.Payload.Control.Status != api.ControlAccepted || r.Payload.Control.Bytes != 3 || r.IntentID == x.IntentID {
		t.Errorf("%+v", r.Payload.Control)
	}
	if r := input("1", "one", false); r.Payload.Control.Status != api.ControlDuplicate {
		t.Errorf("%+v", r.Payload.Control)
	}
	p, err := b.Process(ctx, x.ExecID)
	if err != nil || p.State != api.StateRunning || !p.StdinOpen || p.IntentID != x.IntentID || p.SessionID != session {
		t.Errorf("%+v %v", p, err)
	}
	list, err := b.Processes(ctx, api.Read{Active: true, Labels: map[string]string{"a": "b"}})
	if err != nil || len(list.Processes) != 1 || list.Processes[0].ExecID != x.ExecID {
		t.Errorf("%+v %v", list, err)
	}
	for name, act := range map[string]func() (*api.Receipt, error){
		"modify": func() (*api.Receipt, error) {
			return b.Modify(ctx, api.ProcessModify{ProcessRef: ref, TimeoutNS: int64(20 * time.Second)})
		},
		"delete of what lives": func() (*api.Receipt, error) { return b.Delete(ctx, api.ProcessTarget{ProcessRef: ref}) },
	} {
		if r, err := act(); err != nil || r.Payload.Control == nil {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
	input("2", "two", true)
	if p, err = b.WaitProcess(ctx, x.ExecID, 0); err != nil || p.State != api.StateCompleted || p.ExitCode == nil || *p.ExitCode != 0 || p.StdoutBytes != 6 {
		t.Errorf("%+v %v", p, err)
	}
	if r, err := b.Cancel(ctx, api.ProcessCancel{ProcessRef: ref}); err != nil || r.Payload.Control.Status != api.ControlFinished {
		t.Errorf("cancel: %+v %v", r, err)
	}
	intent, err := b.Intent(ctx, x.IntentID)
	if err != nil || intent.Outcome != api.OutcomeOK || intent.ExecID != x.ExecID {
		t.Errorf("%+v %v", intent, err)
	}
	if intents, err := b.Intents(ctx, api.Read{SessionID: session, Limit: 3}); err != nil || len(intents) != 3 {
		t.Errorf("%+v %v", intents, err)
	}
	if r, err := b.Delete(ctx, api.ProcessTarget{ProcessRef: ref}); err != nil || r.Payload.Control.Status != api.ControlDeleted {
		t.Errorf("delete: %+v %v", r, err)
	}
	if _, err := b.Process(ctx, x.ExecID); err == nil {
		t.Error("it is still there")
	}

	b.begin(t, api.Exec{SessionID: session, Argv: []string{"sleep"}})
	if r, err := b.Stop(ctx, api.ProcessStop{SessionID: session}); err != nil || r.Payload.Control.Count != 1 {
		t.Errorf("stop: %+v %v", r, err)
	}
	if q, err := b.Quiescence(ctx); err != nil || q.Executions != 0 || q.Sessions != 1 {
		t.Errorf("%+v %v", q, err)
	}
	if s, err := b.Snapshot(ctx); err != nil || s.Records == 0 || !strings.HasPrefix(s.Digest, "sha256:") {
		t.Errorf("%+v %v", s, err)
	}
	if r, err := b.Drain(ctx, api.Drain{}); err != nil || r.Payload.Control.Status != api.ControlDraining {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := b.Open(ctx, local()); err != nil || r.ErrorCode != api.CodeDraining {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := b.Drain(ctx, api.Drain{Undo: true}); err != nil || r.Payload.Control.Status != api.ControlServing {
		t.Errorf("%+v %v", r, err)
	}
}

// Both logs of events, by pages and as a stream: numbered without gaps, in order, and the same
// (R229, C15).
func TestEventLogs(t *testing.T) {
	b := newBox(t, Options{})
	session := b.open(t)
	followed := make(chan []api.Notice, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		var list []api.Notice
		b.FollowEvents(ctx, session, 0, func(n api.Notice) error {
			list = append(list, n)
			if n.Kind == api.NoticeSession && n.State == "closed" {
				return errStop
			}
			return nil
		})
		followed <- list
	}()
	for range 3 {
		if r, err := b.Exec(ctx, api.Exec{SessionID: session, Argv: []string{"echo", "a"}}); err != nil || r.Outcome != api.OutcomeOK {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if _, err := b.Client.Close(ctx, api.SessionClose{SessionID: session}); err != nil {
		t.Fatal(err)
	}
	live := <-followed
	states := map[string]string{}
	for i, n := range live {
		if n.Seq != int64(i+1) || n.SessionID != session {
			t.Errorf("%d: %+v", i, n)
		}
		if n.Kind == api.NoticeProcess {
			states[n.ExecID] += n.State + " "
		}
	}
	for exec, seen := range states {
		if seen != "queued starting running completed " && seen != "starting running completed " {
			t.Errorf("%s: %s", exec, seen)
		}
	}
	if len(states) != 3 {
		t.Errorf("%d executions in %+v", len(states), live)
	}
	var pages []api.Notice
	for after := int64(0); ; {
		page, err := b.Events(ctx, api.Read{SessionID: session, After: fmt.Sprint(after), Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) == 0 {
			break
		}
		pages = append(pages, page.Events...)
		after = page.Next
	}
	if fmt.Sprintf("%+v", pages) != fmt.Sprintf("%+v", live) {
		t.Errorf("\n%+v\n%+v", pages, live)
	}
	if all, err := b.Events(ctx, api.Read{}); err != nil || len(all.Events) < len(live) || all.Events[0].Seq != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

// A reader does not notice that the supervisor was replaced under it: what the command wrote
// meanwhile is there, once (R132, C26).
func TestResumeOverRestart(t *testing.T) {
	b := newBox(t, Options{})
	b.fake.pace = make(chan struct{})
	session := b.open(t)
	x := b.begin(t, api.Exec{SessionID: session, Argv: []string{"chatter", "90"}})
	var got record
	var events []int64
	var readers, begun sync.WaitGroup
	begun.Add(2)
	readers.Go(func() {
		first := sync.OnceFunc(begun.Done)
		r, err := b.Watch(t.Context(), x.ExecID, "", func(e api.Event) error { first(); return got.take(e) })
		if err != nil || r.Outcome != api.OutcomeOK || r.IntentID != x.IntentID {
			t.Errorf("watch: %+v %v", r, err)
		}
		got.receipt = r
	})
	readers.Go(func() {
		first := sync.OnceFunc(begun.Done)
		err := b.FollowEvents(t.Context(), session, 0, func(n api.Notice) error {
			first()
			events = append(events, n.Seq)
			if n.ExecID == x.ExecID && n.State == string(api.StateCompleted) {
				return errStop
			}
			return nil
		})
		if err != errStop {
			t.Errorf("events: %v", err)
		}
	})
	begun.Wait()
	for range 2 {
		for range 30 {
			b.fake.pace <- struct{}{}
		}
		b.stop(b.sup.Leave)
		for range 15 { // nobody is there
			b.fake.pace <- struct{}{}
		}
		b.start(t)
	}
	readers.Wait()
	if n := strings.Count(got.stdout.String()+got.stderr.String(), "line "); n != 90 {
		t.Errorf("%d lines; %s of %d and %d bytes", n, got.cursor(), got.receipt.Payload.Exec.StdoutBytes, got.receipt.Payload.Exec.StderrBytes)
	}
	for i, seq := range events {
		if seq != int64(i+1) {
			t.Fatalf("events %v", events)
		}
	}
}

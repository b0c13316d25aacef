package supervisor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// reader begins an execution that prints what it reads.
func (b *bench) reader(id string, change ...func(*api.Exec)) *api.Pending {
	b.t.Helper()
	x := api.Exec{SessionID: id, Argv: []string{"read"}, StdinOpen: true, TimeoutNS: int64(time.Minute)}
	for _, c := range change {
		c(&x)
	}
	return b.launch(x)
}

// R129, C28: input in every form, once for each id, until it is closed.
func TestInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.reader(b.session(), func(x *api.Exec) { x.Stdin = textInput("first ") })
		for _, step := range []struct {
			in     api.ProcessInput
			status string
			code   api.Code
			bytes  int64
		}{
			{api.ProcessInput{Data: textInput("text ")}, "accepted", "", 5},
			{api.ProcessInput{Data: &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: []byte("bytes ")}}, InputID: "a"}, "accepted", "", 6},
			{api.ProcessInput{Data: &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: []byte("bytes ")}}, InputID: "a"}, "duplicate", "", 0},
			{api.ProcessInput{Data: textInput("whatever"), InputID: "a", Close: true}, "duplicate", "", 0},
			{api.ProcessInput{Data: &api.Stdin{SecretText: &api.InlineText{Text: "secret-canary "}}}, "accepted", "", 14},
			{api.ProcessInput{Data: textInput(""), InputID: "empty"}, "accepted", "", 0},
			{api.ProcessInput{Data: textInput("last"), InputID: "b", Close: true}, "accepted", "", 4},
		} {
			r := b.input(x.ExecID, step.in)
			if got := r.Payload.Control; got.Status != step.status || got.Bytes != step.bytes || r.ErrorCode != step.code {
				t.Errorf("%+v: %+v", step.in, got)
			}
		}
		r := b.ends(x.ExecID)
		if got := text(r.Payload.Exec.Stdout); got != "first text bytes secret-canary last" || r.Payload.Exec.ExitCode != 0 {
			t.Errorf("%q %+v", got, r.Payload.Exec)
		}
		if got := b.frames(x.IntentID); got != "started input input input input input input" {
			t.Error(got)
		}
		for _, rec := range b.records() {
			if rec.Receipt == nil || rec.Receipt.Op != api.OpExec { // which has what the command printed
				if strings.Contains(encode(t, rec), "canary") {
					t.Errorf("a secret is in a record: %+v", rec)
				}
			}
		}
	})
}

// Input after the end of stdin is refused, as long as the command runs.
func TestInputAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.reader(b.session(), func(x *api.Exec) { x.Argv = []string{"sip", "3"} })
		b.input(x.ExecID, api.ProcessInput{Data: textInput("abc"), InputID: "1"})
		if r := b.input(x.ExecID, api.ProcessInput{Close: true}); r.Payload.Control.Status != api.ControlAccepted {
			t.Errorf("%+v", r)
		}
		if r := b.input(x.ExecID, api.ProcessInput{Data: textInput("more")}); r.ErrorCode != api.CodeStdinClosed || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		if r := b.input(x.ExecID, api.ProcessInput{Data: textInput("abc"), InputID: "1"}); r.Payload.Control.Status != api.ControlDuplicate {
			t.Errorf("%+v", r)
		}
		if p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: x.ExecID}); p.StdinOpen {
			t.Errorf("%+v", p)
		}
	})
}

// R146, R147: inputs of many callers do not run into each other, and come in the order of their admission.
func TestInputsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.reader(b.session())
		var all sync.WaitGroup
		var want strings.Builder
		for i := range 50 {
			part := strings.Repeat(fmt.Sprintf("%02d", i), 1000)
			want.WriteString(part)
			req := named(api.OpProcessInput, x.ExecID)
			req.Principal, req.Input.Data = alice, textInput(part)
			c, err := b.begin(context.Background(), &req, brought{}) // admitted one after the other, carried out together
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if r, err := b.await(t.Context(), c, nil); err != nil || r.Payload.Control.Bytes != 2000 {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
		all.Wait()
		b.input(x.ExecID, api.ProcessInput{Close: true})
		got, _ := b.outputOf(x.ExecID, cursor{})
		if got["stdout"] != want.String() {
			t.Error("the inputs are not in order")
		}
		var total int64
		list, _, err := b.framesAfter(x.IntentID, 0, 0, 1000)
		for _, f := range list {
			if f.Payload.InputBytes < total {
				t.Errorf("totals go back: %+v", f)
			}
			total = f.Payload.InputBytes
		}
		if err != nil || total != 100_000 {
			t.Errorf("%d %v", total, err)
		}
	})
}

// R148: a command that does not read keeps nobody for ever, neither who writes nor who waits behind; what was
// written is said, and the rest goes under another id.
// Pitfall 8 of part 4, for input that comes later.
func TestInputThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.reader(b.session(), func(x *api.Exec) { x.Argv = []string{"sip", "7"} })
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			r := b.input(x.ExecID, api.ProcessInput{Data: textInput("0123456789"), InputID: "a", Close: true})
			if got := r.Payload.Control; r.ErrorCode != api.CodeStdinFull || r.Outcome != api.OutcomeFaulted || got.Bytes != 7 || time.Since(began) != inputLimit {
				t.Errorf("%+v after %v", got, time.Since(began))
			}
		})
		time.Sleep(10 * time.Second)
		r := b.input(x.ExecID, api.ProcessInput{Data: textInput("behind"), InputID: "b"})
		if got := r.Payload.Control; r.ErrorCode != api.CodeStdinFull || got.Bytes != 0 || time.Since(began) != 10*time.Second+inputLimit {
			t.Errorf("%+v after %v", got, time.Since(began))
		}
		all.Wait()
		if r := b.input(x.ExecID, api.ProcessInput{Data: textInput("0123456789"), InputID: "a"}); r.Payload.Control.Status != api.ControlDuplicate {
			t.Errorf("a part of it is in the pipe: %+v", r.Payload.Control)
		}
		if p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: x.ExecID}); !p.StdinOpen {
			t.Error("it was closed without all that belongs before")
		}
	})
}

// An input that waits does not outlast the execution, nor the supervisor.
func TestInputThatIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(b *bench, exec string)
		code api.Code
	}{
		{"cancel", func(b *bench, exec string) { b.cancelling(exec, 0) }, api.CodeExecEnded},
		{"leave", func(b *bench, _ string) { b.Leave(context.Background()) }, api.CodeStdinFull},
		{"close", func(b *bench, _ string) { b.Supervisor.Close(context.Background()) }, api.CodeStdinFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				x := b.reader(b.session(), func(x *api.Exec) { x.Argv = []string{"sip", "4"} })
				var all sync.WaitGroup
				began := time.Now()
				all.Go(func() {
					r := b.input(x.ExecID, api.ProcessInput{Data: textInput("0123456789")})
					if r.ErrorCode != tt.code || r.Payload.Control.Bytes != 4 || time.Since(began) > 2*time.Second {
						t.Errorf("%s %+v after %v", r.ErrorCode, r.Payload.Control, time.Since(began))
					}
				})
				time.Sleep(time.Second)
				tt.cut(b, x.ExecID)
				all.Wait()
				if tt.name == "leave" {
					closers := b.closers
					b = startOn(t, b.fake, b.state, func(c *Config) { c.Policy = b.cfg.Policy })
					b.closers = closers
				}
				b.stop()
			})
		})
	}
}

// The order, the ids and the totals go on after a restart.
func TestInputOutlivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		x := b.reader(b.session())
		b.input(x.ExecID, api.ProcessInput{Data: textInput("one "), InputID: "1"})
		b = b.restart()
		if r := b.input(x.ExecID, api.ProcessInput{Data: textInput("one "), InputID: "1"}); r.Payload.Control.Status != api.ControlDuplicate {
			t.Errorf("%+v", r.Payload.Control)
		}
		b.input(x.ExecID, api.ProcessInput{Data: textInput("two "), InputID: "2"})
		b = b.restart()
		b.input(x.ExecID, api.ProcessInput{Data: textInput("three"), InputID: "3"})
		var got ledger.Progress
		b.chronicle.read(func(s *ledger.State) { got, _ = s.Progress(x.ExecID) })
		if diff := cmp.Diff(ledger.Progress{InputIDs: []string{"1", "2", "3"}, InputBytes: 13}, got); diff != "" {
			t.Error(diff)
		}
		b.input(x.ExecID, api.ProcessInput{Close: true})
		out, r := b.outputOf(x.ExecID, cursor{})
		if out["stdout"] != "one two three" || r.Payload.Exec.ExitCode != 0 {
			t.Errorf("%q %+v", out["stdout"], r.Payload.Exec)
		}
		b.stop()
	})
}

// What is told to wait for its turn can be fed when that has come.
func TestInputOfQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		for range 4 {
			b.launch(api.Exec{SessionID: id, Argv: []string{"for", "5s"}})
		}
		x := b.reader(id)
		began := time.Now()
		r := b.input(x.ExecID, api.ProcessInput{Data: textInput("late"), Close: true})
		if r.Payload.Control.Status != api.ControlAccepted || time.Since(began) != 5*time.Second {
			t.Errorf("%+v after %v", r.Payload.Control, time.Since(began))
		}
		if r := b.ends(x.ExecID); text(r.Payload.Exec.Stdout) != "late" {
			t.Errorf("%+v", r.Payload.Exec)
		}
	})
}

// Through a real pipe: more than it holds, written to a command that reads slowly, whole and in order.
func TestInputThroughPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in := newInput()
	in.open(w, ledger.Progress{})
	turn := in.take()
	if fault := in.await(t.Context(), turn); fault != nil {
		t.Fatal(fault)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n, fault := in.write(ctx, pattern(1<<20))
	if fault != errFull || n <= 0 || n >= 1<<20 {
		t.Fatalf("%d %v", n, fault)
	}
	var got []byte
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 1000)
		for len(got) < 1<<20 {
			m, err := r.Read(buf)
			if err != nil {
				return
			}
			got = append(got, buf[:m]...)
		}
	}()
	if rest, fault := in.write(t.Context(), pattern(1 << 20)[n:]); fault != nil || n+rest != 1<<20 {
		t.Errorf("%d %v", rest, fault)
	}
	<-read
	if string(got) != string(pattern(1<<20)) {
		t.Error("what was read is not what was written")
	}
	r.Close()
	if _, fault := in.write(t.Context(), []byte("x")); fault == nil || fault.Code != api.CodeStdinClosed {
		t.Errorf("nobody reads: %v", fault)
	}
	in.end()
	if _, fault := in.write(t.Context(), []byte("x")); fault != errEnded {
		t.Errorf("it has ended: %v", fault)
	}
}

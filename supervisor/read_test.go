package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// outputOf follows an execution and returns what came, by stream.
func (b *bench) outputOf(exec string, from cursor) (map[string]string, *api.Receipt) {
	b.t.Helper()
	got := map[string]string{}
	r, denial, err := b.Watch(b.t.Context(), &api.Request{Op: api.OpProcessWatch, Principal: alice, Read: &api.Read{ExecID: exec, After: from.String()}}, func(e api.Event) {
		got[e.Stream] += string(e.Bytes)
	})
	if err != nil || denial != nil {
		b.t.Error(denial, err)
	}
	return got, r
}

// C13: one store, several views: the same bytes from a running execution, from the
// receipt of one that ended, and from any offset.
func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		var exec string
		var all sync.WaitGroup
		all.Go(func() {
			req := &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"sleep"}}}
			_, err := b.Do(t.Context(), req, func(e api.Event) {
				if e.Kind == "accepted" {
					exec = e.ExecID
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		all.Go(func() {
			got, r := b.outputOf(exec, cursor{stdout: 5})
			if got["stdout"] != "ing" || r.ExecID != exec || time.Since(time.Unix(0, r.AdmittedAtNS)) != 3*time.Second {
				t.Errorf("%v %+v", got, r)
			}
		})
		time.Sleep(2 * time.Second)
		b.signal(id, "INT")
		all.Wait()
		for from, want := range map[int64]string{0: "sleeping", 5: "ing", 8: ""} {
			if got, r := b.outputOf(exec, cursor{stdout: from}); got["stdout"] != want || r.ExecID != exec {
				t.Errorf("from %d: %v", from, got)
			}
		}
		beyond := &api.Request{Op: api.OpProcessWatch, Principal: alice, Read: &api.Read{ExecID: exec, After: "0.9.0"}}
		if _, _, err := b.Watch(t.Context(), beyond, func(api.Event) {}); code(err) != api.CodeInvalidCursor {
			t.Errorf("a place that was never reached: %v", err)
		}
		if _, _, err := b.Output(t.Context(), beyond); code(err) != api.CodeInvalidCursor {
			t.Errorf("a place that was never reached: %v", err)
		}
		blob := b.exec(id, "flood", "100000")
		if got, _ := b.outputOf(blob.ExecID, cursor{stdout: 99990}); got["stdout"] != string(pattern(100000)[99990:]) {
			t.Errorf("%v", got)
		}
	})
}

// R067: content is checked against its name on the way in and on the way out.
func TestBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		put := func(size int64, ref, content string) *api.Receipt {
			r, err := b.PutBlob(t.Context(), &api.Request{Op: api.OpBlobPut, Principal: alice, Blob: &api.BlobPut{BlobRef: ref, SizeBytes: size}}, bytes.NewReader([]byte(content)))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ref := ledger.Digest([]byte("content"))
		if r := put(7, ref, "content"); r.Outcome != api.OutcomeOK || r.Payload.Blob.BlobRef != ref {
			t.Errorf("%+v", r)
		}
		for name, r := range map[string]*api.Receipt{
			"another content": put(7, ref, "CONTENT"),
			"too short":       put(8, "", "content"),
			"too long":        put(6, "", "content"),
		} {
			if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeBlobMismatch {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if r := put(1000000, "", ""); r.Outcome != api.OutcomeDenied {
			t.Errorf("%+v", r)
		}
		content, size, denial, err := b.OpenBlob(t.Context(), &api.Request{Op: api.OpBlobGet, Principal: alice, Read: &api.Read{BlobRef: ref}})
		if err != nil || denial != nil {
			t.Fatal(denial, err)
		}
		defer content.Close()
		if got, err := io.ReadAll(content); string(got) != "content" || size != 7 || err != nil {
			t.Errorf("%q %d %v", got, size, err)
		}
		_, _, _, err = b.OpenBlob(t.Context(), &api.Request{Op: api.OpBlobGet, Principal: alice, Read: &api.Read{BlobRef: ledger.Digest(nil)}})
		if e, ok := err.(*api.Error); !ok || e.Code != api.CodeNotFound {
			t.Errorf("%v", err)
		}
	})
}

// A read that policy denies has a receipt; one that it allows leaves no record.
func TestReadIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		before := len(b.records())
		if _, denial, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}}); denial != nil || err != nil {
			t.Error(denial, err)
		}
		if len(b.records()) != before {
			t.Error("an allowed read is recorded")
		}
		list, denial, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{State: "error"}})
		if list != nil || err != nil || denial == nil || denial.Outcome != api.OutcomeDenied || denial.Op != api.OpSessionList {
			t.Errorf("%v %+v %v", list, denial, err)
		}
		if diff := cmp.Diff([]string{"intent", "decision", "receipt"}, types(b.records()[before:])); diff != "" {
			t.Error(diff)
		}
		// An operation with effect does not come in by this door.
		_, _, err = b.Sessions(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: "s-x", Argv: []string{"true"}}})
		if e, ok := err.(*api.Error); !ok || e.Code != api.CodeUnknownMethod {
			t.Errorf("%v", err)
		}
	})
}

// Receipts are listed newest first, by filter.
func TestReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		open := b.open()
		id := open.SessionID
		first, second, faulted := b.exec(id, "true"), b.exec(id, "false"), b.exec(id, "nope")
		for _, tt := range []struct {
			f    api.Read
			want []*api.Receipt
		}{
			{api.Read{}, []*api.Receipt{faulted, second, first, open}},
			{api.Read{Limit: 2}, []*api.Receipt{faulted, second}},
			{api.Read{Op: api.OpExec, Outcome: api.OutcomeOK}, []*api.Receipt{second, first}},
			{api.Read{ExecID: first.ExecID}, []*api.Receipt{first}},
			{api.Read{SessionID: "s-other"}, nil},
		} {
			list, _, err := b.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: alice, Read: &tt.f})
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, r := range list.Receipts {
				got = append(got, r.IntentID)
			}
			for _, r := range tt.want {
				want = append(want, r.IntentID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v: %s", tt.f, diff)
			}
		}
	})
}

// Policy sees the execution that a read is of, live or ended, whichever way it is read.
func TestReadOfExecutionIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		hidden := b.launch(api.Exec{SessionID: id, Argv: []string{"for", "1s"}, Labels: map[string]string{"hidden": "yes"}})
		open := b.launch(api.Exec{SessionID: id, Argv: []string{"for", "1s"}})
		for range 2 {
			for _, x := range []*api.Pending{hidden, open} {
				read := func(op api.Op) *api.Request {
					return &api.Request{Op: op, Principal: alice, Read: &api.Read{ExecID: x.ExecID}}
				}
				_, get, _ := b.Process(t.Context(), read(api.OpProcessGet))
				_, output, _ := b.Output(t.Context(), read(api.OpOutput))
				_, watch, _ := b.Watch(t.Context(), read(api.OpProcessWatch), func(api.Event) {
					if x == hidden {
						t.Error("it is shown")
					}
				})
				_, wait, _ := b.Wait(t.Context(), read(api.OpProcessWait))
				for _, denial := range []*api.Receipt{get, output, watch, wait} {
					if (denial != nil) != (x == hidden) {
						t.Errorf("%s: %+v", x.ExecID, denial)
					}
				}
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// T069: an answer is bounded, whatever is asked for: a page of output, of one-byte chunks too, a page of receipts with
// output in them, and the frames of an execution that has had many.
func TestAnswersAreBounded(t *testing.T) {
	b := start(t)
	defer b.stop()
	id := b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"output": "8000000"} })

	flood := b.exec(id, "flood", "4000000")
	page := func(after string, most int64) *api.Pending {
		p, denial, err := b.Output(t.Context(), &api.Request{Op: api.OpOutput, Principal: alice, Read: &api.Read{ExecID: flood.ExecID, MaxBytes: most, After: after}})
		if err != nil || denial != nil {
			t.Fatal(denial, err)
		}
		return p
	}
	total, pages := 0, 0
	for p := page("", 1<<62); ; p = page(p.Cursor, 1<<62) {
		size := 0
		for _, c := range p.Output {
			size += len(c.Bytes) + chunkCost
		}
		if size > mostPending+readAtOnce {
			t.Errorf("a page of %d bytes", size)
		}
		total += size - chunkCost*len(p.Output)
		if pages++; p.End {
			break
		}
	}
	if total != 4000000 || pages < 4 {
		t.Errorf("%d bytes in %d pages", total, pages)
	}
	single := &single{rest: 1 << 20}
	if all, err := chunks(single, new(cursor), mostPending); err != nil || len(all) > mostPending/chunkCost {
		t.Errorf("%d chunks of one byte, %v", len(all), err)
	}

	x := b.reader(id)
	const inputs = 3*framesAtOnce + 1
	for i := range inputs {
		b.input(x.ExecID, api.ProcessInput{InputID: fmt.Sprint(i), Data: textInput("x")})
	}
	b.input(x.ExecID, api.ProcessInput{Close: true})
	b.ends(x.ExecID)
	seen := 0
	for _, e := range b.follow(x.ExecID, "", math.MaxInt) {
		if e.Kind == "frame" && e.Frame.Payload.InputID != "" {
			if e.Frame.Payload.InputID != fmt.Sprint(seen) {
				t.Errorf("frame %d is %+v", seen, e.Frame)
			}
			seen++
		}
	}
	if seen != inputs {
		t.Errorf("%d frames of %d", seen, inputs)
	}
}

// single gives its bytes one at a time.
type single struct {
	outputSource
	rest int
}

func (s *single) next(*cursor, int64) (api.Chunk, error) {
	if s.rest--; s.rest < 0 {
		return api.Chunk{}, nil
	}
	return api.Chunk{Stream: "stdout", Bytes: []byte{0}}, nil
}

// The same of a page of receipts.
func TestPageOfReceiptsIsBounded(t *testing.T) {
	b := start(t)
	defer b.stop()
	large := &api.Receipt{IntentID: "i", Op: api.OpExec, Outcome: api.OutcomeOK, Principal: alice, Payload: api.Payload{Exec: &api.ExecResult{
		Stdout: &api.Output{InlineText: &api.InlineText{Text: strings.Repeat("x", 12<<20)}}}}}
	for range 3 {
		if _, err := b.record(t.Context(), b.journal.Settle, &ledger.Settled{Receipt: large}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(limit int64) (int, error) {
		list, _, err := b.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: alice, Read: &api.Read{Limit: limit}})
		if err != nil {
			return 0, err
		}
		return len(list.Receipts), nil
	}
	if n, err := list(2); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := list(3); err == nil || faultOf(err).Code != api.CodeTooLarge {
		t.Errorf("%d, %v", n, err)
	}
}

package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// R251: whatever a record names is found in its bytes, and kept for the last that does.
func TestNames(t *testing.T) {
	ref := func(n int) string { return ledger.Digest(fmt.Append(nil, n)) }
	records := [][]byte{
		[]byte(encode(t, &api.Exec{StdinRef: ref(1), Stdin: &api.Stdin{BlobRef: &api.BlobRef{BlobRef: ref(2)}}})),
		[]byte(encode(t, &ledger.Settled{Receipt: &api.Receipt{IntentID: ref(9), Payload: api.Payload{Exec: &api.ExecResult{
			Stdout: &api.Output{Blob: &api.BlobOutput{BlobRef: ref(3)}}, Outputs: []api.Artifact{{BlobRef: ref(4)}, {BlobRef: ref(1)}}}}}})),
		[]byte(encode(t, &api.Receipt{Payload: api.Payload{Blob: &api.BlobResult{BlobRef: ref(5)}}})),
		[]byte(encode(t, &api.Exec{Argv: []string{`"blob_ref":"` + ref(8) + `"`, `_ref":"sha256:`}})),
		[]byte(`{"x_ref":"sha256:12"}`), []byte(`{"x_ref":"sha256:` + strings.Repeat("x", 64) + `"}`), nil,
	}
	n := newNames()
	for seq, rec := range records {
		n.add(int64(seq), rec)
	}
	named := func() (list []int) {
		for i := range 10 {
			if n.has(ref(i)) {
				list = append(list, i)
			}
		}
		return list
	}
	if got := named(); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Error(got)
	}
	n.trim(1)
	if got := named(); !slices.Equal(got, []int{1, 3, 4, 5}) {
		t.Error(got)
	}
	n.trim(2)
	if got := named(); !slices.Equal(got, []int{5}) || n.has("sha256:5") || n.has("") {
		t.Error(got)
	}
}

// Frames are found by their number, also where the first of them are not there any more.
func TestFrameIndex(t *testing.T) {
	c := newChronicle(ledger.New(), 0)
	check := func(intent string, after int64, gone int64, want ...int64) {
		t.Helper()
		places, missing := c.framePlaces(intent, after, 100)
		if !slices.Equal(places, want) || missing != gone {
			t.Errorf("%s after %d: %v, %d are gone", intent, after, places, missing)
		}
	}
	for number := range int64(5) {
		c.frames.add("a", number+1, 10*number)
		c.frames.add("b", number+3, 10*number+1) // its first two were trimmed before
	}
	check("a", 0, 0, 0, 10, 20, 30, 40)
	check("a", 3, 0, 30, 40)
	check("a", 5, 0)
	check("a", 9, 0)
	check("b", 0, 2, 1, 11, 21, 31, 41)
	check("b", 2, 0, 1, 11, 21, 31, 41)
	check("c", 0, 0)
	c.frames.trim(21)
	check("a", 0, 3, 30, 40)
	check("a", 4, 0, 40)
	check("b", 4, 0, 21, 31, 41)
	c.frames.trim(41)
	check("a", 0, 0)
	check("b", 0, 6, 41)
	if len(c.frames.order) != 1 || len(c.frames.places) != 1 {
		t.Errorf("%+v", c.frames)
	}
}

// An index that was trimmed finds what is left where it is.
func TestIndexTrim(t *testing.T) {
	x := newIndex()
	for i := range int64(10) {
		x.add(entry{seq: 10 * i, intent: fmt.Sprint("i", i), exec: fmt.Sprint("x", i), owner: &owner{uid: uint32(1000 + i/5)}})
	}
	bob := api.Principal{UID: 1001}
	for _, first := range []int64{0, 1, 55, 55, 70} {
		x.trim(first)
		x.add(entry{seq: 100 + first, intent: fmt.Sprint("n", first), owner: &owner{uid: 1001}})
	}
	for id, want := range map[string]int64{"i6": -1, "i7": 70, "i9": 90, "n1": 101, "n70": 170} {
		if e, ok := x.intent(bob, id); ok != (want >= 0) || ok && e.seq != want {
			t.Errorf("%s: %+v %t", id, e, ok)
		}
	}
	if e, ok := x.exec(bob, "x8"); !ok || e.seq != 80 {
		t.Errorf("%+v", e)
	}
	x.delete("x8")
	if _, ok := x.exec(bob, "x8"); ok {
		t.Error("it is still there")
	}
	if e, ok := x.intent(bob, "i8"); !ok || !e.deleted {
		t.Errorf("%+v", e)
	}
	if got := x.list(&owner{uid: 1001}, &api.Read{}, 0, 100).seqs; !slices.Equal(got, []int64{170, 155, 155, 101, 100, 90, 80, 70}) {
		t.Error(got)
	}
	if len(x.owners) != 1 {
		t.Errorf("%d owners", len(x.owners))
	}
}

package spool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func (o *order) bare() *order {
	o.ended = true // no file
	return o
}

// What comes at once in one stream is one chunk; a pause, the other stream and a clock that is
// set back begin another.
func TestTogether(t *testing.T) {
	const ms = int64(time.Millisecond)
	o := new(order).bare()
	for _, a := range []struct {
		st    Stream
		n, at int64
	}{{Stdout, 1, 10 * ms}, {Stdout, 2, 10*ms + 1}, {Stdout, 3, 11*ms - 1}, {Stdout, 4, 11 * ms}, {Stderr, 5, 11 * ms}, {Stdout, 6, 11 * ms}, {Stdout, 7, 3 * ms}} {
		o.arrive(a.st, a.n, a.at)
	}
	o.drop(Stdout, 23, 100, 12*ms)
	o.drop(Stdout, 23, 200, 12*ms)
	want := []Chunk{
		{1, Stdout, 0, 6, 10 * ms, false},
		{2, Stdout, 6, 4, 11 * ms, false},
		{3, Stderr, 0, 5, 11 * ms, false},
		{4, Stdout, 10, 6, 11 * ms, false},
		{5, Stdout, 16, 7, 3 * ms, false},
		{6, Stdout, 23, 200, 12 * ms, true},
	}
	if got := o.chunks(1, 100); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, row := range []struct {
		from int64
		max  int
		want []Chunk
	}{{-5, 2, want[:2]}, {0, 1, want[:1]}, {3, 2, want[2:4]}, {6, 9, want[5:]}, {7, 9, nil}, {100, 9, nil}, {1, 0, nil}} {
		if got := o.chunks(row.from, row.max); !slices.Equal(got, row.want) {
			t.Errorf("chunks(%d, %d): %v", row.from, row.max, got)
		}
	}
}

// Position is what a search from the first chunk on finds.
func TestPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := new(order).bare()
		var total [len(streams)]int64
		var dropped [len(streams)]int64
		for i := range rapid.IntRange(0, 30).Draw(t, "arrivals") {
			st := rapid.SampledFrom(streams[:]).Draw(t, "stream")
			n := rapid.Int64Range(1, 5).Draw(t, "n")
			switch {
			case dropped[st] > 0 || rapid.IntRange(0, 9).Draw(t, "drop") == 0:
				dropped[st] += n
				o.drop(st, total[st], dropped[st], int64(i))
			default:
				total[st] += n
				o.arrive(st, n, int64(i)*int64(together)/2)
			}
		}
		var have [len(streams)]int64
		for _, st := range streams {
			have[st] = rapid.Int64Range(-1, total[st]+dropped[st]+2).Draw(t, "have")
		}
		all := o.chunks(1, 1000)
		want := int64(len(all)) + 1
		if i := slices.IndexFunc(all, func(c Chunk) bool { return !c.Dropped && c.Offset+c.Length > have[c.Stream] }); i >= 0 {
			want = all[i].Seq
		}
		if got := o.position(have); got != want {
			t.Fatalf("%v of %v: %d, want %d", have, all, got, want)
		}
	})
}

// A log tells 65,536 chunks apart; what follows costs nothing more, and survives.
func TestManyChunks(t *testing.T) {
	s := fresh(t)
	l := create(t, s, "x", 1<<30)
	var kept [len(streams)]int64
	for _, st := range streams {
		kept[st] = most
		if err := os.WriteFile(filepath.Join(s.path, "x."+st.String()), sequence(st, 0, kept[st]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(2 * most) {
		l.order.arrive(streams[i%2], 1, 1+i/2)
	}
	l.order.drop(Stderr, most, 7, 5)
	if len(l.order.records) != most+3 || l.order.err != nil {
		t.Fatal(len(l.order.records), l.order.err)
	}
	chunks := l.Chunks(1, 1<<30)
	if last := chunks[most:]; last[0].Length != most/2 || last[1].Length != most/2 || !last[2].Dropped {
		t.Errorf("%v", last)
	}
	info, err := os.Stat(filepath.Join(s.path, "x.chunks"))
	if err != nil || info.Size() != headerSize+(most+3)*recordSize {
		t.Errorf("%v, %v", info, err)
	}
	l.Close()
	l = recovered(t, s, "x", 1<<30)
	check(t, l)
	if got := l.Chunks(1, 1<<30); !slices.Equal(got, chunks) {
		t.Error("another order is recovered")
	}
	spooled(t, l, Stdout, sequence(Stdout, most, 10))
	check(t, l)
	if len(l.order.records) != most+3 {
		t.Errorf("%d records", len(l.order.records))
	}
}

// BenchmarkPosition is what each wake-up of a reader costs, in a log that is full.
func BenchmarkPosition(b *testing.B) {
	o := new(order).bare()
	for i := range int64(2 * most) {
		o.arrive(streams[i%2], 1, i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		n := rng.Int64N(most)
		if o.position([len(streams)]int64{n, n}) == 0 {
			b.Fatal(fmt.Sprint(n))
		}
	}
}

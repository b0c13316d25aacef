package journal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// tortured is a journal of which the last hundred records will be mistreated: its
// segments, what is in them, and what the records up to each number come to.
type tortured struct {
	dir      string
	segments []segment
	content  [][]byte
	places   []edge // by number of records
	begin    int    // the first segment with one of the last hundred
	signed   []checkpoint
}

// torture makes the journal: trimmed, signed here and there, its end signed or not.
func torture(t *testing.T, sealed bool) *tortured {
	t.Helper()
	const records = 130
	dir := clone(t, seedJournal(t))
	j := open(t, dir, storyOptions(watch(dir, nil).disk()))
	for j.Next() < records {
		if _, err := j.Append(context.Background(), storyGroup(int(j.Next()))...); err != nil {
			t.Fatal(err)
		}
		if n := j.Next(); n >= 20 && n < 23 {
			if _, err := j.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if first, err := j.Trim(20); err != nil || first == 0 {
		t.Fatal(first, err)
	}
	x := &tortured{segments: j.snapshot()}
	if sealed {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	x.dir = clone(t, dir)
	stored, err := readCheckpoints(x.dir, j.known)
	if err != nil {
		t.Fatal(err)
	}
	x.signed = stored.signed
	x.begin = holding(x.segments, j.Next()-100)
	for i := range x.segments {
		content := mustRead(t, filepath.Join(x.dir, x.segments[i].name))
		x.content = append(x.content, content)
		s, err := x.survey(i, content, i == len(x.segments)-1)
		if err != nil || s.tree.n != x.segments[i].next() {
			t.Fatalf("untouched: %v", err)
		}
	}
	place := *x.segments[0].before
	x.places = make([]edge, place.tree.n, records+3)
	x.places = append(x.places, place)
	if err := j.Read(j.First(), func(_ int64, rec []byte) error {
		leaf := tlog.RecordHash(rec)
		place.tree.append(leaf)
		place.chain = link(place.chain, leaf)
		x.places = append(x.places, place)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

// survey reads segment i as if content were in it, as a survey does that has come so far.
func (x *tortured) survey(i int, content []byte, last bool) (*survey, error) {
	seg := &x.segments[i]
	s := &survey{signed: x.signed, tree: seg.before.tree, chain: seg.before.chain}
	for s.due < len(s.signed) && s.signed[s.due].size < seg.first {
		s.due++
	}
	return s, s.read(bytes.NewReader(content), int64(len(content)), seg.name, last)
}

// judge says what is wrong with what a survey made of a mistreated segment: it may find
// damage, and otherwise a beginning of what was written, with all that must be there.
func (x *tortured) judge(i int, s *survey, err error, least int64) string {
	if _, ok := errors.AsType[*CorruptError](err); ok {
		return ""
	}
	n := s.tree.n
	switch {
	case err != nil:
		return err.Error()
	case n > x.segments[i].next() || n < least:
		return "records are missing, and nobody says so"
	case s.tree != x.places[n].tree || s.chain != x.places[n].chain:
		return "other content is accepted"
	}
	return ""
}

// R254, T183: each bit of the last hundred records, of the headers around them and of the
// allocated space behind is turned. Where a checkpoint covers them that is damage, always.
// Where none does, the last write may be taken for an interrupted one, and no more.
func TestFlipEveryBit(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{true, false} {
		x := torture(t, sealed)
		for i := x.begin; i < len(x.segments); i++ {
			seg, last := &x.segments[i], i == len(x.segments)-1
			content := bytes.Clone(x.content[i])
			lastWrite, err := seg.lastWrite(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			for bit := range 8 * len(content) {
				off := int64(bit / 8)
				content[off] ^= 1 << (bit % 8)
				s, err := x.survey(i, content, last)
				content[off] ^= 1 << (bit % 8)
				least := seg.next()
				if last && !sealed && off >= lastWrite && off < seg.end {
					least = int64(len(x.places)) - 1
					for least > seg.first && seg.offset(least-1) >= lastWrite {
						least--
					}
				}
				if bad := x.judge(i, s, err, least); bad != "" {
					t.Fatalf("sealed %v, %s, bit %d of byte %d: %s", sealed, seg.name, bit%8, off, bad)
				}
				if err == nil && (sealed || !last || off < lastWrite) {
					t.Fatalf("sealed %v, %s, bit %d of byte %d: nobody notices", sealed, seg.name, bit%8, off)
				}
			}
		}
	}
	// Checkpoints: an unfinished note is the beginning of one, and no bit makes that of a whole.
	x := torture(t, true)
	known := verifiers(t, x.dir)
	content := mustRead(t, filepath.Join(x.dir, checkpointFile))
	for bit := range 8 * len(content) {
		content[bit/8] ^= 1 << (bit % 8)
		if signed, _, err := parseCheckpoints(content, known); err == nil {
			t.Fatalf("checkpoints, bit %d of byte %d: %d notes are believed", bit%8, bit/8, len(signed))
		}
		content[bit/8] ^= 1 << (bit % 8)
	}
}

// R254, T181: the journal ends at any byte of its last hundred records, in a file that became
// shorter or was never filled. Under a checkpoint that is damage. Otherwise
// there is exactly what was whole; and with later segments behind the cut it is damage again.
func TestTruncateEveryByte(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{true, false} {
		x := torture(t, sealed)
		for i := x.begin; i < len(x.segments); i++ {
			seg := &x.segments[i]
			for size := int64(segmentHeader); size < seg.end; size++ {
				for _, zeros := range []bool{false, true} {
					content := bytes.Clone(x.content[i][:size])
					if zeros {
						content = append(content, make([]byte, int64(len(x.content[i]))-size)...)
					}
					if bytes.Equal(content, x.content[i]) {
						continue // nothing but zeros was behind
					}
					whole := x.whole(i, content)
					s, err := x.survey(i, content, true)
					_, corrupt := errors.AsType[*CorruptError](err)
					n := s.tree.n
					switch {
					case sealed && !corrupt && n >= s.lastSigned():
						t.Fatalf("%s cut at %d (zeros %v), and a checkpoint covers it: %v", seg.name, size, zeros, err)
					case !sealed && (err != nil || n != whole):
						t.Fatalf("%s cut at %d (zeros %v): %d records, want %d, %v", seg.name, size, zeros, n, whole, err)
					}
					if bad := x.judge(i, s, err, seg.first); bad != "" {
						t.Fatalf("%s cut at %d (zeros %v): %s", seg.name, size, zeros, bad)
					}
					// Not the last one: what is missing is missed here, or by the next.
					if s, err := x.survey(i, content, false); err == nil && s.tree.n == seg.next() && whole < seg.next() {
						t.Fatalf("%s cut at %d (zeros %v), with segments behind: nobody notices", seg.name, size, zeros)
					}
				}
			}
		}
	}
}

// whole is how many records there are when segment i is the last and has this content: of
// whole Appends.
func (x *tortured) whole(i int, content []byte) int64 {
	seg := &x.segments[i]
	n := seg.first
	for n < seg.next() {
		group := int64(len(storyGroup(int(n))))
		end := seg.end
		if n+group < seg.next() {
			end = seg.offset(n + group)
		}
		if end > int64(len(content)) || !bytes.Equal(content[:end], x.content[i][:end]) {
			break
		}
		n += group
	}
	return n
}

// R254, T181: the same from the outside, at some of the places, at all in the soak: the
// journal opens with what is whole, goes on, and verifies; or says that it was cut.
func TestReopenAfterTruncation(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{true, false} {
		x := torture(t, sealed)
		step := int64(soak(97, 1))
		for i := x.begin; i < len(x.segments); i++ {
			for size := int64(segmentHeader); size < x.segments[i].end; size += step {
				dir := fresh(t)
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{keyFile, publicKeyFile, anchorFile, checkpointFile} {
					write(t, filepath.Join(dir, name), mustRead(t, filepath.Join(x.dir, name)))
				}
				for k := range i {
					write(t, filepath.Join(dir, x.segments[k].name), x.content[k])
				}
				write(t, filepath.Join(dir, x.segments[i].name), x.content[i][:size])
				if sealed {
					if _, ok := errors.AsType[*CorruptError](openError(dir)); !ok {
						t.Fatalf("%s cut at %d, and a checkpoint covers it: it opens", x.segments[i].name, size)
					}
				} else {
					n, first := x.whole(i, x.content[i][:size]), x.segments[0].first
					recovered(t, dir, said{acked: int(n), first: first, asked: first})
				}
				if t.Failed() {
					t.Fatalf("%s cut at %d", x.segments[i].name, size)
				}
				os.RemoveAll(dir)
			}
		}
	}
}

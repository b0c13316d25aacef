package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// states lists the segments that Check reports, as "first+records state".
func states(r *Report) (out []string) {
	for _, seg := range r.Files.Segments {
		out = append(out, fmt.Sprintf("%d+%d %s", seg.First, seg.Records, seg.State))
	}
	return out
}

// T185: Check tells an interrupted write from damage, and where either is, file by file; it
// changes nothing.
func TestCheck(t *testing.T) {
	flip := func(t *testing.T, name string, off int64) {
		b := mustRead(t, name)
		b[off] ^= 1
		write(t, name, b)
	}
	rows := []struct {
		name  string
		spoil func(t *testing.T, dir string, segments []segment)
		seq   int64 // of Bad; -1: none is in a record, -2: no Bad
		want  func(t *testing.T, r *Report)
	}{
		{"well", func(*testing.T, string, []segment) {}, -2, func(t *testing.T, r *Report) {
			c := r.Files.Checkpoints
			if c.Notes != r.Checkpoints || c.Signed != 24 || c.Bytes == 0 || c.TailBytes != 0 || c.Bad != nil {
				t.Errorf("%+v", c)
			}
		}},
		{"torn", func(t *testing.T, dir string, segments []segment) {
			last := filepath.Join(dir, segments[len(segments)-1].name)
			write(t, last, append(mustRead(t, last), "rec\nnot all of it"...))
		}, -2, func(t *testing.T, r *Report) {
			last := r.Files.Segments[len(r.Files.Segments)-1]
			if last.State != SegmentTorn || last.TailBytes != 17 || r.TailBytes != 17 || last.FileBytes != last.Bytes+17 {
				t.Errorf("%+v", last)
			}
		}},
		{"a record in the middle", func(t *testing.T, dir string, segments []segment) {
			flip(t, filepath.Join(dir, segments[1].name), segments[1].offset(segments[1].first+1)+frameHeader)
		}, 11, func(t *testing.T, r *Report) {
			if s := r.Files.Segments; s[0].State != SegmentGood || s[1].State != SegmentDamaged || s[1].Records != 1 ||
				s[1].Bad != r.Bad || s[2].State != SegmentApart || s[2].Records == 0 {
				t.Errorf("%v", states(r))
			}
		}},
		{"a header", func(t *testing.T, dir string, segments []segment) {
			flip(t, filepath.Join(dir, segments[1].name), 20)
		}, 10, func(t *testing.T, r *Report) {
			if s := r.Files.Segments; s[1].State != SegmentDamaged || s[1].Records != 0 || s[2].State != SegmentApart {
				t.Errorf("%v", states(r))
			}
		}},
		{"damage twice", func(t *testing.T, dir string, segments []segment) {
			flip(t, filepath.Join(dir, segments[1].name), 20)
			flip(t, filepath.Join(dir, segments[2].name), segmentHeader)
		}, 10, func(t *testing.T, r *Report) {
			if s := r.Files.Segments; s[2].State != SegmentDamaged || s[2].Bad == nil || s[2].Bad == r.Bad {
				t.Errorf("%v", states(r))
			}
		}},
		{"a segment is gone", func(t *testing.T, dir string, segments []segment) {
			os.Remove(filepath.Join(dir, segments[1].name))
		}, 10, func(t *testing.T, r *Report) {
			if s := r.Files.Segments; s[0].State != SegmentGood || s[1].State != SegmentDamaged {
				t.Errorf("%v", states(r))
			}
		}},
		{"a checkpoint", func(t *testing.T, dir string, _ []segment) {
			flip(t, filepath.Join(dir, checkpointFile), 3)
		}, -1, func(t *testing.T, r *Report) {
			if r.Files.Checkpoints.Bad != r.Bad || r.Files.Segments[0].State != SegmentGood {
				t.Errorf("%+v", r.Files.Checkpoints)
			}
		}},
		{"an unfinished checkpoint", func(t *testing.T, dir string, _ []segment) {
			name := filepath.Join(dir, checkpointFile)
			write(t, name, append(mustRead(t, name), "stockade jour"...))
		}, -2, func(t *testing.T, r *Report) {
			if c := r.Files.Checkpoints; c.TailBytes != 13 || c.Bad != nil {
				t.Errorf("%+v", c)
			}
		}},
		{"other files", func(t *testing.T, dir string, _ []segment) {
			for _, name := range []string{spareFile, "anchor.new", ".key.123.tmp", "notes.txt", "1.seg"} {
				write(t, filepath.Join(dir, name), []byte("text"))
			}
		}, -2, func(t *testing.T, r *Report) {
			f := r.Files
			if d := cmp.Diff([]any{f.SpareBytes, f.Unfinished, f.Unknown},
				[]any{int64(4), []string{".key.123.tmp", "anchor.new"}, []string{"1.seg", "notes.txt"}}); d != "" {
				t.Error(d)
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir, segments := closed(t)
			row.spoil(t, dir, segments)
			before := contents(t, dir)
			r, err := Check(dir, verifiers(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case row.seq == -2 && r.Bad != nil, row.seq != -2 && (r.Bad == nil || r.Bad.Seq != row.seq):
				t.Errorf("the first bad record is %v, want %d", r.Bad, row.seq)
			}
			row.want(t, r)
			if d := cmp.Diff(before, contents(t, dir)); d != "" {
				t.Error("check has changed the journal")
			}
		})
	}
	t.Run("the anchor", func(t *testing.T) {
		dir, first := trimmed(t, 40, 20)
		r, err := Check(dir, verifiers(t, dir))
		if err != nil || r.Bad != nil || r.First != first || r.Files.Anchor.First != first || r.Files.Segments[0].First != first {
			t.Fatalf("%+v, %v", r, err)
		}
		flip(t, filepath.Join(dir, anchorFile), 30)
		r, err = Check(dir, verifiers(t, dir))
		if err != nil || r.Bad == nil || r.Files.Anchor.Bad != r.Bad || r.Files.Segments[0].State != SegmentApart {
			t.Fatalf("%+v, %v", r, err)
		}
	})
	t.Run("beside a writer", func(t *testing.T) {
		dir := fresh(t)
		j := open(t, dir, small)
		for n := range 50 {
			if _, err := j.Append(context.Background(), record(n)); err != nil {
				t.Fatal(err)
			}
			if r, err := Check(dir, verifiers(t, dir)); err != nil || r.Bad != nil || r.Records != int64(n+1) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if _, err := Check(fresh(t), verifiers(t, seedJournal(t))); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

// contents is all files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		files[e.Name()] = string(mustRead(t, filepath.Join(dir, e.Name())))
	}
	return files
}

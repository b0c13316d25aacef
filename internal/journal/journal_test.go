package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/durable"
)

// small makes files, and with them segments, that a test can try every byte of.
var small = Options{Origin: "test", SegmentBytes: 1 << 10}

func open(t testing.TB, dir string, opt Options) *Journal {
	t.Helper()
	j, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func fresh(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

func record(i int) []byte { return fmt.Appendf(nil, `{"n":%d,"text":"%0*d"}`, i, i%40, i) }

// fill appends records from..to-1, one by one.
func fill(t testing.TB, j *Journal, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if seq, err := j.Append(context.Background(), record(i)); err != nil || seq != int64(i) {
			t.Fatalf("append %d: %d, %v", i, seq, err)
		}
	}
}

// expect checks that j holds exactly the records 0..n-1.
func expect(t testing.TB, j *Journal, n int) {
	t.Helper()
	seen := 0
	err := j.Read(0, func(seq int64, rec []byte) error {
		if int(seq) != seen || string(rec) != string(record(seen)) {
			return fmt.Errorf("record %d is %q, want %d", seq, rec, seen)
		}
		seen++
		return nil
	})
	if err != nil || seen != n || j.Len() != int64(n) {
		t.Fatalf("read %d of %d records, length %d: %v", seen, n, j.Len(), err)
	}
}

func verifiers(t testing.TB, dir string) note.Verifiers {
	t.Helper()
	v, err := ReadPublicKey(filepath.Join(dir, publicKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return note.VerifierList(v)
}

// R247, R254: what was appended is there after a restart, over many segments, and verifies.
func TestReopen(t *testing.T) {
	dir := fresh(t)
	for n := 0; n < 100; n += 20 {
		j := open(t, dir, small)
		expect(t, j, n)
		fill(t, j, n, n+20)
		expect(t, j, n+20)
		if _, err := Open(dir, small); !errors.Is(err, durable.ErrLocked) {
			t.Fatalf("second opener: %v", err)
		}
		if r, err := Verify(dir, verifiers(t, dir)); err != nil || r.Records != int64(n+20) || r.TailBytes != 0 {
			t.Fatalf("verify while open: %+v, %v", r, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(dir, verifiers(t, dir))
	if err != nil || r.Records != 100 || r.Signed != 100 || r.Checkpoints != 5 || r.Segments < 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	j := open(t, dir, small)
	for _, seq := range []int64{0, 1, 50, 99} {
		if rec, err := j.Get(seq); err != nil || string(rec) != string(record(int(seq))) {
			t.Errorf("get %d: %q, %v", seq, rec, err)
		}
	}
	for _, seq := range []int64{-1, 100} {
		if _, err := j.Get(seq); !errors.Is(err, ErrNotFound) {
			t.Errorf("get %d: %v", seq, err)
		}
	}
}

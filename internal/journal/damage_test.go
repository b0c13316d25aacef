package journal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// closed is a small journal of several segments that was closed, and where its records are.
func closed(t testing.TB) (dir string, segments []segment) {
	t.Helper()
	dir = clone(t, seedJournal(t))
	j := open(t, dir, storyOptions(watch(dir, nil).disk()))
	for j.Next() < 24 {
		if _, err := j.Append(context.Background(), storyGroup(int(j.Next()))...); err != nil {
			t.Fatal(err)
		}
		if j.Next() < 8 {
			if _, err := j.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	segments = j.snapshot()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if len(segments) < 3 {
		t.Fatalf("%d segments", len(segments))
	}
	return dir, segments
}

// at is the record that owns a byte of a segment, the header belonging to the first.
func (g *segment) at(off int64) int64 {
	i, found := slices.BinarySearchFunc(g.offsets, off, func(o uint32, off int64) int { return cmp.Compare(int64(o), off) })
	if !found && i > 0 {
		i--
	}
	return g.first + int64(i)
}

// R254: any byte of a journal is changed: Verify fails and names the record, and Open
// refuses and cuts nothing.
func TestFlipEveryByte(t *testing.T) {
	t.Parallel()
	dir, segments := closed(t)
	known := verifiers(t, dir)
	try := func(name string, check func(off int64, bad *CorruptError) error) {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for off := range content {
			for _, flip := range []byte{1 << (off % 8), content[off]} { // the second makes a zero
				if flip == 0 {
					continue
				}
				changed := bytes.Clone(content)
				changed[off] ^= flip
				write(t, path, changed)
				report, err := Verify(dir, known)
				bad, ok := errors.AsType[*CorruptError](err)
				if !ok || report.Bad != bad || bad.File != name {
					t.Fatalf("%s, byte %d ^ %#x: %+v, %v", name, off, flip, report, err)
				}
				if err := check(int64(off), bad); err != nil {
					t.Fatalf("%s, byte %d ^ %#x: %v: %v", name, off, flip, err, bad)
				}
				if off%64 == 0 { // the same code reads; it must only not write
					_, err = Open(dir, small)
					if _, ok := errors.AsType[*CorruptError](err); !ok {
						t.Fatalf("%s, byte %d ^ %#x: open: %v", name, off, flip, err)
					}
					if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, changed) {
						t.Fatalf("%s, byte %d ^ %#x: open changed the file", name, off, flip)
					}
				}
			}
		}
		write(t, path, content)
	}
	for _, seg := range segments {
		try(seg.name, func(off int64, bad *CorruptError) error {
			if seq := seg.at(off); bad.Seq != seq || (off >= segmentHeader && bad.Offset != seg.offset(seq)) {
				return fmt.Errorf("it is in record %d", seq)
			}
			return nil
		})
	}
	try(checkpointFile, func(off int64, bad *CorruptError) error {
		if bad.Seq != -1 || bad.Offset > off {
			return errors.New("wrong place")
		}
		return nil
	})
	if report, err := Verify(dir, known); err != nil || report.Signed != report.Records {
		t.Fatalf("unchanged: %+v, %v", report, err)
	}
}

// R254: bytes change in a journal that was not closed. In all but the last write that is
// damage, checkpoint or not; the last cannot be told from an interrupted one.
func TestFlipUnsigned(t *testing.T) {
	dir := clone(t, seedJournal(t))
	j := open(t, dir, storyOptions(watch(dir, nil).disk()))
	fill(t, j, 0, 6)
	crashed := clone(t, dir)
	seg := j.snapshot()[0]
	content, err := os.ReadFile(filepath.Join(crashed, seg.name))
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(segmentHeader); off < seg.end; off++ {
		changed := bytes.Clone(content)
		changed[off] ^= 0x10
		write(t, filepath.Join(crashed, seg.name), changed)
		report, err := Verify(crashed, verifiers(t, dir))
		if seq := seg.at(off); seq == 5 {
			if err != nil || report.Records != 5 || report.TailBytes == 0 {
				t.Fatalf("byte %d of the last record: %+v, %v", off, report, err)
			}
		} else if err == nil || report.Bad.Seq != seq {
			t.Fatalf("byte %d of record %d: %+v, %v", off, seq, report, err)
		}
	}
}

// What someone can do who can write the files and compute checksums, but not sign.
func TestTampering(t *testing.T) {
	rewrite := func(t *testing.T, dir string, edit func(recs [][]byte) [][]byte) {
		// All records anew, with the ids, checksums and chain that belong to them.
		var recs [][]byte
		s := &survey{}
		if err := s.run(dir); err != nil {
			t.Fatal(err)
		}
		for _, seg := range s.segments {
			if err := seg.read(dir, seg.first, func(_ int64, rec []byte) error {
				recs = append(recs, rec)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Join(dir, seg.name))
		}
		o := opening{id: [16]byte{1}}
		b := o.encode()
		var chain digest
		for i, rec := range edit(recs) {
			chain = link(chain, tlog.RecordHash(rec))
			h := frame{size: uint32(len(rec)), seq: int64(i), chain: chain, sum: recordSum(rec)}
			b = h.append(b, o.seed(), rec)
		}
		write(t, filepath.Join(dir, segmentName(0)), b)
	}
	rows := []struct {
		name string
		edit func(recs [][]byte) [][]byte
		seq  int64 // the earliest record that can be the bad one
		want error
	}{
		{"replace", func(r [][]byte) [][]byte { r[9] = []byte("forged"); return r }, 7, nil},
		{"replace under an early checkpoint", func(r [][]byte) [][]byte { r[0] = []byte("forged"); return r }, 0, nil},
		{"swap", func(r [][]byte) [][]byte { r[9], r[10] = r[10], r[9]; return r }, 7, nil},
		{"insert", func(r [][]byte) [][]byte { return slices.Insert(r, 9, []byte("forged")) }, 7, nil},
		{"delete", func(r [][]byte) [][]byte { return slices.Delete(r, 9, 10) }, 23, ErrRolledBack},
		{"cut", func(r [][]byte) [][]byte { return r[:9] }, 9, ErrRolledBack},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir, _ := closed(t)
			rewrite(t, dir, row.edit)
			report, err := Verify(dir, verifiers(t, dir))
			bad, ok := errors.AsType[*CorruptError](err)
			if !ok || bad.Seq != row.seq || (row.want != nil) != errors.Is(err, ErrRolledBack) {
				t.Errorf("%+v, %v", report, err)
			}
			if _, err := Open(dir, small); !errors.As(err, &bad) {
				t.Errorf("open: %v", err)
			}
		})
	}
	t.Run("rolled back with its checkpoints", func(t *testing.T) {
		dir, _ := closed(t)
		j := open(t, dir, small)
		kept, err := j.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		rewrite(t, dir, func(r [][]byte) [][]byte { return r[:9] })
		write(t, filepath.Join(dir, checkpointFile), nil)
		if _, err := Verify(dir, verifiers(t, dir)); err != nil {
			t.Errorf("nothing is left to find it by: %v", err)
		}
		if report, err := Verify(dir, verifiers(t, dir), kept); !errors.Is(err, ErrRolledBack) || report.Bad.Seq != 9 {
			t.Errorf("with a checkpoint kept elsewhere: %+v, %v", report, err)
		}
	})
	t.Run("signed by another key", func(t *testing.T) {
		dir, _ := closed(t)
		other, _ := closed(t)
		if report, err := Verify(dir, verifiers(t, other)); err == nil || report.Bad.File != checkpointFile {
			t.Errorf("%+v, %v", report, err)
		}
	})
	t.Run("a segment is gone", func(t *testing.T) {
		for gone := range 3 {
			dir, segments := closed(t)
			os.Remove(filepath.Join(dir, segments[gone].name))
			report, err := Verify(dir, verifiers(t, dir))
			if err == nil || report.Bad.Seq != segments[gone].first {
				t.Errorf("segment %d: %+v, %v", gone, report, err)
			}
		}
	})
	t.Run("the key is gone", func(t *testing.T) {
		dir, _ := closed(t)
		os.Remove(filepath.Join(dir, keyFile))
		if _, err := Open(dir, small); err == nil || !strings.Contains(err.Error(), "key is missing") {
			t.Error(err)
		}
	})
}

// A later format is refused, not taken for damage.
func TestNewerVersion(t *testing.T) {
	dir, segments := closed(t)
	path := filepath.Join(dir, segments[0].name)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(content[8:], segmentVersion+1)
	binary.LittleEndian.PutUint32(content[76:], crc32.Checksum(content[:76], castagnoli))
	write(t, path, content)
	if _, err := Open(dir, small); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if _, err := Verify(dir, verifiers(t, dir)); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

// A length that a writer could not have written allocates nothing.
func TestHugeLength(t *testing.T) {
	o := opening{id: [16]byte{1}}
	for _, size := range []uint32{0, MaxRecord, MaxRecord + 1, 1 << 31, 1<<32 - 1} {
		h := frame{size: size}
		b := h.append(o.encode(), o.seed(), []byte("short"))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := &survey{}
		s.read(bytes.NewReader(b), int64(len(b)), segmentName(0), true)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; s.tree.n != 0 || allocated > 1<<20 {
			t.Errorf("length %d: %d records, %d bytes allocated", size, s.tree.n, allocated)
		}
	}
}

// Whatever a segment holds, reading it ends without a panic and finds only what holds
// together: what it found, written anew, is found again.
func FuzzSegment(f *testing.F) {
	o := opening{id: [16]byte{1, 2, 3}}
	good := o.encode()
	var chain digest
	for i := range 5 {
		rec := record(i)
		chain = link(chain, tlog.RecordHash(rec))
		h := frame{size: uint32(len(rec)), seq: int64(i), back: uint32(i % 2), left: uint32(i % 2), chain: chain, sum: recordSum(rec)}
		good = h.append(good, o.seed(), rec)
	}
	f.Add(good, true)
	f.Add(good[:len(good)-9], true)
	f.Add(append(bytes.Clone(good), make([]byte, 300)...), false)
	f.Add([]byte(segmentMagic), true)
	f.Fuzz(func(t *testing.T, data []byte, last bool) {
		s := &survey{}
		if err := s.read(bytes.NewReader(data), int64(len(data)), segmentName(0), last); err != nil {
			return
		}
		seg := s.segments[0]
		if seg.end > int64(len(data)) || int64(len(seg.offsets)) != s.tree.n {
			t.Fatalf("end %d of %d, %d offsets of %d records", seg.end, len(data), len(seg.offsets), s.tree.n)
		}
		again := &survey{}
		if err := again.read(bytes.NewReader(data[:seg.end]), seg.end, segmentName(0), true); err != nil || again.tree != s.tree || again.chain != s.chain {
			t.Fatalf("cut to what was found, it reads otherwise: %v", err)
		}
	})
}

// A checkpoint file is refused or understood, never both.
func FuzzCheckpoints(f *testing.F) {
	// A fixed key: the seeds must be valid in every process that fuzzes.
	seed := make([]byte, ed25519.SeedSize)
	public, err := note.NewEd25519VerifierKey("fuzz", ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	if err != nil {
		f.Fatal(err)
	}
	keyHash := strings.Split(public, "+")[1]
	signer, err := note.NewSigner("PRIVATE+KEY+fuzz+" + keyHash + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed...)))
	if err != nil {
		f.Fatal(err)
	}
	known, err := note.NewVerifier(public)
	if err != nil {
		f.Fatal(err)
	}
	var file []byte
	for n := range int64(3) {
		c := checkpoint{origin: "fuzz", size: n + 1}
		msg, err := c.sign(signer)
		if err != nil {
			f.Fatal(err)
		}
		file = append(append(file, msg...), '\n')
	}
	f.Add(file)
	f.Add(file[:len(file)-5])
	f.Add(append(bytes.Clone(file), make([]byte, 512)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		signed, end, err := parseCheckpoints(data, note.VerifierList(known))
		for i, c := range signed {
			to := end
			if i+1 < len(signed) {
				to = signed[i+1].at
			}
			if !bytes.Contains(file, data[c.at:to]) {
				t.Fatalf("believed, and was not signed: %q", data[c.at:to])
			}
		}
		if again, n, err2 := parseCheckpoints(data[:end], note.VerifierList(known)); n != end || err2 != nil || len(again) != len(signed) {
			t.Fatalf("cut to what is believed, it reads otherwise: %v, %v", err, err2)
		}
	})
}

// An anchor's text is refused, or is exactly what the anchor says.
func FuzzAnchor(f *testing.F) {
	for _, n := range []int{1, 2, 7, 1000} {
		var e edge
		for i := range n {
			e.tree.append(tlog.RecordHash(record(i)))
		}
		f.Add(newAnchor("fuzz", &e).text())
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAnchor(text)
		if err == nil && (a.text() != text || a.tree.n != a.size || a.tree.root() != a.root || a.size == 0) {
			t.Fatalf("%q is read as %q", text, a.text())
		}
	})
}

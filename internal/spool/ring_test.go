package spool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// R155, R157, R158, R171: a ring keeps the end, says where that begins, and knows the digest of all; so does the one that a
// later process opens.
func TestRing(t *testing.T) {
	s := fresh(t)
	const size, total = 1 << 20, 5<<20 + 123
	l := s.CreateRing("x", size)
	t.Cleanup(l.Close)
	want := sequence(Stdout, 0, total)
	digest := sha256.Sum256(want)
	half := len(want) / 2
	spooled(t, l, Stdout, want[:half])
	first := l.First(Stdout)
	if first <= 0 || first%block != 0 || l.Kept(Stdout) != int64(half) || int64(half)-first < size || int64(half)-first > size+2*overhang {
		t.Fatalf("%d of %d", first, half)
	}
	if _, err := l.ReadAt(Stdout, make([]byte, 10), first-1); !errors.Is(err, ErrGone) {
		t.Errorf("before it: %v", err)
	}
	l.Close()

	l, err := s.RecoverRing("x", size)
	if err != nil {
		t.Fatal(err)
	}
	if l.First(Stdout) != first {
		t.Errorf("recovered from %d, not %d", l.First(Stdout), first)
	}
	spooled(t, l, Stdout, want[half:])
	first = l.First(Stdout)
	got := make([]byte, total-first)
	if _, err := l.ReadAt(Stdout, got, first); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if string(got) != string(want[first:]) {
		t.Error("other bytes than came")
	}
	l.Seal()
	if sum, err := l.Sum(); err != nil || sum != "sha256:"+hex.EncodeToString(digest[:]) {
		t.Errorf("the digest of all: %s, %v", sum, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(s.path, "x.stdout"), &st); err != nil || st.Blocks*512 > size+3*overhang {
		t.Errorf("%d bytes on the disk: %v", st.Blocks*512, err)
	}
	_, blobs := state(t)
	if _, _, err := l.Commit(Stdout, blobs); !errors.Is(err, ErrGone) {
		t.Errorf("what has lost its beginning became a blob: %v", err)
	}
	l.Close()

	// One that is only read knows where it begins by itself.
	l, err = s.Recover("x", 1<<62)
	if err != nil || l.First(Stdout) != first {
		t.Errorf("%d, %v", l.First(Stdout), err)
	}
	l.Close()
	if err := s.Remove("x"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.path, "x.ring")); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}

// What a ring's file says is believed as a whole or not at all.
func TestRingDamaged(t *testing.T) {
	s := fresh(t)
	l := s.CreateRing("x", 64<<10)
	spooled(t, l, Stdout, sequence(Stdout, 0, 1<<20))
	l.Close()
	name := filepath.Join(s.path, "x.ring")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 1
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := s.RecoverRing("x", 64<<10); err == nil {
			l.Close()
			t.Fatalf("byte %d was changed, and nobody noticed", i)
		}
	}
}

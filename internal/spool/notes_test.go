package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func noted(t *testing.T, l *Log) (all []string, whole bool) {
	t.Helper()
	whole, err := l.Notes(func(n Note) error {
		all = append(all, fmt.Sprintf("%c %d %d %s", n.Kind, n.At, n.AtNS, n.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, whole
}

// A log that is closed while its notes are read is closed: who reads hears of it, and may read the log as he goes.
func TestNotesOfAClosedLog(t *testing.T) {
	l := fresh(t).CreateRing("x", 1<<20)
	if err := l.Record(1 << 10); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Note(Note{Kind: 'i', AtNS: 1, Data: []byte("typed")}); err != nil {
			t.Fatal(err)
		}
	}
	closed, seen := make(chan struct{}), 0
	_, err := l.Notes(func(Note) error {
		seen++
		go func() { defer close(closed); l.Close() }()
		time.Sleep(20 * time.Millisecond) // until Close waits, if it has to
		_, err := l.ReadAt(Stdout, make([]byte, 1), 0)
		return err
	})
	<-closed
	if !errors.Is(err, os.ErrClosed) || seen != 1 {
		t.Errorf("after %d notes: %v", seen, err)
	}
}

// R171: of a ring that is recorded the beginning stays, too, with what was noted and where; so does that of the one which a
// later process opens, which says nothing more.
func TestRecord(t *testing.T) {
	s := fresh(t)
	const size, limit, total = 1 << 20, 300_001, 5 << 20
	l := s.CreateRing("x", size)
	t.Cleanup(l.Close)
	if err := l.Record(limit); err != nil {
		t.Fatal(err)
	}
	note := func(l *Log, kind byte, data string) error {
		return l.Note(Note{Kind: kind, AtNS: 5e9 + 7, At: l.Kept(Stdout), Data: []byte(data)})
	}
	want := sequence(Stdout, 0, total)
	half := total / 2
	for _, err := range []error{note(l, 'r', "80x24"), note(l, 'i', "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	spooled(t, l, Stdout, want[:half])
	if err := note(l, 'r', "100x40"); err != nil {
		t.Fatal(err)
	}
	notes := []string{"r 0 5000000007 80x24", "i 0 5000000007 ", fmt.Sprintf("r %d 5000000007 100x40", half)}
	check := func(l *Log) {
		t.Helper()
		if n, ok := l.Recorded(); n != limit || !ok {
			t.Errorf("recorded: %d, %t", n, ok)
		}
		got := make([]byte, limit)
		if n, _ := l.ReadAt(Stdout, got, 0); n != limit || string(got) != string(want[:limit]) {
			t.Errorf("the beginning: %d bytes, or others", n)
		}
		if n, err := l.ReadAt(Stdout, got, limit); !errors.Is(err, ErrGone) {
			t.Errorf("behind it: %d, %v", n, err)
		}
		if all, whole := noted(t, l); !slices.Equal(all, notes) || !whole {
			t.Errorf("%q, whole %t", all, whole)
		}
	}
	check(l)
	l.Close()
	l, err := s.RecoverRing("x", size)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check(l)
	spooled(t, l, Stdout, want[half:])
	if err := note(l, 'i', "later"); err != nil {
		t.Fatal(err)
	}
	notes = append(notes, fmt.Sprintf("i %d 5000000007 later", total))
	check(l)
	l.Seal()
	if err := note(l, 'i', "too late"); err != nil {
		t.Fatal(err)
	}
	check(l)
}

// Notes are bounded as the output is, and say that there were more; a log that is not recorded has none.
func TestNotesBounded(t *testing.T) {
	s := fresh(t)
	l := s.CreateRing("x", 1<<20)
	const limit = 1000
	if err := l.Record(limit); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := l.Note(Note{Kind: 'i', Data: []byte("0123456789")}); err != nil {
			t.Fatal(err)
		}
	}
	all, whole := noted(t, l)
	if whole || len(all) != limit/(noteHeader+14) {
		t.Errorf("%d notes, whole %t", len(all), whole)
	}
	l.Close()
	name := filepath.Join(s.path, "x.notes")
	content, err := os.ReadFile(name)
	if err != nil || len(content) > notesHeader+limit+noteHeader+4 {
		t.Fatal(len(content), err)
	}
	l, err = s.RecoverRing("x", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Note(Note{Kind: 'i'}); err != nil {
		t.Fatal(err)
	}
	if again, whole := noted(t, l); whole || !slices.Equal(again, all) {
		t.Errorf("recovered: %d notes, whole %t", len(again), whole)
	}
	l.Close()

	// Cut anywhere behind the header, what is whole is there; a header that is not is refused.
	for _, n := range []int{0, notesHeader - 1, notesHeader, notesHeader + 5, len(content) - 1} {
		if err := os.WriteFile(name, content[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := s.RecoverRing("x", 1<<20)
		if n < notesHeader {
			if err == nil {
				t.Errorf("%d bytes are believed", n)
				l.Close()
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if some, _ := noted(t, l); len(some) > len(all) || !slices.Equal(some, all[:len(some)]) {
			t.Errorf("of %d bytes: %q", n, some)
		}
		l.Close()
	}

	plain := create(t, s, "y", 100)
	if err := plain.Note(Note{Kind: 'i'}); err != nil {
		t.Error(err)
	}
	if all, whole := noted(t, plain); len(all) > 0 || !whole {
		t.Errorf("not recorded: %q, %t", all, whole)
	}
	if _, ok := plain.Recorded(); ok {
		t.Error("it is recorded")
	}
}

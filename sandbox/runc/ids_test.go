package runc

import (
	"path/filepath"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

// TestIDRanges has two runners of one host draw from the same ranges (T029). Control: two that do not know of each other draw the same.
func TestIDRanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared", "ids")
	a, err := openIDRanges(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.file.Close()
	b, err := openIDRanges(path)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[uint32]bool{}
	for i := range 20 {
		r := a
		if i%2 == 1 {
			r = b
		}
		base, err := r.take()
		if err != nil {
			t.Fatal(err)
		}
		if taken[base] || base < sandbox.FirstHostID || base > sandbox.LastHostID-sandbox.IDs || base%sandbox.IDs != 0 {
			t.Errorf("range %#x", base)
		}
		taken[base] = true
	}
	alone, err := openIDRanges(filepath.Join(t.TempDir(), "ids"))
	if err != nil {
		t.Fatal(err)
	}
	defer alone.file.Close()
	if base, err := alone.take(); err != nil || !taken[base] {
		t.Errorf("control: %#x is nobody else's, %v", base, err)
	}
	a.give(sandbox.FirstHostID)
	if base, err := b.take(); err != nil || base != sandbox.FirstHostID {
		t.Errorf("a range that was given back: %#x %v", base, err)
	}
	b.file.Close() // as the kernel does for a runner that has died
	if base, err := a.take(); err != nil || base != sandbox.FirstHostID {
		t.Errorf("a range of a dead runner: %#x %v", base, err)
	}
	for range slots {
		if _, err = a.take(); err != nil {
			break
		}
	}
	if codeOf(err) != sandbox.CodeBusy {
		t.Errorf("when all are taken: %v", err)
	}
}

// TestStagingPlace keeps the runner's own state visible in a staging.
func TestStagingPlace(t *testing.T) {
	for state, not := range map[string]string{"/mnt/state": "/mnt", "/tmp/state": "/tmp", "/var/lib/x": ""} {
		place, err := stagingPlace(state)
		if err != nil {
			t.Fatal(err)
		}
		if place == not || sandbox.Within(state, place) {
			t.Errorf("%s is staged on %s", state, place)
		}
	}
}

// TestUnescape reads mount points as mountinfo writes them.
func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`/a`: "/a", `/a\040b`: "/a b", `/a\134040`: `/a\040`, `/\011\012`: "/\t\n"} {
		if got := unescape(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

//go:build failpoint

package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stockade-dev/stockade/internal/blob"
)

func init() {
	if dir := os.Getenv("STOCKADE_SPOOL_COMMIT"); dir != "" {
		commitForParent(dir)
		os.Exit(0)
	}
}

// commitForParent drains descriptors 3 and 4 to their end, stdout last, and commits stdout.
func commitForParent(dir string) {
	s, err := Open(filepath.Join(dir, "spool"))
	blobs, blobErr := blob.Open(filepath.Join(dir, "blobs"))
	if err := errors.Join(err, blobErr); err != nil {
		panic(err)
	}
	l := s.Create("x", 250_000)
	if err := errors.Join(l.Drain(Stderr, os.NewFile(4, "r")), l.Drain(Stdout, os.NewFile(3, "r"))); err != nil {
		panic(err)
	}
	l.Seal()
	if _, _, err := l.Commit(Stdout, blobs); err != nil {
		panic(err)
	}
}

// C26: killed between any two steps, what the next process finds is every byte once, and what it commits is the
// same blob.
func TestFailpoints(t *testing.T) {
	for _, point := range []string{
		"spool.spliced", "spool.spliced:2", "spool.spliced:3", "spool.noted", "spool.noted:2",
		"spool.final", "blob.synced", "blob.linked", "blob.named", "spool.committed",
	} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			var r, w [len(streams)]*os.File
			size := [len(streams)]int64{250_100, 260_000}
			for _, st := range streams {
				r[st], w[st] = pipe(t)
				go func() { w[st].Write(sequence(st, 0, size[st])); w[st].Close() }()
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "STOCKADE_SPOOL_COMMIT="+dir, "STOCKADE_FAILPOINT="+point)
			cmd.ExtraFiles = r[:]
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v\n%s", err, out)
			}
			s := open(t, filepath.Join(dir, "spool"))
			blobs, err := blob.Open(filepath.Join(dir, "blobs"))
			if err != nil {
				t.Fatal(err)
			}
			defer blobs.Close()
			l := recovered(t, s, "x", 250_000)
			check(t, l)
			for _, st := range streams {
				syscall.SetNonblock(int(r[st].Fd()), true)
				if err := l.Drain(st, r[st]); err != nil {
					t.Fatal(err)
				}
				if l.Kept(st) != 250_000 || l.Total(st) <= l.Kept(st) {
					t.Errorf("%s: %d of %d", st, l.Kept(st), l.Total(st))
				}
			}
			check(t, l)
			l.Seal()
			ref, n, err := l.Commit(Stdout, blobs)
			if err != nil || n != 250_000 || !bytes.Equal(blobContent(t, blobs, ref), sequence(Stdout, 0, 250_000)) {
				t.Error(ref, n, err)
			}
			entries, err := os.ReadDir(filepath.Join(dir, "blobs", "incoming"))
			if err != nil || len(entries) > 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
			if err := s.Remove("x"); err != nil {
				t.Error(err)
			}
			if list, err := s.List(); err != nil || len(list) > 0 {
				t.Error(fmt.Sprint(list), err)
			}
		})
	}
}

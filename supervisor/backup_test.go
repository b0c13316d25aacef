package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func copyOf(a *aging) string { return filepath.Join(a.t.TempDir(), "copy") }

// A copy of a directory in which everything goes on is whole: a supervisor that is started on it knows every receipt
// and has every byte of output that somebody was told of before the copy was begun.
func TestBackup(t *testing.T) {
	small := func(c *Config) { c.Defaults.SegmentBytes = 64 << 10 }
	a := startAging(t, small)
	before := a.exec(a.session(), "flood", "60000")
	a.stop() // which stores a snapshot
	a = a.startAgain(small)
	id := a.session()
	ctx, enough := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			a.exec(id, "flood", "70000")
			time.Sleep(time.Millisecond)
		}
	})
	to := copyOf(a)
	told := 0
	r, err := Backup(t.Context(), a.state, to, func(r BackupReport) { told = r.Files })
	enough()
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if r.Files != told || r.Bytes == 0 || !r.Check.OK || r.Check.Blobs.Checked != r.Check.Blobs.Count || r.Check.Blobs.Count == 0 || r.Check.Replay.Snapshots != 1 {
		t.Errorf("%+v %+v", r, r.Check)
	}
	a.signal(id, "KILL")
	a.stop()
	other := &aging{bench: startOn(t, newFake(), to, nil)}
	defer other.stop()
	if got, err := other.receipt(before.IntentID); err != nil || got.ExecID != before.ExecID {
		t.Errorf("%+v %v", got, err)
	}
	if !other.blobs.Has(before.Payload.Exec.Stdout.Blob.BlobRef) {
		t.Error("the output that a receipt names is not in the copy")
	}
}

// A journal that is trimmed under the copy leaves holes in it: it is begun anew, and there is an end to that.
func TestBackupOfWhatIsTrimmed(t *testing.T) {
	for _, c := range []struct {
		name  string
		trims int
		err   error
	}{{"once", 1, nil}, {"always", backupTries, errTrimmed}} {
		t.Run(c.name, func(t *testing.T) {
			a := startAging(t, trimming)
			a.t = t
			defer a.stop()
			to := copyOf(a)
			begun := 0
			_, err := Backup(t.Context(), a.state, to, func(r BackupReport) {
				if r.Files != 1 { // of each try, the first
					return
				}
				if begun++; begun > c.trims {
					return
				}
				first := a.journal.First()
				for n := 0; a.journal.First() == first; n++ {
					if n == 20 {
						t.Fatal("nothing was trimmed")
					}
					id := a.session()
					a.fill(id, 1)
					a.close(id)
					a.age(31 * 24 * time.Hour)
					a.round()
				}
			})
			if !errors.Is(err, c.err) || begun != min(c.trims+1, backupTries) {
				t.Errorf("%v after %d tries", err, begun)
			}
			if _, statErr := os.Stat(to); (statErr == nil) != (c.err == nil) {
				t.Errorf("the copy: %v", statErr)
			}
		})
	}
}

// Whoever writes the directory may be somebody else than who copies it: what became a link or a pipe after it was listed is not followed, nor
// waited for, and mode and owner of a copy are those of the file that was read.
func TestBackupOfAnotherUsers(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's alone"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		swap func(name string) error
	}{
		{"a link out", func(name string) error { return os.Symlink(secret, name) }},
		{"a link within", func(name string) error { return os.Symlink("one.kept", name) }},
		{"a pipe", func(name string) error { return unix.Mkfifo(name, 0o600) }},
		{"a directory", func(name string) error { return os.Mkdir(name, 0o700) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startAging(t, nil)
			a.t = t
			a.session()
			a.stop()
			one, two := filepath.Join(a.state, "blobs", "one.kept"), filepath.Join(a.state, "blobs", "two.kept")
			for _, name := range []string{one, two} {
				if err := os.WriteFile(name, nil, 0o640); err != nil {
					t.Fatal(err)
				}
			}
			to := copyOf(a)
			swapped := false
			_, err := Backup(t.Context(), a.state, to, func(BackupReport) {
				info, err := os.Stat(filepath.Join(to, "blobs", "one.kept"))
				if err != nil || swapped {
					return
				}
				swapped = true
				if info.Mode() != 0o640 {
					t.Errorf("%v", info.Mode())
				}
				if err := errors.Join(os.Remove(two), c.swap(two)); err != nil {
					t.Error(err)
				}
			})
			if !swapped || err == nil || !strings.Contains(err.Error(), "two.kept is neither a file nor a directory") {
				t.Errorf("swapped: %v, %v", swapped, err)
			}
		})
	}
}

// What cannot be a whole copy is none: nothing is left of it, and nothing that was there is touched.
func TestBackupErrors(t *testing.T) {
	a := startAging(t, nil)
	blob := a.exec(a.session(), "flood", "60000").Payload.Exec.Stdout.Blob.BlobRef
	a.stop()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	there := t.TempDir()
	for _, c := range []struct {
		name, to, err string
		ctx           context.Context
		damage        func() error
	}{
		{name: "canceled", ctx: canceled, err: context.Canceled.Error()},
		{name: "something is there", to: there, err: "exist"},
		{name: "a missing blob", err: string(FindingMissingBlob), damage: func() error {
			sum := strings.TrimPrefix(blob, "sha256:")
			return os.Remove(filepath.Join(a.state, "blobs", sum[:2], sum))
		}},
		{name: "no journal", err: "no such file", damage: func() error { return os.RemoveAll(filepath.Join(a.state, "journal")) }},
		{name: "a link", err: "neither a file nor a directory", damage: func() error { return os.Symlink("/etc/passwd", filepath.Join(a.state, "snapshots", "x.snap")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.damage != nil {
				if err := c.damage(); err != nil {
					t.Fatal(err)
				}
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			to := c.to
			if to == "" {
				to = filepath.Join(t.TempDir(), "copy")
			}
			if _, err := Backup(c.ctx, a.state, to, func(BackupReport) {}); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(to); (err == nil) != (to == there) {
				t.Errorf("%s: %v", to, err)
			}
		})
	}
}

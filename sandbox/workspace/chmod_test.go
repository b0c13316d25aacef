package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// T017, T058: somebody who may write to the directory that is committed to, as another session with the same directory, puts a
// symbolic link in the place of what a commit of root's has just made, or is about to open to itself. What the link leads to keeps its
// permissions.
func TestCommitLinkForTemporary(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := sourceDir(t, nil)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	swapped := 0
	least, end := max(4, rounds(t)/100), time.Now().Add(patience)
	for round := 0; round < least || swapped == 0 && time.Now().Before(end); round++ {
		b := newBox(t, dir, nil)
		b.act(t, func(at func(string) string) error {
			unix.Umask(0)
			for i := range 200 {
				if err := unix.Mkfifo(at(fmt.Sprint("fifo", round, "-", i)), 0o666); err != nil {
					return err
				}
			}
			return nil
		})
		end := make(chan struct{})
		var attacker sync.WaitGroup
		attacker.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				names, err := os.ReadDir(dir)
				if err != nil {
					continue
				}
				for _, n := range names {
					at := filepath.Join(dir, n.Name())
					if strings.HasPrefix(n.Name(), ".stockade-") && os.Remove(at) == nil && os.Symlink(victim, at) == nil {
						swapped++
					}
				}
			}
		})
		for range 50 { // a swap is a conflict, or a link that is committed
			if _, err := b.Commit(context.Background(), sandbox.Caller{}, b.source, nil, unnoted); err == nil {
				break
			}
		}
		close(end)
		attacker.Wait()
	}
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("after %d swaps: %v %v", swapped, st.Mode(), err)
	}
	t.Logf("%d swaps", swapped)
	if swapped == 0 {
		t.Error("the race did not meet")
	}
}

// chmod changes what is at a path, and only what it is meant to be.
func TestChmodBelow(t *testing.T) {
	dir := sourceDir(t, map[string]string{"file": "", "dir/": "", "link": "->file", "up": "->dir"})
	at := below{root: openDir(t, dir)}
	for _, try := range []struct {
		name, kind string
		ok         bool
	}{{"file", "file", true}, {"dir", "dir", true}, {"link", "file", false}, {"up", "dir", false}, {"file", "dir", false}, {"up/../file", "file", false}, {"missing", "file", false}} {
		if err := at.chmod(try.name, try.kind, 0o711); (err == nil) != try.ok {
			t.Errorf("%s: %v", try.name, err)
		}
	}
	for name, want := range map[string]os.FileMode{"file": 0o711, "dir": 0o711} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}

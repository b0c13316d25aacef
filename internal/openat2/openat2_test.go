package openat2

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Who renames something, anywhere, does not keep a path with ".." from being opened.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "root/a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	over, renamed := make(chan struct{}), make(chan error, 1)
	go func() {
		from, to := filepath.Join(dir, "x"), filepath.Join(dir, "y")
		err := os.WriteFile(from, nil, 0o600)
		for err == nil {
			select {
			case <-over:
				renamed <- nil
				return
			default:
				err = os.Rename(from, to)
				from, to = to, from
			}
		}
		renamed <- err
	}()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	once := 0
	for range 20000 {
		const path = "a/b/../../../../a/../a/b/.."
		if fd, err := unix.Openat2(int(root.Fd()), path, &how); err == nil {
			unix.Close(fd)
		} else {
			once++
		}
		fd, err := Open(int(root.Fd()), path, &how)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	close(over)
	if err := <-renamed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of 20000 had to be asked for again", once)
}

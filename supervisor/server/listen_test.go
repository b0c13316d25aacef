package server

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// The path holds nothing, or a socket of ours that nobody serves; anything else is
// refused and left alone (T153).
func TestListen(t *testing.T) {
	stale := func(t *testing.T, path string) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	for _, row := range []struct {
		name string
		prep func(t *testing.T, path string)
		says string // "" when it listens
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"no directory", func(t *testing.T, path string) { os.Remove(filepath.Dir(path)) }, ""},
		{"stale socket", stale, ""},
		{"a kill before the socket was in its place", func(t *testing.T, path string) {
			private := filepath.Join(filepath.Dir(path), ".s-1234")
			os.Mkdir(private, 0o700)
			stale(t, filepath.Join(private, "s"))
		}, ""},
		{"live socket", func(t *testing.T, path string) {
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
		}, "is answering"},
		{"file", func(t *testing.T, path string) { os.WriteFile(path, nil, 0o600) }, "not a socket"},
		{"symlink to a stale socket", func(t *testing.T, path string) {
			stale(t, path+"2")
			os.Symlink(path+"2", path)
		}, "not a socket"},
		{"dangling symlink", func(t *testing.T, path string) { os.Symlink("/nowhere", path) }, "not a socket"},
		{"fifo", func(t *testing.T, path string) { unix.Mkfifo(path, 0o600) }, "not a socket"},
		{"directory of all", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o777) }, "written by others"},
		{"directory of all, sticky", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky) }, ""},
		{"socket of somebody else", func(t *testing.T, path string) {
			stale(t, path)
			if err := os.Lchown(path, 12345, -1); err != nil {
				skip(t, "giving a socket away takes root")
			}
		}, "of uid 12345"},
		{"directory of somebody else", func(t *testing.T, path string) {
			if err := os.Chown(filepath.Dir(path), 12345, -1); err != nil {
				skip(t, "giving a directory away takes root")
			}
		}, "belongs to uid 12345"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "stockade-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "d", "s")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			row.prep(t, path)
			before, _ := os.Lstat(path)
			ln, err := Listen(path)
			if row.says != "" {
				if err == nil || !strings.Contains(err.Error(), row.says) {
					t.Fatalf("%v, want %q", err, row.says)
				}
				if after, _ := os.Lstat(path); before != nil && (after == nil || !os.SameFile(before, after)) {
					t.Error("what was there is gone")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != os.ModeSocket|0o660 {
				t.Errorf("%v %v", info.Mode(), err)
			}
			if ln.Addr().String() != path {
				t.Errorf("address %s", ln.Addr())
			}
			ln.Close()
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Closing does not remove the socket of a successor.
func TestListenReplaced(t *testing.T) {
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	second, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// The kernel says who the peer is, with every group, however many.
func TestPeer(t *testing.T) {
	b := newBox(t, Options{})
	r, err := b.Open(t.Context(), local())
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Principal.Groups) != len(want) {
		t.Errorf("groups %v, want %v", r.Principal.Groups, want)
	}
	for i, g := range r.Principal.Groups {
		if g != uint32(want[i]) {
			t.Errorf("groups %v, want %v", r.Principal.Groups, want)
		}
	}
}

func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// T152: whoever gives a session a way to the socket gives its commands no voice there.
func TestPeerInsideASession(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "being somebody else takes root")
	}
	b := newBox(t, Options{})
	for path, mode := range map[string]os.FileMode{filepath.Dir(b.socket): 0o755, b.socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[uintptr]string{1001: "HTTP/1.1 200", sandbox.FirstHostID + 1000: ""} {
		got := make(chan string, 1)
		go func() {
			runtime.LockOSThread() // for ever: the thread with the other identity ends with this goroutine
			var answer [12]byte
			defer func() { got <- strings.TrimRight(string(answer[:]), "\x00") }()
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
				t.Error(errno)
				return
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(fd)
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: b.socket}); err != nil {
				t.Error(err)
				return
			}
			unix.Write(fd, []byte("GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			unix.Read(fd, answer[:])
		}()
		if answer := <-got; answer != want {
			t.Errorf("uid %d: %q, want %q", uid, answer, want)
		}
	}
}

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the group that may connect, if the machine has it.
const Group = "stockade"

// Listen makes the socket at path, mode 0660, for the group [Group] where it exists.
//
// It refuses a directory in which others could replace the socket, and a path that
// holds anything but a socket of ours that nobody serves any more (T153). The socket
// appears under its name only once its mode is right. Closing the listener removes it.
func Listen(path string) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return nil, fmt.Errorf("socket %s: longer than %d bytes, nobody could connect", path, most)
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := clearPath(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	ln, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ln, nil
}

// checkDir makes the directory if it is missing, and refuses one where somebody other
// than root and this process could put another socket in place of ours.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner != 0 && owner != uint32(os.Geteuid()) {
		return fmt.Errorf("directory %s belongs to uid %d", dir, owner)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		return fmt.Errorf("directory %s can be written by others", dir)
	}
	return nil
}

// clearPath removes a socket that an earlier process of ours left, and nothing else.
func clearPath(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("there is something that is not a socket (%s)", info.Mode())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != uint32(os.Geteuid()) {
		return fmt.Errorf("there is a socket of uid %d", owner)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return errors.New("a supervisor is answering there")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// sweep removes the private directories of processes of ours that were killed in bind. That of one
// that is in it at this moment has lost to us then.
func sweep(dir, prefix string) {
	left, err := os.ReadDir(dir)
	if err != nil {
		return // it can be entered, and not be read
	}
	for _, e := range left {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// bind listens in a private directory and moves the finished socket to its place, so
// that there is no moment at which it can be reached with another mode.
func bind(path string) (net.Listener, error) {
	prefix := "." + filepath.Base(path) + "-"
	sweep(filepath.Dir(path), prefix)
	private, err := os.MkdirTemp(filepath.Dir(path), prefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	dir, err := os.Open(private)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// By descriptor: the private name may be longer than a socket address can be.
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/s", dir.Fd())})
	if err != nil {
		return nil, err
	}
	inner.SetUnlinkOnClose(false)
	ln := &socket{UnixListener: inner, path: path}
	made := filepath.Join(private, "s")
	err = shorten(inner)
	if err == nil {
		err = own(made)
	}
	if err == nil {
		ln.info, err = os.Lstat(made)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		inner.Close()
		return nil, err
	}
	return ln, nil
}

// queue is how many connections wait to be accepted. Go asks for net.core.somaxconn, 4096: behind so many of a
// neighbour who connects in a loop everybody waits a tenth of a second.
const queue = 1024

// shorten makes the queue of a socket that listens already as long as it is to be.
func shorten(ln *net.UnixListener) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = os.NewSyscallError("listen", unix.Listen(int(fd), queue)) })
	return errors.Join(err, failed)
}

// own gives the socket its group and mode.
func own(path string) error {
	if g, err := user.LookupGroup(Group); err == nil {
		gid, err := strconv.Atoi(g.Gid)
		if err != nil {
			return fmt.Errorf("group %s: %w", Group, err)
		}
		// An unprivileged supervisor that is not in the group keeps its own.
		if err := os.Lchown(path, -1, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return os.Chmod(path, 0o660)
}

// socket is a listener under its final name.
type socket struct {
	*net.UnixListener
	path string
	info fs.FileInfo
	once sync.Once
}

// Addr returns the name that callers use.
func (l *socket) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Close removes the socket, unless another one has taken its place.
func (l *socket) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.info) {
			os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}

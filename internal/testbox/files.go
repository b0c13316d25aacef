package testbox

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool"
	"github.com/stockade-dev/stockade/sandbox/files"
)

// ServeFiles is a file worker in this process, for launchers that are none: it serves on a duplicate of socket, in a directory that
// stands for the session's root, until the other end is closed.
func ServeFiles(socket *os.File, dir string) (ended <-chan int, err error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		root.Close()
		return nil, err
	}
	out := make(chan int, 1)
	go func() {
		defer root.Close()
		status := files.Serve(fd, func(c files.Config, _ *os.File, store *files.Store) (files.Tools, error) {
			return filetool.Open(filetool.Config{Root: root, Workdir: c.Workdir, Caps: c.Caps, Store: store.Put, Load: store.Get})
		})
		unix.Close(fd)
		out <- status
	}()
	return out, nil
}

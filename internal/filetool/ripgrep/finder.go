package ripgrep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// ErrGone says that the helper has ended.
var ErrGone = errors.New("the ripgrep helper is gone")

// Finder is the worker's end of the conversation with its helper. Its methods may be called from any number of goroutines. It lives as
// long as its process: the helper ends with it.
type Finder struct {
	fd int

	mu    sync.Mutex
	last  uint64
	calls map[uint64]chan answer // each with capacity 1; nil once gone
}

type answer struct {
	kind byte
	rest string
}

// Start starts a helper: own is the program of this process, by a path that may be executed, arg what makes it call Serve. Nobody waits for
// the helper: it is reaped by whoever inherits it.
func Start(own, arg string, program *os.File) (*Finder, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	_, err = syscall.ForkExec(own, []string{"stockade-init", arg}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{uintptr(fds[1]), program.Fd(), 2},
	})
	unix.Close(fds[1])
	if err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("start the ripgrep helper: %w", err)
	}
	f := &Finder{fd: fds[0], calls: map[uint64]chan answer{}}
	go f.receive()
	return f, nil
}

// Names are the files below a directory, by their paths from there, of which ripgrep says that a line matches a pattern of its
// language. The order is no order.
func (f *Finder) Names(ctx context.Context, dir int, pattern string) ([]string, error) {
	got := make(chan answer, 1)
	f.mu.Lock()
	if f.calls == nil {
		f.mu.Unlock()
		return nil, ErrGone
	}
	f.last++
	n := f.last
	f.calls[n] = got
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.calls, n)
		f.mu.Unlock()
	}()
	if err := packet.Send(f.fd, message(kindSearch, n, []byte(pattern)), dir); err != nil {
		return nil, fmt.Errorf("ask the ripgrep helper: %w", err)
	}
	select {
	case a, ok := <-got:
		switch {
		case !ok:
			return nil, ErrGone
		case a.kind == kindNames:
			return names(a.rest)
		}
		return nil, fmt.Errorf("ripgrep: %.500s", a.rest)
	case <-ctx.Done():
		_ = packet.Send(f.fd, message(kindCancel, n, nil)) // or it is gone, and the search with it
		return nil, context.Cause(ctx)
	}
}

// names are what ripgrep prints with --files-with-matches and --null in the directory ".".
func names(printed string) ([]string, error) {
	if printed == "" {
		return nil, nil
	}
	printed, whole := strings.CutSuffix(printed, "\x00")
	if !whole {
		return nil, errMalformed
	}
	list := strings.Split(printed, "\x00")
	for i, name := range list {
		list[i] = strings.TrimPrefix(name, "./")
	}
	return list, nil
}

// receive hands out what the helper says.
func (f *Finder) receive() {
	buf := new(packet.Buffer)
	for {
		msg, fds, err := buf.Receive(f.fd)
		packet.CloseAll(fds)
		if err != nil {
			break
		}
		kind, n, rest, err := split(msg)
		if err != nil {
			break
		}
		f.mu.Lock()
		if c := f.calls[n]; c != nil {
			delete(f.calls, n)
			c <- answer{kind, string(rest)}
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		close(c)
	}
	f.calls = nil
}

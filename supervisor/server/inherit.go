package server

import (
	"fmt"
	"net"
	"os"
)

// Keep returns the socket of a listener of [Listen] or [Inherit] for another program, which goes
// on with it. Closing the listener no longer takes the name away.
func Keep(ln net.Listener) (*os.File, error) {
	l, ok := ln.(*socket)
	if !ok {
		return nil, fmt.Errorf("keep %v: not a listener of ours", ln.Addr())
	}
	f, err := l.UnixListener.File()
	if err != nil {
		return nil, fmt.Errorf("keep socket %s: %w", l.path, err)
	}
	l.once.Do(func() {})
	return f, nil
}

// Inherit listens on a socket that exists: of a service manager, or kept by a predecessor. ours says
// whether its name at path is to be removed when the listener is closed.
func Inherit(f *os.File, path string, ours bool) (net.Listener, error) {
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherit socket %s: %w", path, err)
	}
	inner, ok := ln.(*net.UnixListener)
	if !ok {
		ln.Close()
		return nil, fmt.Errorf("inherit socket %s: it is a %T", path, ln)
	}
	inner.SetUnlinkOnClose(false)
	l := &socket{UnixListener: inner, path: path}
	l.info, err = os.Lstat(path)
	if !ours || err != nil {
		l.once.Do(func() {}) // not ours to remove, or gone already
	}
	return l, nil
}

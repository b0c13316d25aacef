package cgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher tells when groups run empty. One inotify instance serves a whole Tree: a user
// has 128 of them by default, and a Tree has more leaves than that.
type watcher struct {
	fd   int // of file; file.Fd would make it blocking
	file *os.File
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	waiters map[int32]map[chan struct{}]bool // by watch descriptor
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", err)
	}
	w := &watcher{
		fd:      fd,
		file:    os.NewFile(uintptr(fd), "inotify"),
		done:    make(chan struct{}),
		waiters: make(map[int32]map[chan struct{}]bool),
	}
	go w.read()
	return w, nil
}

func (w *watcher) close() error {
	err := w.file.Close()
	<-w.done
	return err
}

// read wakes waiters until the file is closed.
func (w *watcher) read() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for e := buf[:n]; len(e) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(e))
			mask := binary.NativeEndian.Uint32(e[4:])
			for key, set := range w.waiters {
				if key != wd && mask&unix.IN_Q_OVERFLOW == 0 {
					continue
				}
				for ch := range set {
					select {
					case ch <- struct{}{}:
					default: // it has a wake-up to come already
					}
				}
			}
			e = e[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(e[12:]):]
		}
		w.mu.Unlock()
	}
}

// empty returns when no process is in the group or below it any more, or with ctx. That it cannot be looked at, or not be
// watched, does not make it empty: who is in it goes on all the same, and it is looked at again.
func (w *watcher) empty(ctx context.Context, g group) error {
	if empty, _ := g.empty(); empty { // the common case: nothing outlived the command
		return nil
	}
	woken, leave, err := w.join(g.file("cgroup.events"))
	if err != nil { // gone, or no watches left
		leave = func() {}
	}
	defer leave()

	// The kernel holds a second notice back for 10 ms. What has just been killed is gone
	// sooner than that: look, ever less often, as long as a notice may be held back, and for good where none comes.
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, longest) {
		empty, err := g.empty()
		if empty {
			return nil
		}
		var look <-chan time.Time
		if pause < 20*time.Millisecond || woken == nil || err != nil {
			look = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-woken:
		case <-look:
		}
	}
}

// join subscribes to changes of a file. Two subscribers of one file share a watch: the
// kernel gives them the same descriptor.
func (w *watcher) join(file string) (woken chan struct{}, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := unix.InotifyAddWatch(w.fd, file, unix.IN_MODIFY)
	if err != nil {
		return nil, nil, err
	}
	wd := int32(n)
	woken = make(chan struct{}, 1)
	if w.waiters[wd] == nil {
		w.waiters[wd] = make(map[chan struct{}]bool)
	}
	w.waiters[wd][woken] = true
	return woken, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters[wd], woken)
		if len(w.waiters[wd]) == 0 {
			delete(w.waiters, wd)
			unix.InotifyRmWatch(w.fd, uint32(wd)) // EINVAL: the group went, and its watch with it
		}
	}, nil
}

// empty reports whether no process is in the group or below it. One that has been removed
// is empty.
func (g group) empty() (bool, error) {
	populated, err := keyed(g.file("cgroup.events"), "populated")
	if err != nil {
		if gone(err) {
			return true, nil
		}
		return false, fmt.Errorf("cgroup %s: %w", g.dir(), err)
	}
	return populated == 0, nil
}

// gone recognises a group that has been removed: from its path, and from a file of it that
// was open.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) }

package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// slots is how many ranges of host ids there are.
const slots = (sandbox.LastHostID - sandbox.FirstHostID) / sandbox.IDs

// idRanges gives each session 64 Ki host ids of its own. Every runner on the host
// draws from the same ranges: a range is taken while the byte of its number is
// locked in a file that they share, and the kernel gives it back when a runner dies.
type idRanges struct {
	mu    sync.Mutex
	file  *os.File
	taken [slots]bool
}

func openIDRanges(path string) (*idRanges, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, fmt.Errorf("id ranges: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("id ranges: %w", err)
	}
	return &idRanges{file: f}, nil
}

// take returns the first host id of a free range.
func (r *idRanges) take() (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.taken {
		if r.taken[i] {
			continue
		}
		err := r.lock(i, unix.F_WRLCK)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			continue // another runner's
		}
		if err != nil {
			return 0, fmt.Errorf("lock id range %d: %w", i, err)
		}
		r.taken[i] = true
		return sandbox.FirstHostID + uint32(i)*sandbox.IDs, nil
	}
	return 0, sandbox.Errorf(sandbox.CodeBusy, "all %d ranges of user ids are taken", slots)
}

// all are the first host ids of the ranges that are taken.
func (r *idRanges) all() []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var bases []uint32
	for i, taken := range r.taken {
		if taken {
			bases = append(bases, sandbox.FirstHostID+uint32(i)*sandbox.IDs)
		}
	}
	return bases
}

// give returns a range once no process of the session is left.
func (r *idRanges) give(base uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := int(base-sandbox.FirstHostID) / sandbox.IDs
	r.taken[i] = false
	_ = r.lock(i, unix.F_UNLCK)
}

func (r *idRanges) lock(i int, kind int16) error {
	return unix.FcntlFlock(r.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: int64(i), Len: 1})
}

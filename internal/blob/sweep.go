package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Sweep removes the content that keep does not want and that was put last before olderThan. It may run beside
// everything else, and end at any instant: each removal is whole by itself.
//
// A put makes content young before it returns the reference, under the lock under which Sweep looks at
// the age and removes. So nothing vanishes that somebody is about to name, if olderThan is well before
// the instant of which keep tells: by more than a record follows its put and more than the clock is ever set.
//
// bytes is the length of what was removed. A file that has another name ([Store.Take]) goes on
// taking room until that one is removed.
func (s *Store) Sweep(ctx context.Context, keep func(ref string) bool, olderThan time.Time) (removed int, bytes int64, err error) {
	for i := range s.fans {
		n, size, err := s.sweepFan(ctx, i, keep, olderThan)
		removed += n
		bytes += size
		if err != nil {
			return removed, bytes, fmt.Errorf("sweep blobs: %w", err)
		}
	}
	return removed, bytes, nil
}

func (s *Store) sweepFan(ctx context.Context, i int, keep func(ref string) bool, olderThan time.Time) (removed int, bytes int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	entries, err := s.entries(i)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if removed > 0 {
			err = errors.Join(err, durable.SyncDir(s.fanDir(i)))
		}
	}()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return removed, bytes, err
		}
		if !e.modified.Before(olderThan) || keep(e.ref) {
			continue
		}
		gone, err := s.removeOld(i, e.ref, olderThan)
		if err != nil {
			return removed, bytes, err
		}
		if gone {
			removed++
			bytes += e.size
			failpoint.Hit("blob.swept")
		}
	}
	return removed, bytes, nil
}

// Each calls fn with what is there, in the order of the references, and its size. Content that comes or goes
// meanwhile may be among it or not. An error of fn ends it and is returned as it is.
func (s *Store) Each(fn func(ref string, size int64) error) error {
	for i := range s.fans {
		entries, err := s.entries(i)
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, e := range entries {
			if err := fn(e.ref, e.size); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry is content that is there.
type entry struct {
	ref      string
	size     int64
	modified time.Time // when it was put last; putting the same content again makes it young
}

// entries is what a fan holds, in the order of the references. Content that comes or goes
// meanwhile may be among it or not.
func (s *Store) entries(i int) ([]entry, error) {
	names, err := os.ReadDir(s.fanDir(i))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		ref := scheme + name.Name()
		if _, err := Digest(ref); err != nil {
			continue // not of ours
		}
		info, err := name.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed just now
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{ref, info.Size(), info.ModTime()})
	}
	return entries, nil
}

func (s *Store) fanDir(i int) string { return filepath.Join(s.dir, fmt.Sprintf("%02x", i)) }

// removeOld removes content if it is old still.
func (s *Store) removeOld(i int, ref string, olderThan time.Time) (gone bool, err error) {
	name := s.path(ref[len(scheme):])
	s.fans[i].mu.Lock()
	defer s.fans[i].mu.Unlock()
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.ModTime().Before(olderThan) {
		return false, err
	}
	return true, os.Remove(name)
}

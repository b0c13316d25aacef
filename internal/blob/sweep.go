package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Entry is content that is there.
type Entry struct {
	Ref      string
	Size     int64
	Modified time.Time // when it was put last; putting the same content again makes it young
}

// List gives what is there, in the order of the references. Content that comes or goes
// meanwhile may be among it or not. After an error nothing follows.
func (s *Store) List() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := range s.fans {
			entries, err := s.fanEntries(i)
			if err != nil {
				yield(Entry{}, fmt.Errorf("list blobs: %w", err))
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (s *Store) fanDir(i int) string { return filepath.Join(s.dir, fmt.Sprintf("%02x", i)) }

func (s *Store) fanEntries(i int) ([]Entry, error) {
	names, err := os.ReadDir(s.fanDir(i))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(names))
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
		entries = append(entries, Entry{Ref: ref, Size: info.Size(), Modified: info.ModTime()})
	}
	return entries, nil
}

// Has says whether content is there; it does not look whether it is whole.
func (s *Store) Has(ref string) bool {
	digest, err := Digest(ref)
	if err != nil {
		return false
	}
	_, err = os.Lstat(s.path(digest))
	return err == nil
}

// Touch makes content that is there as young as if it were put now. Who is about to name content
// that was put long ago does it before he looks at it: then no [Store.Sweep] takes it before it is named.
func (s *Store) Touch(ref string) error {
	digest, err := Digest(ref)
	if err != nil {
		return err
	}
	mu := &s.fan(digest).mu
	mu.Lock()
	defer mu.Unlock()
	if err := touch(s.path(digest)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, ref)
	} else if err != nil {
		return fmt.Errorf("touch blob: %w", err)
	}
	return nil
}

// Remove removes content, durably. What is not there is no error.
func (s *Store) Remove(ref string) error {
	digest, err := Digest(ref)
	if err != nil {
		return err
	}
	name := s.path(digest)
	mu := &s.fan(digest).mu
	mu.Lock()
	err = os.Remove(name)
	mu.Unlock()
	if err == nil {
		err = durable.SyncDir(filepath.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove blob: %w", err)
	}
	return nil
}

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
	entries, err := s.fanEntries(i)
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
		if !e.Modified.Before(olderThan) || keep(e.Ref) {
			continue
		}
		gone, err := s.removeOld(i, e.Ref, olderThan)
		if err != nil {
			return removed, bytes, err
		}
		if gone {
			removed++
			bytes += e.Size
			failpoint.Hit("blob.swept")
		}
	}
	return removed, bytes, nil
}

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

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Trim gives back the space of records below before: of whole segments, and never the
// last. It returns the first record that is left. The numbers of records stay what they are.
//
// What goes is under a signed checkpoint first, and an anchor takes its place durably:
// the chain value and the edge of the Merkle tree, signed. After a crash
// at any moment the journal begins where it did, or at the anchor. A proof of a trimmed
// record and a checkpoint over it, kept elsewhere, are as good as before.
//
// Trim needs room for its notes, a few KiB: after [ErrFull] nothing was trimmed. Any other
// error of a write or sync is final as in [Journal.Append]. A segment that cannot be unlinked
// is an error, is not part of the journal any more, and is tried again by the next Open.
func (j *Journal) Trim(before int64) (first int64, err error) {
	j.signing.Lock()
	defer j.signing.Unlock()
	segments := j.snapshot()
	keep := min(holding(segments, before), len(segments)-1)
	if j.sums == nil {
		err = ErrClosed
	} else if err = j.failure(); err == nil && keep > 0 {
		err = j.trim(segments[:keep], &segments[keep])
	}
	if err != nil {
		return j.First(), fmt.Errorf("trim: %w", err)
	}
	return segments[keep].first, nil
}

// Cut is the least that [Journal.Trim] can be asked for so that it gives anything back: where
// the second segment begins. ok is false while there is none.
func (j *Journal) Cut() (before int64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.segments) < 2 {
		return 0, false
	}
	return j.segments[1].first, true
}

func (j *Journal) trim(old []segment, keep *segment) error {
	// The anchor must not be the only word for what it stands for: a journal without
	// checkpoints over the trimmed records says that they were removed.
	if j.signed.Load() < keep.first {
		if _, err := j.checkpoint(); err != nil {
			return err
		}
		failpoint.Hit("journal.trim.signed")
	}
	msg, err := newAnchor(j.signer.Name(), keep.before).sign(j.signer)
	if err != nil {
		return err
	}
	f, err := j.replace(anchorFile, msg)
	if err != nil {
		return err
	}
	f.Close()
	failpoint.Hit("journal.trim.anchored")

	// From here on the old segments are rubbish, to readers too.
	j.mu.Lock()
	j.segments = slices.Clone(j.segments[len(old):])
	j.mu.Unlock()
	for i := range old {
		err = errors.Join(err, j.disk.remove(filepath.Join(j.dir, old[i].name)))
		failpoint.Hit("journal.trim.removed")
	}
	if err != nil {
		return err
	}
	if err := j.disk.syncDir(j.names); err != nil {
		return j.fail(err)
	}
	// Last, because the segments have made room; if there is none even so, the next Trim
	// does it.
	if err := j.pruneCheckpoints(keep.first); !errors.Is(err, ErrFull) {
		return err
	}
	return nil
}

// pruneCheckpoints drops the notes over fewer than first records: nobody can check them
// any more, and each Open would check their signatures.
func (j *Journal) pruneCheckpoints(first int64) error {
	data := make([]byte, j.sumsEnd)
	if _, err := j.sums.ReadAt(data, 0); err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	signed, _, err := parseCheckpoints(data, j.known)
	if err != nil {
		return err
	}
	kept := slices.IndexFunc(signed, func(c checkpoint) bool { return c.size >= first })
	if kept <= 0 {
		return nil
	}
	data = data[signed[kept].at:]
	f, err := j.replace(checkpointFile, data)
	if err != nil {
		return err
	}
	failpoint.Hit("journal.trim.pruned")
	j.sums.Close()
	j.sums, j.sumsEnd = f, int64(len(data))
	return nil
}

// replace gives a file of the journal new content, whole, and returns it open: after a
// crash at any moment there is the old file or the new one.
func (j *Journal) replace(name string, data []byte) (_ *os.File, err error) {
	to := filepath.Join(j.dir, name)
	from := to + unfinished
	f, err := j.disk.create(from)
	if busy(err) {
		return nil, err // nothing has happened
	}
	if err == nil {
		_, err = j.disk.write(f, data, 0)
	}
	if full(err) {
		// Nothing depends on it yet.
		if f != nil {
			f.Close()
			os.Remove(from)
		}
		return nil, fmt.Errorf("%s: %w: %w", name, ErrFull, err)
	}
	if err == nil {
		err = j.disk.sync(f)
	}
	if err == nil {
		failpoint.Hit("journal.trim.written")
		err = j.disk.rename(from, to)
	}
	if err == nil {
		failpoint.Hit("journal.trim.renamed")
		err = j.disk.syncDir(j.names)
	}
	if err == nil {
		return f, nil
	}
	if f != nil {
		f.Close()
	}
	return nil, j.fail(err)
}

// unfinished ends the name of a file that will replace another.
const unfinished = ".new"

// sweep removes what a crash can have left that is not part of the journal: files that
// were to become something, and segments that a Trim had not unlinked yet. The directory
// must have been synced since the anchor was seen: without it they would be missed.
func (j *Journal) sweep(trimmed []string) error {
	for _, name := range append(trimmed, spareFile, anchorFile+unfinished, checkpointFile+unfinished) {
		if err := j.disk.remove(filepath.Join(j.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

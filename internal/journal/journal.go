// Package journal is an append-only log of records on the disk. [Journal.Append] returns
// when its records are durable, and not before; many callers share one disk sync.
// Records are opaque bytes, kept as given, chained and under a Merkle root that is
// signed from time to time, so that [Verify] needs a public key and no daemon.
//
// What was acknowledged is never dropped: the end of a write that a crash interrupted is
// cut at the next [Open], and anything else that is wrong is reported and left alone.
// The first failed write or sync is final.
//
// It does not know what records mean, removes none but by [Journal.Trim], and keeps no
// index of them but their number. FORMAT.md draws the bytes.
package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// Journal is an open journal. Its methods may be called at the same time.
type Journal struct {
	dir    string
	opt    Options
	disk   *disk
	lock   *os.File
	names  *os.File // the directory, open: to sync it takes no descriptor
	signer note.Signer
	public string
	known  note.Verifiers

	// lead holds one token: who has it writes for everybody who waits, and owns
	// the fields of writer. Waiting callers take turns; there is no goroutine to hand
	// records to, and to be woken by.
	lead chan struct{}
	writer

	mu       sync.Mutex
	queue    []*request
	closed   bool
	failed   error // the first failure; final
	segments []*segment
	tree     tree // over the durable records

	signing sync.Mutex // guards the checkpoint file and the anchor
	sums    *os.File
	sumsEnd int64
	signed  atomic.Int64 // records under the last stored checkpoint

	due     chan struct{} // asks the signing goroutine for a checkpoint
	stop    chan struct{}
	stopped chan struct{}
}

// Open opens the journal in dir, which it makes if need be, with a key pair. It checks
// every byte. One journal at a time can have the directory. The caller closes it.
//
// Errors: [*CorruptError] (with [ErrRolledBack] inside when the journal is too short),
// [ErrVersion], [durable.ErrLocked].
func Open(dir string, opt Options) (*Journal, error) {
	if err := opt.defaults(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := durable.PrivateDir(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	lock, err := durable.Lock(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{
		dir: dir, opt: opt, disk: opt.disk, lock: lock,
		lead:    make(chan struct{}, 1),
		due:     make(chan struct{}, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if j.names, err = os.Open(dir); err == nil {
		err = j.open()
	}
	if err != nil {
		j.closeFiles()
		return nil, fmt.Errorf("open journal: %w", err)
	}
	go j.sign()
	return j, nil
}

func (j *Journal) open() error {
	if err := j.openKey(); err != nil {
		return err
	}
	verifier, err := note.NewVerifier(j.public)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	j.known = note.VerifierList(verifier)
	found := &survey{each: j.opt.Each}
	if err := found.files(j.dir, j.known, nil); err != nil {
		return err
	}
	if err := j.openCheckpoints(found.notes); err != nil {
		return err
	}
	j.segments, j.tree = found.segments, found.tree
	j.signed.Store(found.lastSigned())
	j.chain, j.next = found.chain, found.tree.n
	if err := j.sweep(found.trimmed); err != nil {
		return err
	}
	if len(j.segments) == 0 {
		return j.rotate()
	}
	return j.openLast(found.tail)
}

// openLast takes up the last segment where the last whole Append ended.
func (j *Journal) openLast(tail int64) error {
	last := j.segments[len(j.segments)-1]
	j.last = last
	f, err := os.OpenFile(filepath.Join(j.dir, last.name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	j.file, j.end = f, last.end
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if tail > 0 {
		// Durably gone before anything is written: what stood there could later
		// look like records that follow the new ones.
		if err := j.disk.truncate(f, last.end); err != nil {
			return err
		}
		if err := j.disk.sync(f); err != nil {
			return err
		}
		size = last.end
	}
	j.capacity = max(j.opt.SegmentBytes, size)
	if err := j.disk.allocate(f, j.capacity); full(err) {
		// A journal on a full disk can be read, and what is allocated can be used. The
		// first Append that needs more will ask again.
		j.capacity = size
	} else if err != nil {
		return err
	}
	if len(last.offsets) == 0 {
		return nil // the last write was to an earlier segment, and its sync came
	}
	from, err := last.lastWrite(f)
	if err != nil {
		return err
	}
	return j.writeAgain(f, from, last.end)
}

// writeAgain makes durable what the last write of an earlier daemon left, of which nobody
// knows whether its sync came, or failed. Where it failed, the kernel still shows the
// bytes and counts them as written: only a new write makes it try again.
func (j *Journal) writeAgain(f *os.File, from, to int64) error {
	b := make([]byte, to-from)
	if _, err := f.ReadAt(b, from); err != nil {
		return err
	}
	if _, err := j.disk.write(f, b, from); err != nil {
		return err
	}
	return j.disk.sync(f)
}

// PublicKey is the key that verifies the journal's checkpoints, in the form of
// [note.NewVerifier]. It is also in the file key.pub.
func (j *Journal) PublicKey() string { return j.public }

// First is the sequence number of the first record that was not trimmed.
func (j *Journal) First() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[0].first
}

// Next is the sequence number that the next record gets: how many have become durable
// since the journal was made.
func (j *Journal) Next() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tree.n
}

// Size is how many bytes the records from First to Next take on the disk. Space that is
// allocated for others is not counted: up to two segments.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var size int64
	for _, seg := range j.segments {
		size += seg.end
	}
	return size
}

// Close waits for appends under way, signs what is not signed, and gives the directory
// back. Appends after it fail with [ErrClosed]; a second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.mu.Unlock()
	close(j.stop)
	<-j.stopped

	j.lead <- struct{}{} // for good
	j.commit(j.take())
	_, err := j.Checkpoint()
	if err == nil {
		err = j.disk.truncate(j.file, j.end)
	}
	j.signing.Lock()
	defer j.signing.Unlock()
	j.closeFiles()
	j.sums = nil
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

func (j *Journal) closeFiles() {
	if j.spare != nil {
		os.Remove(j.sparePath())
	}
	for _, f := range []*os.File{j.file, j.spare, j.sums, j.names, j.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// busy reports whether err says that there are no more descriptors to be had, for the moment.
func busy(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// full reports whether err says that there is no room on the disk.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

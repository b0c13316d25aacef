// Package journal is an append-only log of records on the disk. [Journal.Append] returns
// when its records are durable, and not before; many callers share one disk sync.
// Records are opaque bytes, kept as given, chained and under a Merkle root that is
// signed from time to time, so that [Verify] needs a public key and no daemon.
//
// What was acknowledged is never dropped: the end of a write that a crash interrupted is
// cut at the next [Open], and anything else that is wrong is reported and left alone.
// The first failed write or sync is final.
//
// It does not know what records mean, never deletes any, and keeps no index of them but
// their number. FORMAT.md draws the bytes.
package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// What a caller can act on.
var (
	// ErrFailed says that an earlier write or sync failed. What was acknowledged stays
	// readable; nothing is appended until the journal is opened anew.
	ErrFailed = errors.New("storage failed, and the journal takes nothing more")
	// ErrFull says that the disk has no room. Nothing was written; a later call may succeed.
	ErrFull = errors.New("no room for the journal")
	// ErrTooLarge says that the records of one Append do not fit.
	ErrTooLarge = errors.New("record is too large")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("journal is closed")
	// ErrVersion says that a later version wrote the journal.
	ErrVersion = errors.New("journal has an unknown format version")
	// ErrRolledBack says that the journal is shorter than a checkpoint that was signed.
	ErrRolledBack = errors.New("journal was rolled back")
	// ErrForeign says that a checkpoint that was kept elsewhere is not one of this journal's.
	ErrForeign = errors.New("not a checkpoint of this journal")
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("no such record")
	// ErrUnsigned says that there is no checkpoint.
	ErrUnsigned = errors.New("journal has no checkpoint")
)

// Options of a journal.
type Options struct {
	Origin          string        // its name in checkpoints, fixed by the first Open; "" means "local"
	SegmentBytes    int64         // size of a file; 0 means 64 MiB
	ReserveBytes    int64         // disk space kept for Settle; 0 means a quarter of SegmentBytes
	CheckpointEvery int64         // records between signatures; 0 means 4096
	CheckpointAfter time.Duration // age at which a record gets signed; 0 means one minute

	disk *disk // nil means the real one
}

func (o *Options) defaults() error {
	if o.Origin == "" {
		o.Origin = "local"
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = o.SegmentBytes / 4
	}
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = 4096
	}
	if o.CheckpointAfter == 0 {
		o.CheckpointAfter = time.Minute
	}
	if o.disk == nil {
		o.disk = &realDisk
	}
	if o.SegmentBytes < 1<<10 || o.SegmentBytes > math.MaxUint32 || o.ReserveBytes < 0 || o.ReserveBytes > o.SegmentBytes/2 {
		return fmt.Errorf("options: a segment of %d bytes with %d in reserve", o.SegmentBytes, o.ReserveBytes)
	}
	return nil
}

// Journal is an open journal. Its methods may be called at the same time.
type Journal struct {
	dir    string
	opt    Options
	disk   *disk
	lock   *os.File
	signer note.Signer
	public string

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

	signing sync.Mutex // guards the checkpoint file
	sums    *os.File
	sumsEnd int64
	signed  atomic.Int64 // records under the last stored checkpoint

	due     chan struct{} // asks the signing goroutine for a checkpoint
	stop    chan struct{}
	stopped chan struct{}
}

// writer is what the caller with the token works on.
type writer struct {
	file     *os.File // the last segment
	capacity int64    // of it, allocated
	end      int64    // where the next frame goes
	next     int64    // sequence number of the next record
	chain    digest
	spare    *os.File // an allocated file that will be the next segment, or nil
	buf      []byte
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
	if err := j.open(); err != nil {
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
	signed, end, err := readCheckpoints(j.dir, note.VerifierList(verifier))
	if err != nil {
		return err
	}
	found := &survey{signed: signed}
	if err := found.run(j.dir); err != nil {
		return err
	}
	if err := j.openCheckpoints(signed, end); err != nil {
		return err
	}
	j.segments, j.tree = found.segments, found.tree
	j.signed.Store(found.lastSigned())
	j.chain, j.next = found.chain, found.tree.n
	// Left by a crash between two steps of a new segment; it holds no record.
	if err := os.Remove(j.sparePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(j.segments) == 0 {
		return j.rotate()
	}
	return j.openLast(found.tail)
}

// openKey reads the key pair, and makes it for a new journal. A journal without its key
// is refused: a new key would vouch for records that the old one had not signed.
func (j *Journal) openKey() error {
	signer, public, err := readKey(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		names, listErr := segmentNames(j.dir)
		_, statErr := os.Stat(filepath.Join(j.dir, checkpointFile))
		if listErr != nil || len(names) > 0 || !errors.Is(statErr, fs.ErrNotExist) {
			return fmt.Errorf("the key is missing: %w", err)
		}
		if err := newKey(j.dir, j.opt.Origin); err != nil {
			return fmt.Errorf("make key: %w", err)
		}
		signer, public, err = readKey(j.dir)
	}
	j.signer, j.public = signer, public
	return err
}

// openCheckpoints opens the checkpoint file, without what is there of a note that was
// never finished.
func (j *Journal) openCheckpoints(signed []checkpoint, end int64) error {
	f, err := os.OpenFile(filepath.Join(j.dir, checkpointFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	j.sums, j.sumsEnd = f, end
	if err := j.disk.truncate(f, end); err != nil {
		return err
	}
	if len(signed) > 0 {
		if err := j.writeAgain(f, signed[len(signed)-1].at, end); err != nil {
			return err
		}
	}
	return j.disk.syncDir(j.dir)
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

// openLast takes up the last segment where the last whole Append ended.
func (j *Journal) openLast(tail int64) error {
	last := j.segments[len(j.segments)-1]
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

// full reports whether err says that there is no room on the disk.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// PublicKey is the key that verifies the journal's checkpoints, in the form of
// [note.NewVerifier]. It is also in the file key.pub.
func (j *Journal) PublicKey() string { return j.public }

// Len is the number of durable records.
func (j *Journal) Len() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tree.n
}

// Append adds recs, in order and with nothing between them, and returns the sequence
// number of the first when all are durable. After a crash there are all of them or none.
// Sequence numbers begin with 0.
//
// ctx ends the wait for the disk's turn. Once the turn has come, Append waits for the
// outcome, however long the disk takes: the caller must know it. After any error but
// [ErrFailed] nothing was written; after ErrFailed the records may or may not be there
// when the journal is opened anew.
//
// When the disk is nearly full, Append fails with [ErrFull] while [Journal.Settle] still
// finds room.
func (j *Journal) Append(ctx context.Context, recs ...[]byte) (first int64, err error) {
	return j.submit(ctx, recs, false)
}

// Settle is Append for records that end what earlier records began, receipts of work
// that is under way above all: it may use the disk space that is kept in reserve.
func (j *Journal) Settle(ctx context.Context, recs ...[]byte) (first int64, err error) {
	return j.submit(ctx, recs, true)
}

// request is the records of one Append on their way.
type request struct {
	recs   [][]byte
	leaves []tlog.Hash
	size   int64 // framed
	settle bool

	first int64
	err   error
	done  chan struct{} // closed when first and err are set
}

func (r *request) finish(first int64, err error) {
	r.first, r.err = first, err
	close(r.done)
}

func (j *Journal) submit(ctx context.Context, recs [][]byte, settle bool) (int64, error) {
	r, err := j.request(recs, settle)
	if err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	if err := j.enqueue(r); err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	cancelled := ctx.Done()
	for {
		select {
		case j.lead <- struct{}{}:
			j.commit(j.take())
			<-j.lead
			cancelled = nil // ours is done, by us or by the leader before
		case <-r.done:
			if r.err != nil {
				return 0, fmt.Errorf("append: %w", r.err)
			}
			return r.first, nil
		case <-cancelled:
			if j.withdraw(r) {
				return 0, fmt.Errorf("append: %w", ctx.Err())
			}
			cancelled = nil
		}
	}
}

// request does what needs no turn: the hashing of content.
func (j *Journal) request(recs [][]byte, settle bool) (*request, error) {
	r := &request{recs: recs, leaves: make([]tlog.Hash, len(recs)), settle: settle, done: make(chan struct{})}
	for i, rec := range recs {
		if len(rec) == 0 {
			return nil, errors.New("a record is empty")
		}
		if len(rec) > MaxRecord {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(rec))
		}
		r.leaves[i] = tlog.RecordHash(rec)
		r.size += framed(len(rec))
	}
	if len(recs) == 0 {
		return nil, errors.New("no records")
	}
	if r.size > j.opt.SegmentBytes-segmentHeader {
		return nil, fmt.Errorf("%w: %d bytes in one append, and a segment has %d", ErrTooLarge, r.size, j.opt.SegmentBytes)
	}
	return r, nil
}

func (j *Journal) enqueue(r *request) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	if j.failed != nil {
		return j.failed
	}
	j.queue = append(j.queue, r)
	return nil
}

func (j *Journal) take() []*request {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch := j.queue
	j.queue = nil
	return batch
}

// withdraw reports whether r could be taken back before its turn came.
func (j *Journal) withdraw(r *request) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.queue, r)
	if i < 0 {
		return false
	}
	j.queue = slices.Delete(j.queue, i, i+1)
	return true
}

// maxWrite bounds one write, and the memory of it, unless a single Append is larger.
const maxWrite = 4 << 20

// commit writes a batch: as many requests as fit go into one write and under one sync.
// Called with the token.
func (j *Journal) commit(batch []*request) {
	for len(batch) > 0 {
		if err := j.makeRoom(batch[0]); err != nil {
			batch[0].finish(0, err)
			batch = batch[1:]
			continue
		}
		n, size := 1, batch[0].size
		for n < len(batch) && size+batch[n].size <= maxWrite && j.fits(size+batch[n].size, batch[n].settle) {
			size += batch[n].size
			n++
		}
		j.commitRun(batch[:n])
		batch = batch[n:]
	}
}

// fits reports whether size bytes more can go into the last segment: and, unless they
// settle something, whether enough allocated space is left after them.
func (j *Journal) fits(size int64, settle bool) bool {
	left := j.capacity - j.end - size
	return left >= 0 && (settle || j.spare != nil || left >= j.opt.ReserveBytes)
}

// makeRoom sees to it that r fits.
func (j *Journal) makeRoom(r *request) error {
	if err := j.failure(); err != nil {
		return err
	}
	if j.end+r.size > j.capacity {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	if !j.fits(r.size, r.settle) {
		return j.makeSpare()
	}
	return nil
}

func (j *Journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// fail makes err the end of all appending, if it is the first.
func (j *Journal) fail(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		j.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return j.failed
}

// commitRun writes requests that fit, syncs, and only then tells anybody.
func (j *Journal) commitRun(run []*request) {
	chain, seq, off := j.chain, j.next, j.end
	seg := j.segments[len(j.segments)-1]
	var offsets []uint32
	b := j.buf[:0]
	for _, r := range run {
		for i, rec := range r.recs {
			chain = link(chain, r.leaves[i])
			h := frame{
				size: uint32(len(rec)), seq: seq, back: uint32(seq - j.next), left: uint32(len(r.recs) - 1 - i),
				chain: chain, sum: recordSum(rec),
			}
			offsets = append(offsets, uint32(off+int64(len(b))))
			b = h.append(b, seg.seed, rec)
			seq++
		}
	}
	_, err := j.disk.write(j.file, b, off)
	if err == nil {
		err = j.disk.sync(j.file)
	}
	if cap(b) <= maxWrite {
		j.buf = b
	}
	if err != nil {
		err = j.fail(err)
		for _, r := range run {
			r.finish(0, err)
		}
		return
	}

	first := j.next
	j.chain, j.next, j.end = chain, seq, off+int64(len(b))
	j.mu.Lock()
	seg.offsets = append(seg.offsets, offsets...)
	seg.end = j.end
	for _, r := range run {
		for _, leaf := range r.leaves {
			j.tree.append(leaf)
		}
	}
	j.mu.Unlock()
	for _, r := range run {
		r.finish(first, nil)
		first += int64(len(r.recs))
	}
	j.askForCheckpoint()
}

func (j *Journal) sparePath() string { return filepath.Join(j.dir, "spare") }

// makeSpare allocates the file that will be the next segment. As long as there is one,
// the whole of it is the reserve.
func (j *Journal) makeSpare() error {
	f, err := j.disk.create(j.sparePath())
	if err == nil {
		err = j.disk.allocate(f, j.opt.SegmentBytes)
	}
	if err == nil {
		j.spare = f
		return nil
	}
	if f != nil {
		f.Close()
		os.Remove(j.sparePath())
	}
	if full(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return j.fail(err)
}

// rotate makes the spare the last segment: its header is durable before it has a name,
// its name before it has a record.
func (j *Journal) rotate() error {
	if j.spare == nil {
		if err := j.makeSpare(); err != nil {
			return err
		}
	}
	o := opening{first: j.next, chain: j.chain}
	rand.Read(o.id[:]) // never fails
	seg := &segment{name: segmentName(o.first), first: o.first, seed: o.seed(), end: segmentHeader}
	steps := []func() error{
		func() error { _, err := j.disk.write(j.spare, o.encode(), 0); return err },
		func() error { return j.disk.sync(j.spare) },
		func() error { return j.disk.rename(j.sparePath(), filepath.Join(j.dir, seg.name)) },
		func() error { return j.disk.syncDir(j.dir) },
		j.seal,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return j.fail(err)
		}
	}
	j.file, j.spare, j.capacity, j.end = j.spare, nil, j.opt.SegmentBytes, segmentHeader
	j.mu.Lock()
	j.segments = append(j.segments, seg)
	j.mu.Unlock()
	return nil
}

// seal gives back what the last segment has allocated and not used. Nothing depends on
// its being durable: zeros at the end of a segment mean nothing.
func (j *Journal) seal() error {
	if j.file == nil {
		return nil
	}
	if err := j.disk.truncate(j.file, j.end); err != nil {
		return err
	}
	return j.file.Close()
}

// Checkpoint signs the number and the Merkle root of all durable records, stores the
// signed note durably, and returns it.
func (j *Journal) Checkpoint() ([]byte, error) {
	j.signing.Lock()
	defer j.signing.Unlock()
	if j.sums == nil {
		return nil, fmt.Errorf("checkpoint: %w", ErrClosed)
	}
	if err := j.failure(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	j.mu.Lock()
	c := checkpoint{origin: j.signer.Name(), size: j.tree.n, root: j.tree.root()}
	j.mu.Unlock()
	msg, err := c.sign(j.signer)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if c.size > j.signed.Load() {
		if err := j.storeCheckpoint(msg); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		j.signed.Store(c.size)
	}
	return msg, nil
}

func (j *Journal) storeCheckpoint(msg []byte) error {
	stored := append(slices.Clone(msg), '\n')
	_, err := j.disk.write(j.sums, stored, j.sumsEnd)
	if full(err) {
		// No record depends on it: the next one is tried when its time comes.
		if err := j.disk.truncate(j.sums, j.sumsEnd); err != nil {
			return j.fail(err)
		}
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err == nil {
		err = j.disk.sync(j.sums)
	}
	if err != nil {
		return j.fail(err)
	}
	j.sumsEnd += int64(len(stored))
	return nil
}

// askForCheckpoint wakes the signing goroutine when enough records wait for a signature.
func (j *Journal) askForCheckpoint() {
	if j.next-j.signed.Load() >= j.opt.CheckpointEvery {
		select {
		case j.due <- struct{}{}:
		default: // asked already
		}
	}
}

// sign makes checkpoints while the journal is open. Close waits for it.
func (j *Journal) sign() {
	defer close(j.stopped)
	tick := time.NewTicker(j.opt.CheckpointAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-j.due:
		case <-j.stop:
			return
		}
		// An error is either final, and every Append tells it, or a full disk, and the
		// next checkpoint covers what this one did not.
		_, _ = j.Checkpoint()
	}
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
	for _, f := range []*os.File{j.file, j.spare, j.sums, j.lock} {
		if f != nil {
			f.Close()
		}
	}
}

package journal

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stockade-dev/stockade/internal/failpoint"
)

const spareFile = "spare"

// writer is what the caller with the token works on.
type writer struct {
	last     *segment // what readers see of it changes under the lock only
	file     *os.File // of the last segment
	capacity int64    // of it, allocated
	end      int64    // where the next frame goes
	next     int64    // sequence number of the next record
	chain    digest
	spare    *os.File // an allocated file that will be the next segment, or nil
	buf      []byte
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
	seg := j.last
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
		failpoint.Hit("journal.append.written")
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

	failpoint.Hit("journal.append.synced")
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

func (j *Journal) sparePath() string { return filepath.Join(j.dir, spareFile) }

// makeSpare allocates the file that will be the next segment. As long as there is one,
// the whole of it is the reserve.
func (j *Journal) makeSpare() error {
	f, err := j.disk.create(j.sparePath())
	if busy(err) {
		return err // nothing has happened
	}
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
	seg.before = &edge{tree: j.tree, chain: j.chain, end: segmentHeader}
	if _, err := j.disk.write(j.spare, o.encode(), 0); err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.roll.written")
	if err := j.disk.sync(j.spare); err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.roll.synced")
	if err := j.disk.rename(j.sparePath(), filepath.Join(j.dir, seg.name)); err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.roll.renamed")
	if err := j.disk.syncDir(j.names); err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.roll.named")
	if err := j.seal(); err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.roll.sealed")
	last := j.last
	j.last, j.file, j.spare, j.capacity, j.end = seg, j.spare, nil, j.opt.SegmentBytes, segmentHeader
	j.mu.Lock()
	defer j.mu.Unlock()
	if last != nil && last.first == seg.first {
		// It had neither records nor, on a full disk, room for any: seg has its name now.
		j.segments = j.segments[:len(j.segments)-1]
	}
	j.segments = append(j.segments, seg)
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

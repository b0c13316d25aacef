package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
)

// openCheckpoints opens the checkpoint file, without what is there of a note that was
// never finished.
func (j *Journal) openCheckpoints(stored notes) error {
	f, err := os.OpenFile(filepath.Join(j.dir, checkpointFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	j.sums, j.sumsEnd = f, stored.end
	if err := j.disk.truncate(f, stored.end); err != nil {
		return err
	}
	if n := len(stored.signed); n > 0 {
		if err := j.writeAgain(f, stored.signed[n-1].at, stored.end); err != nil {
			return err
		}
	}
	return j.disk.syncDir(j.names)
}

// Checkpoint signs the number and the Merkle root of all durable records, stores the
// signed note durably, and returns it.
func (j *Journal) Checkpoint() ([]byte, error) {
	j.signing.Lock()
	defer j.signing.Unlock()
	msg, err := j.checkpoint()
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return msg, nil
}

// checkpoint is called with the lock on what is signed.
func (j *Journal) checkpoint() ([]byte, error) {
	if j.sums == nil {
		return nil, ErrClosed
	}
	if err := j.failure(); err != nil {
		return nil, err
	}
	j.mu.Lock()
	c := checkpoint{origin: j.signer.Name(), size: j.tree.n, root: j.tree.root()}
	j.mu.Unlock()
	msg, err := c.sign(j.signer)
	if err != nil {
		return nil, err
	}
	if c.size > j.signed.Load() {
		if err := j.storeCheckpoint(msg); err != nil {
			return nil, err
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
		failpoint.Hit("journal.checkpoint.written")
		err = j.disk.sync(j.sums)
	}
	if err != nil {
		return j.fail(err)
	}
	failpoint.Hit("journal.checkpoint.synced")
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

package journal

import (
	"errors"
	"fmt"
	"math"
	"time"
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
	// ErrNotFound says that there is no such record yet.
	ErrNotFound = errors.New("no such record")
	// ErrTrimmed says that what was asked for lies before the first record that the
	// journal still has. It comes in a [*TrimmedError].
	ErrTrimmed = errors.New("trimmed")
	// ErrUnsigned says that there is no checkpoint, or none over the record.
	ErrUnsigned = errors.New("journal has no checkpoint")
)

// TrimmedError is [ErrTrimmed], and where the journal begins now.
type TrimmedError struct {
	First int64 // sequence number of the first record there is
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("%v: the journal begins with record %d", ErrTrimmed, e.First)
}

// Unwrap gives [ErrTrimmed].
func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

// Options of a journal.
type Options struct {
	Origin          string        // its name in checkpoints, fixed by the first Open; "" means "local"
	SegmentBytes    int64         // size of a file; 0 means 64 MiB
	ReserveBytes    int64         // disk space kept for Settle; 0 means a quarter of SegmentBytes
	CheckpointEvery int64         // records between signatures; 0 means 4096
	CheckpointAfter time.Duration // age at which a record gets signed; 0 means one minute

	// Each is called by Open with every record that it keeps, in order, while it checks
	// them: who needs them all need not read them a second time. rec is valid until Each
	// returns. An error ends Open, which returns it. When Open fails, what Each was told
	// is void. nil means nobody is told.
	Each func(seq int64, rec []byte) error

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

package supervisor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// A snapshot is the state that the first records of the journal make, stored so that a start need not
// make it again, and so that these records may be trimmed. It is believed when a record behind them
// says that it is the one (ledger.SnapshotTaken), and not before. So the order is:
//
//	file stored ──▶ record durable ──▶ older files removed, records trimmed
//
// A crash after the first step leaves a file that nobody believes; the next start removes it. Two
// are kept, and records are trimmed only behind the older: damage to one file costs nothing then.
type snapshotFile struct {
	snapshotHead
	content []byte // canonical, as [ledger.Restore] takes it
}

// snapshotHead is the first line of the file.
type snapshotHead struct {
	Version   int    `json:"version"`
	Records   int64  `json:"records"` // that it covers
	Digest    string `json:"digest"`  // of what follows the line
	SizeBytes int64  `json:"size_bytes"`
}

const (
	snapshotVersion = 1
	keptSnapshots   = 2
	snapshotSuffix  = ".snap"
)

// snapshots is the directory of snapshots. Files are named by the number of records that they cover.
type snapshots string

func openSnapshots(dir string) (snapshots, error) {
	if err := durable.PrivateDir(dir); err != nil {
		return "", fmt.Errorf("snapshots: %w", err)
	}
	return snapshots(dir), nil
}

func (d snapshots) name(records int64) string {
	return filepath.Join(string(d), fmt.Sprintf("%020d%s", records, snapshotSuffix))
}

// list returns how many records the snapshots cover, the newest first.
func (d snapshots) list() ([]int64, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	var list []int64
	for _, e := range entries {
		text, ok := strings.CutSuffix(e.Name(), snapshotSuffix)
		if n, err := strconv.ParseInt(text, 10, 64); ok && err == nil && n >= 0 && d.name(n) == filepath.Join(string(d), e.Name()) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list, nil
}

// read returns a snapshot that is what its first line says. Whether it is the right one, the
// journal knows.
func (d snapshots) read(records int64) (*snapshotFile, error) {
	b, err := os.ReadFile(d.name(records))
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	f, err := parseSnapshot(b)
	if err == nil && f.Records != records {
		err = fmt.Errorf("it covers %d records", f.Records)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", d.name(records), err)
	}
	return f, nil
}

// head returns the first line of a snapshot: what it says of itself.
func (d snapshots) head(records int64) (head snapshotHead, err error) {
	f, err := os.Open(d.name(records))
	if err != nil {
		return head, err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &head)
	}
	return head, err
}

func parseSnapshot(b []byte) (*snapshotFile, error) {
	line, content, ok := bytes.Cut(b, []byte("\n"))
	f := &snapshotFile{content: content}
	if !ok {
		return nil, errors.New("it has no first line")
	}
	if err := json.Unmarshal(line, &f.snapshotHead); err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}
	switch {
	case f.Version != snapshotVersion:
		return nil, fmt.Errorf("version %d, this program knows %d", f.Version, snapshotVersion)
	case f.SizeBytes != int64(len(content)):
		return nil, fmt.Errorf("%d bytes, not %d", len(content), f.SizeBytes)
	case f.Digest != ledger.Digest(content):
		return nil, fmt.Errorf("its content is not %s", f.Digest)
	}
	return f, nil
}

// headBytes is what the first line takes in a file, filled up with spaces: it is written when what follows has been.
const headBytes = 256

// write stores a snapshot, durably.
func (d snapshots) write(c ledger.Capture) (head snapshotHead, err error) {
	err = durable.ReplaceWith(d.name(c.Records()), func(f *os.File) error {
		if _, err := f.Write(make([]byte, headBytes)); err != nil {
			return err
		}
		buffer := bufio.NewWriterSize(f, 1<<16)
		digest, size, err := c.Write(buffer)
		if err = cmp.Or(err, buffer.Flush()); err == nil {
			err = d.room()
		}
		if err != nil {
			return err
		}
		head = snapshotHead{snapshotVersion, c.Records(), digest, size}
		line, err := api.Encode(head)
		if err == nil {
			_, err = f.WriteAt(fmt.Appendf(nil, "%-*s\n", headBytes-1, line), 0)
		}
		return err
	}, 0o600)
	if err != nil {
		return head, fmt.Errorf("store snapshot: %w", err)
	}
	return head, nil
}

// room leaves the journal what blobs leave it, beside what has been written already.
func (d snapshots) room() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer f.Close()
	return blob.Room(int(f.Fd()), 0)
}

// prune removes the snapshots but those, and what a crash left of one that was not stored whole.
func (d snapshots) prune(keep []int64) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	var names []string
	for _, n := range keep {
		names = append(names, filepath.Base(d.name(n)))
	}
	for _, e := range entries {
		if slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(string(d), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("snapshots: %w", err)
		}
	}
	return nil
}

// taken is which snapshots there are that the journal confirms.
type taken struct {
	dir    snapshots
	one    sync.Mutex    // one is taken at a time; guards kept
	kept   []int64       // records that they cover, the newest first
	newest atomic.Int64  // the first of them; 0: none
	due    chan struct{} // enough has been recorded since
}

// take stores a snapshot of everything that was recorded until now, if anything was since the last.
// The state is held only while it is copied.
func (s *Supervisor) take(ctx context.Context) error {
	t := &s.taken
	t.one.Lock()
	defer t.one.Unlock()
	var c ledger.Capture
	s.chronicle.read(func(state *ledger.State) { c = state.Capture() })
	if last := t.newest.Load(); len(t.kept) > 0 && c.Records() <= last+1 { // the one is its own record
		return nil
	}
	head, err := t.dir.write(c)
	if err != nil {
		return err
	}
	failpoint.Hit("supervisor.snapshot.stored")
	if _, err := s.record(ctx, s.journal.Append, &ledger.SnapshotTaken{Header: ledger.At(s.now()), Records: head.Records, Digest: head.Digest}); err != nil {
		return err
	}
	failpoint.Hit("supervisor.snapshot.recorded")
	t.keep(append([]int64{head.Records}, t.kept...))
	return t.dir.prune(t.kept)
}

// keep says which snapshots are confirmed.
func (t *taken) keep(kept []int64) {
	t.kept = kept[:min(len(kept), keptSnapshots)]
	if len(t.kept) > 0 {
		t.newest.Store(t.kept[0])
	}
}

// behind is the number of records that every snapshot covers: a start can do without them. It is 0 while
// there is only one.
func (t *taken) behind() int64 {
	t.one.Lock()
	defer t.one.Unlock()
	if len(t.kept) < keptSnapshots {
		return 0
	}
	return t.kept[len(t.kept)-1]
}

// recorded asks for a snapshot once there is enough for one.
func (t *taken) recorded(next, every int64) {
	if next-t.newest.Load() < every {
		return
	}
	select {
	case t.due <- struct{}{}:
	default:
	}
}

// takeLast stores what the next start begins with.
func (s *Supervisor) takeLast() {
	if err := s.take(context.Background()); err != nil {
		s.log.Warn("no snapshot is left: the next start reads the records since the last one", "error", err)
	}
}

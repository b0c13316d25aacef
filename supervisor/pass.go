package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// A pass is one reading of the journal, from the first record that it has to the last, into what a
// supervisor knows. Of the records that a snapshot covers it only learns where they are.
type pass struct {
	base   *snapshotFile // what the state begins with; nil: the first record
	into   *chronicle
	claims map[int64]string // digests of the snapshots that records tell of, by how much they cover
	broken error            // why the state is not the journal's
}

// newPass begins a pass with a snapshot, or with nothing.
func newPass(base *snapshotFile) (*pass, error) {
	state := ledger.New()
	if base != nil {
		var err error
		if state, err = ledger.Restore(base.content); err != nil {
			return nil, err
		}
		if state.Records() != base.Records {
			return nil, fmt.Errorf("it is of %d records, not of %d", state.Records(), base.Records)
		}
	}
	return &pass{base: base, into: newChronicle(state, state.Records()), claims: map[int64]string{}}, nil
}

// each takes the next record in.
func (p *pass) each(seq int64, b []byte) error {
	if seq > p.into.next && p.broken == nil {
		p.broken = fmt.Errorf("records %d to %d are not there", p.into.next, seq-1)
	}
	if p.broken != nil {
		return nil
	}
	if err := p.take(seq, b); err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	return nil
}

func (p *pass) take(seq int64, b []byte) error {
	p.into.names.add(seq, b)
	if seq < p.into.next { // the snapshot has it
		g, err := ledger.GlanceOf(b)
		if err != nil {
			return err
		}
		p.claim(seq, g.Snapshot)
		if g.Op != api.OpProcessDelete {
			p.into.place(seq, &g)
			return nil
		}
		r, err := ledger.Decode(b)
		if settled, ok := r.(*ledger.Settled); ok && settled.Receipt != nil {
			p.into.settled(entryOf(seq, settled.Receipt), settled.Receipt)
		}
		return err
	}
	r, err := ledger.Decode(b)
	if err != nil {
		return err
	}
	if told, ok := r.(*ledger.SnapshotTaken); ok {
		p.claim(seq, told)
	}
	p.into.next = seq + 1
	return p.into.apply(seq, r)
}

func (p *pass) claim(seq int64, told *ledger.SnapshotTaken) {
	if told != nil && told.Records <= seq { // what it covers was there before it
		p.claims[told.Records] = told.Digest
	}
}

// end says whether the state is that of a journal that ends before record next.
func (p *pass) end(next int64) error {
	switch {
	case p.broken != nil:
		return p.broken
	case p.into.next != next:
		return fmt.Errorf("it covers %d records, and the journal has %d", p.into.next, next)
	case p.base != nil && !p.confirms(p.base.snapshotHead):
		return errors.New("no record says that it is the one")
	}
	return nil
}

func (p *pass) confirms(head snapshotHead) bool { return p.claims[head.Records] == head.Digest }

// openJournal opens the journal and makes the state that its records amount to: from the newest snapshot
// that they confirm, or from the first of them. The journal is read once, but where a snapshot turns out not
// to be its own. Nothing is carried out (R248).
func (s *Supervisor) openJournal(state string) error {
	dir, err := openSnapshots(filepath.Join(state, "snapshots"))
	if err != nil {
		return err
	}
	stored, err := dir.list()
	if err != nil {
		return err
	}
	for len(stored) > 0 {
		base, err := dir.read(stored[0])
		var p *pass
		if err == nil {
			p, err = newPass(base)
		}
		if err == nil {
			if err := s.readThrough(state, p); err != nil {
				return err
			}
			if err = p.end(s.journal.Next()); err == nil {
				return s.beginWith(p, dir, stored)
			}
		}
		s.log.Warn("a snapshot is not used", "records", stored[0], "reason", err)
		stored = stored[1:]
	}
	p, err := newPass(nil)
	if err != nil {
		return err
	}
	if err := s.readThrough(state, p); err != nil {
		return err
	}
	if err := p.end(s.journal.Next()); err != nil {
		return fmt.Errorf("replay: %w, and no snapshot in %s stands for them: put a copy of its files back, or begin anew in another directory and keep this one as it is", err, dir)
	}
	return s.beginWith(p, dir, stored)
}

// readThrough reads the journal, and opens it if it is not open.
func (s *Supervisor) readThrough(state string, p *pass) (err error) {
	if s.journal == nil {
		s.journal, err = journal.Open(filepath.Join(state, "journal"), journal.Options{SegmentBytes: s.defaults.SegmentBytes, Each: p.each})
		return err
	}
	return s.journal.Read(s.journal.First(), p.each)
}

// beginWith takes over what a pass has made. Snapshots that are damaged, or that the journal does not confirm
// because a crash came before, are removed.
func (s *Supervisor) beginWith(p *pass, dir snapshots, stored []int64) error {
	s.chronicle = p.into
	s.taken.dir, s.taken.due = dir, make(chan struct{}, 1)
	var kept []int64
	for _, records := range stored {
		if file, err := dir.read(records); err == nil && p.confirms(file.snapshotHead) {
			kept = append(kept, records)
		}
	}
	s.taken.keep(kept)
	return dir.prune(s.taken.kept)
}

package journal

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows that one record is in a journal, to someone who has nothing of the journal
// but its public key. FORMAT.md says how to check one without this package.
type Proof struct {
	Seq        int64            `json:"seq"`        // the record's number, its index in the tree
	Record     []byte           `json:"record"`     // base64 in JSON
	Size       int64            `json:"size"`       // records under the checkpoint, the size of the tree
	Hashes     tlog.RecordProof `json:"hashes"`     // RFC 6962 audit path, leaf to root, each in base64
	Checkpoint string           `json:"checkpoint"` // the signed note that they lead to
}

// ProveRecord makes a proof for a record from the files of a journal alone, whether or not
// somebody has it open, under the last checkpoint that is there. It checks the whole journal
// as [Verify] does, and reads what the proof needs once more: the tree keeps its edge only. The
// error is [ErrUnsigned] when no checkpoint covers the record yet, [ErrNotFound] when there is
// none, a [*TrimmedError] when there is none any more.
func ProveRecord(dir string, known note.Verifiers, seq int64) (*Proof, error) {
	s, err := surveyFiles(dir, known)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	switch {
	case seq < 0 || seq >= s.tree.n:
		return nil, fmt.Errorf("prove: %w: %d", ErrNotFound, seq)
	case seq >= s.lastSigned():
		return nil, fmt.Errorf("prove record %d: %w over it", seq, ErrUnsigned)
	}
	e, c := extent{dir: dir}, s.signed[len(s.signed)-1]
	for _, seg := range s.segments {
		e.segments = append(e.segments, *seg)
	}
	rec, err := e.get(seq)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	hashes, err := tlog.ProveRecord(c.size, seq, tlog.HashReaderFunc(e.nodes))
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return &Proof{Seq: seq, Record: rec, Size: c.size, Hashes: hashes, Checkpoint: string(c.msg)}, nil
}

// nodes computes the nodes of the tree that tlog asks for from the records below them.
// What was trimmed is below nodes of the edge, or to the left of some records in one node.
func (e extent) nodes(indexes []int64) ([]tlog.Hash, error) {
	edge := &e.segments[0].before.tree
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		from, to := n<<level, (n+1)<<level
		if to <= edge.n {
			// A sibling of a node above a record that was not trimmed: it is of the edge.
			hashes[i] = edge.edge[level]
			continue
		}
		var below tree
		if from < edge.n {
			below.n, below.edge = edge.n-from, edge.edge
			from = edge.n
		}
		err := e.read(from, func(seq int64, rec []byte) error {
			if seq == to {
				return errEnough
			}
			below.append(tlog.RecordHash(rec))
			return nil
		})
		if err != nil && err != errEnough {
			return nil, err
		}
		hashes[i] = below.root()
	}
	return hashes, nil
}

var errEnough = errors.New("enough")

// CheckProof checks a proof in JSON against the public key, and returns it.
func CheckProof(data []byte, known note.Verifiers) (*Proof, error) {
	var p Proof
	if err := json.Unmarshal(data, &p, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	if err := p.check(known); err != nil {
		return nil, err
	}
	return &p, nil
}

// check says whether one of the verifiers signed a journal with this record in this place.
func (p *Proof) check(known note.Verifiers) error {
	c, err := openCheckpoint([]byte(p.Checkpoint), known)
	if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if c.size != p.Size {
		return fmt.Errorf("proof: the checkpoint is over %d records, not %d", c.size, p.Size)
	}
	if err := tlog.CheckRecord(p.Hashes, c.size, c.root, p.Seq, tlog.RecordHash(p.Record)); err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	return nil
}

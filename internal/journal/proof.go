package journal

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows that one record is in a journal, to someone who has nothing of the journal
// but its public key.
type Proof struct {
	Seq        int64            `json:"seq"`
	Record     []byte           `json:"record"`     // base64 in JSON
	Hashes     tlog.RecordProof `json:"hashes"`     // RFC 6962 audit path, leaf to root
	Checkpoint string           `json:"checkpoint"` // the signed note that they lead to
}

// Prove makes a proof for a durable record, under a checkpoint over all that is durable
// now. It reads the whole journal once: the tree keeps its edge only.
func (j *Journal) Prove(seq int64) (*Proof, error) {
	rec, err := j.Get(seq)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	msg, err := j.Checkpoint()
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	known, err := note.NewVerifier(j.public)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	c, err := openCheckpoint(msg, note.VerifierList(known))
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	hashes, err := tlog.ProveRecord(c.size, seq, tlog.HashReaderFunc(j.nodes))
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return &Proof{Seq: seq, Record: rec, Hashes: hashes, Checkpoint: string(msg)}, nil
}

// nodes computes the nodes of the tree that tlog asks for from the records below them.
func (j *Journal) nodes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		var below tree
		err := j.Read(n<<level, func(seq int64, rec []byte) error {
			if seq == (n+1)<<level {
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
	c, err := openCheckpoint([]byte(p.Checkpoint), known)
	if err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	if err := tlog.CheckRecord(p.Hashes, c.size, c.root, p.Seq, tlog.RecordHash(p.Record)); err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	return &p, nil
}

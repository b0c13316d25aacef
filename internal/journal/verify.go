package journal

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Report is what [Verify] and [Check] found.
type Report struct {
	Origin      string        `json:"origin,omitempty"`    // name in the checkpoints
	First       int64         `json:"first"`               // number of the first record: what was before it is trimmed
	Records     int64         `json:"records"`             // good ones, up to the first bad, and those that were trimmed
	Segments    int           `json:"segments"`            // files read
	Checkpoints int           `json:"checkpoints"`         // signatures checked
	Signed      int64         `json:"signed_records"`      // under the last checkpoint
	Unsigned    int64         `json:"unsigned_records"`    // behind it
	TailBytes   int64         `json:"tail_bytes"`          // of a write that was interrupted, or is under way
	Root        string        `json:"root"`                // Merkle root of Records, base64
	Bad         *CorruptError `json:"first_bad,omitempty"` // nil means all is well

	Files *Files `json:"files,omitempty"` // what is in the directory; of Check only
}

// Verify checks a journal from its files alone, whether or not somebody has it open:
// frames, checksums, order, chain, and the Merkle root against every checkpoint, each
// of which must be signed by one of the verifiers. Checkpoints that the caller
// kept elsewhere may be added; they find a journal that was rolled back together with
// its own checkpoints. One that is not of this journal is [ErrForeign]. One over fewer records
// than were trimmed cannot be checked any more: if nothing else is found, that is
// a [*TrimmedError].
//
// A finding is a [*CorruptError], which is also in the report. What no checkpoint
// covers yet is safe from accidents only: whoever can write the directory can
// write another end. That is no finding here, for a journal in use always has such an end:
// the caller looks at Signed, Unsigned and TailBytes.
func Verify(dir string, known note.Verifiers, kept ...[]byte) (Report, error) {
	return VerifyEach(dir, known, nil, kept...)
}

// VerifyEach is Verify, and gives fn every record when nothing is wrong: all is verified before the first, and that
// they are the records that were verified, behind the last. An error of fn ends it and is returned as it is. Without records under a
// checkpoint fn is given none.
func VerifyEach(dir string, known note.Verifiers, fn func(seq int64, rec []byte) error, kept ...[]byte) (Report, error) {
	s, err := surveyFiles(dir, known, kept...)
	if err == nil && s.early {
		err = fmt.Errorf("a checkpoint that was kept elsewhere: %w", &TrimmedError{First: s.first()})
	}
	report := s.report(err)
	if err != nil {
		return report, fmt.Errorf("verify journal: %w", err)
	}
	if fn == nil || report.Signed == 0 {
		return report, nil
	}
	return report, s.again(dir, fn)
}

// again reads every record that the survey has found once more.
func (s *survey) again(dir string, fn func(seq int64, rec []byte) error) error {
	var chain digest
	if s.begin != nil {
		chain = s.begin.chain
	}
	for _, seg := range s.segments {
		if err := seg.read(dir, seg.first, func(seq int64, rec []byte) error {
			chain = link(chain, tlog.RecordHash(rec))
			return fn(seq, rec)
		}); err != nil {
			return err
		}
	}
	if chain != s.chain {
		return errors.New("verify journal: the records are not those that were verified: somebody has written over them meanwhile")
	}
	return nil
}

// report is what was found, err included.
func (s *survey) report(err error) Report {
	report := Report{
		First: s.first(), Records: s.tree.n, Segments: len(s.segments), Checkpoints: len(s.signed),
		Signed: s.lastSigned(), Unsigned: max(0, s.tree.n-s.lastSigned()),
		TailBytes: s.tail, Root: s.tree.root().String(),
	}
	if len(s.signed) > 0 {
		report.Origin = s.signed[0].origin
	}
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		report.Bad = bad
	}
	return report
}

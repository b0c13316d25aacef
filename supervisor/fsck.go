package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/internal/spool"
)

// FsckOptions say how closely a state directory is looked at.
type FsckOptions struct {
	Key  string // file of the journal's public key, kept elsewhere; "" means the one beside the journal
	Deep bool   // read every blob, and compare it with its name
}

// FsckReport is what was found in a state directory.
type FsckReport struct {
	Journal  *journal.Report `json:"journal"`
	Replay   *ReplayReport   `json:"replay,omitempty"` // nil when the journal is damaged
	Blobs    Stored          `json:"blobs"`
	Spool    Stored          `json:"spool"`
	Findings []Finding       `json:"findings"` // those of the replay too
	OK       bool            `json:"ok"`       // nothing was found that is lost
}

// Stored is how much there is of something.
type Stored struct {
	Count   int   `json:"count"`
	Bytes   int64 `json:"bytes"`
	Checked int   `json:"checked,omitzero"` // read, and found to be what their names say
}

// Fsck looks at everything in a state directory from its files alone, whether or not a supervisor has them
// open. It changes nothing. An error says that something cannot be read; what is not as it should be is in the
// report.
func Fsck(state string, opt FsckOptions) (*FsckReport, error) {
	f := &fsck{state: state, report: &FsckReport{Findings: []Finding{}}}
	for _, part := range []struct {
		name string
		do   func() error
	}{
		// The output first: what is listed has its record in the journal by then.
		{"spool", f.listSpool},
		{"journal", func() error { return f.journal(opt.Key) }},
		{"salt", f.salt},
		{"replay", f.replay},
		{"blobs", func() error { return f.blobs(opt.Deep) }},
	} {
		if err := part.do(); err != nil {
			return nil, fmt.Errorf("fsck %s: %w", part.name, err)
		}
	}
	f.report.OK = sound(f.report.Findings)
	return f.report, nil
}

type fsck struct {
	state  string
	kept   []spool.Kept
	report *FsckReport
}

func (f *fsck) find(found Finding) { f.report.Findings = append(f.report.Findings, found) }

func (f *fsck) listSpool() error {
	s, err := spool.View(filepath.Join(f.state, "spool"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close()
	if f.kept, err = s.List(); err != nil {
		return err
	}
	for _, k := range f.kept {
		f.report.Spool.Count++
		f.report.Spool.Bytes += k.Bytes
	}
	return nil
}

func (f *fsck) journal(key string) error {
	dir := filepath.Join(f.state, "journal")
	known, err := journal.ReadPublicKey(cmp.Or(key, filepath.Join(dir, "key.pub")))
	if err != nil {
		return err
	}
	r, err := journal.Check(dir, note.VerifierList(known))
	if err != nil {
		return err
	}
	f.report.Journal = r
	if r.Bad != nil {
		f.find(Finding{Code: FindingJournal, Subject: r.Bad.File, Seq: seqOf(r.Bad.Seq), Detail: r.Bad.Error()})
	} else if r.Records > 0 && r.Signed == 0 {
		f.find(Finding{Code: FindingUnsigned, Subject: dir, Detail: "no checkpoint signs any of the records"})
	}
	if r.TailBytes > 0 {
		f.find(Finding{Code: FindingTail, Subject: dir, Benign: true, Detail: fmt.Sprintf("%d bytes of a write that was interrupted, or is under way", r.TailBytes)})
	}
	for _, name := range r.Files.Unknown {
		f.find(Finding{Code: FindingUnknown, Subject: filepath.Join(dir, name), Benign: true})
	}
	return nil
}

// seqOf is the number of a bad record, if it is known.
func seqOf(seq int64) *int64 {
	if seq < 0 {
		return nil
	}
	return &seq
}

// salt: without it a digest of a secret can be compared with nothing any more.
func (f *fsck) salt() error {
	name := filepath.Join(f.state, "salt")
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) != saltBytes {
		f.find(Finding{Code: FindingSalt, Subject: name, Detail: fmt.Sprintf("it has %d bytes, not %d", len(b), saltBytes)})
		return nil
	}
	return err
}

// replay makes the state of the records, compares it with what was stored, and finds the blobs that are
// missing and the output that belongs to nothing.
func (f *fsck) replay() error {
	if f.report.Journal.Bad != nil {
		return nil // it leads nowhere
	}
	r, err := replayFiles(f.state, ReplayOptions{Verify: true})
	if err != nil {
		f.find(Finding{Code: FindingSnapshot, Subject: filepath.Join(f.state, "snapshots"), Detail: err.Error()})
		return nil
	}
	f.report.Replay = r.report
	f.report.Findings = append(f.report.Findings, r.report.Findings...)
	for _, k := range f.kept {
		if _, ok := r.pass.into.state.Process(k.ID); !ok {
			f.find(Finding{Code: FindingSpool, Subject: k.ID, Benign: true, Detail: fmt.Sprintf("%d bytes", k.Bytes)})
		}
	}
	return nil
}

func (f *fsck) blobs(deep bool) error {
	store := blob.View(filepath.Join(f.state, "blobs"))
	return store.Each(func(ref string, size int64) error {
		f.report.Blobs.Count++
		f.report.Blobs.Bytes += size
		if !deep {
			return nil
		}
		switch err := store.Verify(ref); {
		case err == nil:
			f.report.Blobs.Checked++
		case errors.Is(err, blob.ErrCorrupt):
			f.find(Finding{Code: FindingBlob, Subject: ref, Detail: err.Error()})
		case !errors.Is(err, blob.ErrNotFound): // swept since
			return err
		}
		return nil
	})
}

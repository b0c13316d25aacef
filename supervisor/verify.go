package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// ReplayOptions say how far a journal is replayed, and what is compared.
type ReplayOptions struct {
	Records int64  // the state after so many; 0 means all that there are
	Digest  string // that it must have, as a supervisor's snapshot operation said; "" means that nobody said
	Verify  bool   // compare with the stored snapshots, and look for the blobs that records name
}

// ReplayReport is what a journal amounts to.
type ReplayReport struct {
	First     int64     `json:"first"`          // number of the first record that the journal has
	From      int64     `json:"from,omitzero"`  // records that a snapshot stood for; 0: all were replayed
	Records   int64     `json:"records"`        // that the state is of
	Digest    string    `json:"digest"`         // of the state's canonical bytes
	SizeBytes int64     `json:"size_bytes"`     // of them
	Snapshots int       `json:"snapshots"`      // stored ones that were compared, byte for byte
	Blobs     int       `json:"blobs,omitzero"` // that records name, or what is in view
	InFlight  int       `json:"in_flight"`      // intents without a receipt
	Findings  []Finding `json:"findings"`
}

// Finding is something that is not as it should be.
type Finding struct {
	Code    FindingCode `json:"code"`
	Subject string      `json:"subject,omitempty"` // the file, the blob or the execution
	Seq     *int64      `json:"seq,omitempty"`     // of the record that it is about
	Detail  string      `json:"detail,omitempty"`
	Benign  bool        `json:"benign,omitzero"` // left by a crash, or about to go: the next start or round sees to it
}

// FindingCode says what was found.
type FindingCode string

// The codes.
const (
	FindingMissingBlob FindingCode = FindingCode(api.CodeMissingDependency) // R252
	FindingSnapshot    FindingCode = "snapshot_mismatch"                    // a stored snapshot is not what the records make
	FindingUnconfirmed FindingCode = "snapshot_unconfirmed"                 // no record says that it is the one
	FindingDigest      FindingCode = "digest_mismatch"                      // the supervisor said another digest
	FindingJournal     FindingCode = "journal_damaged"
	FindingUnsigned    FindingCode = "journal_unsigned" // nothing says that the records are the supervisor's
	FindingTail        FindingCode = "journal_tail"     // a write that was interrupted, or is under way
	FindingBlob        FindingCode = "blob_damaged"
	FindingSpool       FindingCode = "spool_stray" // output of an execution that is not in view
	FindingUnknown     FindingCode = "unknown_file"
	FindingSalt        FindingCode = "salt_damaged"
)

// sound reports whether nothing was found that is lost.
func sound(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool { return !f.Benign })
}

// OK reports whether all is as it should be.
func (r *ReplayReport) OK() bool { return sound(r.Findings) }

// Replay makes the state that the journal of a state directory amounts to, from the files alone, whether or not a
// supervisor has them open; it changes nothing, takes no lock and carries nothing out (R248). It begins with the
// first record there ever was or, where that is trimmed, with the oldest snapshot. An error says that
// the journal cannot be read, or does not lead up from there; what does not compare is in the report.
func Replay(state string, opt ReplayOptions) (*ReplayReport, error) {
	r, err := replayFiles(state, opt)
	if err != nil {
		return nil, err
	}
	return r.report, nil
}

func replayFiles(state string, opt ReplayOptions) (*replaying, error) {
	for {
		r := &replaying{state: state, opt: opt, blobs: newDependencies(), report: &ReplayReport{Findings: []Finding{}}}
		err := r.run()
		if errors.Is(err, journal.ErrTrimmed) || err == nil && r.overtaken() {
			continue // just now: there is another beginning
		}
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		return r, nil
	}
}

// overtaken reports whether a blob was missed that went with its record while we read: a supervisor trims
// first and sweeps then.
func (r *replaying) overtaken() bool {
	if !slices.ContainsFunc(r.report.Findings, func(f Finding) bool { return f.Code == FindingMissingBlob }) {
		return false
	}
	first := r.report.First
	err := journal.Scan(filepath.Join(r.state, "journal"), func(seq int64, _ []byte) error {
		first = seq
		return errEnough
	})
	return err == errEnough && first > r.report.First
}

// replaying is one replay.
type replaying struct {
	state  string
	opt    ReplayOptions
	dir    snapshots
	stored []int64 // snapshots, the newest first
	pass   *pass   // nil before the first record
	blobs  *dependencies
	report *ReplayReport
}

// errEnough ends the reading.
var errEnough = errors.New("enough")

func (r *replaying) run() (err error) {
	r.dir = snapshots(filepath.Join(r.state, "snapshots"))
	// Before the journal: so each of them has its records there.
	if r.stored, err = r.dir.list(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = journal.Scan(filepath.Join(r.state, "journal"), r.each)
	if err != nil && err != errEnough {
		return err
	}
	if r.pass == nil {
		if r.pass, err = newPass(nil); err != nil {
			return err
		}
	}
	return r.end()
}

// each takes the next record in.
func (r *replaying) each(seq int64, rec []byte) error {
	if r.pass == nil {
		if err := r.begin(seq); err != nil {
			return err
		}
	}
	if seq == r.pass.into.next {
		r.compare()
	}
	if r.opt.Records > 0 && seq >= r.opt.Records {
		return errEnough
	}
	if r.opt.Verify {
		if err := r.blobs.look(seq, rec); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
	}
	return r.pass.each(seq, rec)
}

// begin finds what the state begins with in front of the first record that there is.
func (r *replaying) begin(first int64) (err error) {
	r.report.First = first
	if first == 0 {
		r.pass, err = newPass(nil)
		return err
	}
	why := errors.New("there is none")
	for _, records := range slices.Backward(r.stored) {
		if records < first || r.opt.Records > 0 && records > r.opt.Records {
			continue
		}
		base, err := r.dir.read(records)
		if err == nil {
			r.pass, err = newPass(base)
		}
		if err == nil {
			r.report.From = records
			return nil
		}
		why = err
	}
	return fmt.Errorf("the journal begins with record %d, and no snapshot leads up to it: %w", first, why)
}

// compare holds the state against the snapshot that was stored of so many records, if one was.
func (r *replaying) compare() {
	next := r.pass.into.next
	if !r.opt.Verify || !slices.Contains(r.stored, next) {
		return
	}
	base, err := r.dir.read(next)
	if errors.Is(err, fs.ErrNotExist) {
		return // there are newer ones by now
	}
	if err == nil && !ledger.Current(base.content) {
		return // of a program before: nothing that this one makes is equal
	}
	var content []byte
	if err == nil {
		content, err = r.pass.into.state.Snapshot()
	}
	if err == nil && !bytes.Equal(content, base.content) {
		err = fmt.Errorf("the records make %s", ledger.Digest(content))
	}
	if err != nil {
		r.find(Finding{Code: FindingSnapshot, Subject: r.dir.name(next), Detail: err.Error()})
		return
	}
	r.report.Snapshots++
}

func (r *replaying) find(f Finding) { r.report.Findings = append(r.report.Findings, f) }

func (r *replaying) end() error {
	p := r.pass
	if r.opt.Records > p.into.next {
		return fmt.Errorf("the journal has %d records, not %d", p.into.next, r.opt.Records)
	}
	if r.opt.Records == 0 {
		r.compare()
	}
	if err := p.broken; err != nil {
		return err
	}
	content, err := p.into.state.Snapshot()
	if err != nil {
		return err
	}
	r.report.Records, r.report.Digest, r.report.SizeBytes = p.into.next, ledger.Digest(content), int64(len(content))
	r.report.InFlight = len(p.into.state.InFlight())
	if want := r.opt.Digest; want != "" && want != r.report.Digest {
		r.find(Finding{Code: FindingDigest, Subject: want, Detail: fmt.Sprintf("the first %d records make %s", r.report.Records, r.report.Digest)})
	}
	if !r.opt.Verify {
		return nil
	}
	if r.opt.Records == 0 {
		r.unconfirmed()
	}
	_, inView := p.into.state.Retained()
	return r.missing(inView)
}

// unconfirmed finds the snapshots that no record tells of.
func (r *replaying) unconfirmed() {
	for _, records := range slices.Backward(r.stored) {
		if head, err := r.dir.head(records); err == nil && !r.pass.confirms(head) {
			r.find(Finding{Code: FindingUnconfirmed, Subject: r.dir.name(records), Benign: records != r.report.From,
				Detail: "a supervisor ended before it was recorded, or it is of another journal"})
		}
	}
}

// missing finds the blobs that are named and not there, in the order of their references (R252).
func (r *replaying) missing(inView []string) error {
	store := blob.View(filepath.Join(r.state, "blobs"))
	named := r.blobs.all(inView)
	r.report.Blobs = len(named)
	for _, ref := range slices.Sorted(maps.Keys(named)) {
		d := named[ref]
		f, size, err := store.Open(ref)
		if err == nil {
			f.Close()
		}
		switch {
		case errors.Is(err, blob.ErrNotFound):
			r.find(Finding{Code: FindingMissingBlob, Subject: ref, Seq: d.seq})
		case err != nil:
			return err
		case d.size >= 0 && size != d.size:
			r.find(Finding{Code: FindingMissingBlob, Subject: ref, Seq: d.seq, Detail: fmt.Sprintf("it has %d bytes, not %d", size, d.size)})
		}
	}
	return nil
}

// dependencies are the blobs that records rest on: what receipts say was stored, and what commands that
// were started, or may have been, read. A request that was refused rests on nothing.
type dependencies struct {
	named   map[string]dependency
	pending map[string][]mention // by intent in flight
}

type dependency struct {
	seq  *int64 // of the first record that names it; nil: it is in view
	size int64  // -1: nobody says
}

type mention struct {
	ref string
	seq int64
}

func newDependencies() *dependencies {
	return &dependencies{named: map[string]dependency{}, pending: map[string][]mention{}}
}

func (d *dependencies) add(seq int64, ref string, size int64) {
	if ref == "" {
		return
	}
	if known, ok := d.named[ref]; !ok || known.size < 0 && size >= 0 {
		if ok {
			seq = *known.seq
		}
		d.named[ref] = dependency{&seq, size}
	}
}

// look notes what a record names.
func (d *dependencies) look(seq int64, rec []byte) error {
	g, err := ledger.GlanceOf(rec)
	names := bytes.Contains(rec, naming)
	switch {
	case err != nil:
		return err
	case g.Type == ledger.TypeIntent && names:
		return d.asked(seq, rec)
	case g.Type == ledger.TypeReceipt && (names || d.pending[g.IntentID] != nil):
		return d.settled(seq, rec)
	}
	return nil
}

func (d *dependencies) asked(seq int64, rec []byte) error {
	var intent ledger.Intent
	var req api.Request
	err := json.Unmarshal(rec, &intent)
	if err == nil && intent.Large == nil {
		err = json.Unmarshal(intent.Request, &req)
	}
	if err != nil || req.Exec == nil {
		return err
	}
	refs := []string{req.Exec.StdinRef}
	if in := req.Exec.Stdin; in != nil && in.BlobRef != nil {
		refs = append(refs, in.BlobRef.BlobRef)
	}
	for _, ref := range refs {
		if ref != "" {
			d.pending[intent.IntentID] = append(d.pending[intent.IntentID], mention{ref, seq})
		}
	}
	return nil
}

func (d *dependencies) settled(seq int64, rec []byte) error {
	var s ledger.Settled
	if err := json.Unmarshal(rec, &s); err != nil || s.Receipt == nil {
		return err
	}
	r := s.Receipt
	if x := r.Payload.Exec; x != nil {
		if x.StartedAtNS != 0 {
			d.commit(r.IntentID)
		}
		for _, b := range x.Blobs() {
			d.add(seq, b.BlobRef, b.SizeBytes)
		}
	}
	delete(d.pending, r.IntentID)
	if put := r.Payload.Blob; put != nil {
		d.add(seq, put.BlobRef, put.SizeBytes)
	}
	return nil
}

// commit counts what an intent names.
func (d *dependencies) commit(intent string) {
	for _, n := range d.pending[intent] {
		d.add(n.seq, n.ref, -1)
	}
}

// all adds what is in flight, and what only the view still names.
func (d *dependencies) all(inView []string) map[string]dependency {
	for intent := range d.pending {
		d.commit(intent)
	}
	for _, ref := range inView {
		if _, ok := d.named[ref]; !ok {
			d.named[ref] = dependency{nil, -1}
		}
	}
	return d.named
}

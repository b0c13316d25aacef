package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Files is a journal's directory, file by file.
type Files struct {
	Segments    []SegmentFile  `json:"segments"`
	Checkpoints CheckpointFile `json:"checkpoints"`
	Anchor      *AnchorFile    `json:"anchor,omitempty"`     // nil: nothing was ever trimmed
	SpareBytes  int64          `json:"spare_bytes,omitzero"` // allocated for the next segment
	Unfinished  []string       `json:"unfinished,omitempty"` // left by a crash, and of no meaning
	Unknown     []string       `json:"unknown,omitempty"`    // not the journal's
}

// SegmentState says how a segment was found.
type SegmentState string

const (
	SegmentGood    SegmentState = "good"    // whole, in its place, and under the chain
	SegmentTorn    SegmentState = "torn"    // good, and behind it the bytes of an interrupted write, which Open will cut
	SegmentDamaged SegmentState = "damaged" // good up to the first bad record
	SegmentApart   SegmentState = "apart"   // behind damage: good by itself, and nothing says that it belongs here
	SegmentTrimmed SegmentState = "trimmed" // its records were trimmed; the next Open removes it
)

// SegmentFile is one file of records.
type SegmentFile struct {
	Name      string        `json:"name"`
	State     SegmentState  `json:"state"`
	First     int64         `json:"first"`
	Records   int64         `json:"records"`             // good ones
	Bytes     int64         `json:"bytes"`               // that they take, with the header
	FileBytes int64         `json:"file_bytes"`          // with what is allocated and not used, or bad
	TailBytes int64         `json:"tail_bytes,omitzero"` // that Open will cut
	Bad       *CorruptError `json:"bad,omitempty"`
}

// CheckpointFile is the file of signed notes.
type CheckpointFile struct {
	Notes     int           `json:"notes"` // good ones
	Signed    int64         `json:"signed_records"`
	Bytes     int64         `json:"bytes"`               // that they take
	TailBytes int64         `json:"tail_bytes,omitzero"` // of a note that was not written to its end, which Open will cut
	Bad       *CorruptError `json:"bad,omitempty"`
}

// AnchorFile is what a trimmed journal begins with.
type AnchorFile struct {
	First int64         `json:"first"` // the first record behind it
	Root  string        `json:"root"`  // Merkle root of the records before, base64
	Bad   *CorruptError `json:"bad,omitempty"`
}

// Check looks at a journal as [Verify] does, and tells what is in its directory file by
// file. It changes nothing and takes no lock: it can be used beside whoever has the journal
// open. What is wrong is in the report; the error is of a directory that cannot be read, or of a
// later version's.
func Check(dir string, known note.Verifiers) (*Report, error) {
	s, err := surveyFiles(dir, known)
	bad, corrupt := errors.AsType[*CorruptError](err)
	if err != nil && !corrupt {
		return nil, fmt.Errorf("check journal: %w", err)
	}
	report := s.report(err)
	if report.Files, err = s.inventory(dir, bad); err != nil {
		return nil, fmt.Errorf("check journal: %w", err)
	}
	return &report, nil
}

func (s *survey) inventory(dir string, bad *CorruptError) (*Files, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	segments, err := segmentNames(dir)
	if err != nil {
		return nil, err
	}
	files := &Files{Segments: []SegmentFile{}}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // trimmed, or renamed, since
		}
		if err != nil {
			return nil, err
		}
		switch name := e.Name(); {
		case slices.Contains(segments, name):
			if seg := s.segmentFile(dir, name, bad); seg != nil {
				seg.FileBytes = info.Size()
				files.Segments = append(files.Segments, *seg)
			}
		case name == checkpointFile:
			c := &files.Checkpoints
			c.Notes, c.Signed, c.Bytes, c.TailBytes = len(s.signed), s.lastSigned(), s.notes.end, s.notes.torn
			c.Bad, _ = errors.AsType[*CorruptError](s.unsigned)
		case name == anchorFile:
			files.Anchor = &AnchorFile{}
			if s.begin != nil {
				files.Anchor.First, files.Anchor.Root = s.begin.size, s.begin.root.String()
			} else if bad != nil && bad.File == anchorFile {
				files.Anchor.Bad = bad
			}
		case name == spareFile:
			files.SpareBytes = info.Size()
		case name == keyFile, name == publicKeyFile, name == "lock":
		case strings.HasSuffix(name, unfinished), strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp"):
			files.Unfinished = append(files.Unfinished, name)
		default:
			files.Unknown = append(files.Unknown, name)
		}
	}
	return files, nil
}

// segmentFile says what was found of a segment; nil when it is newer than our look.
func (s *survey) segmentFile(dir, name string, bad *CorruptError) *SegmentFile {
	out := &SegmentFile{Name: name, State: SegmentGood}
	if i := slices.IndexFunc(s.segments, func(g *segment) bool { return g.name == name }); i >= 0 {
		out.fill(s.segments[i])
		if i == len(s.segments)-1 && s.tail > 0 {
			out.State, out.TailBytes = SegmentTorn, s.tail
		}
	} else if slices.Contains(s.trimmed, name) {
		out.State = SegmentTrimmed
		out.look(dir)
	} else if bad != nil {
		out.State = SegmentApart
		out.look(dir)
	} else {
		return nil
	}
	if bad != nil && bad.File == name {
		out.Bad = bad
	}
	if out.Bad != nil {
		out.State = SegmentDamaged
	}
	return out
}

func (out *SegmentFile) fill(g *segment) {
	out.First, out.Records, out.Bytes = g.first, int64(len(g.offsets)), g.end
}

// look goes over a segment by itself.
func (out *SegmentFile) look(dir string) {
	s := &survey{alone: true}
	err := s.file(dir, out.Name, true)
	out.Bad, _ = errors.AsType[*CorruptError](err)
	if len(s.segments) > 0 {
		out.fill(s.segments[0])
	}
}

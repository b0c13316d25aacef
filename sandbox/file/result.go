package file

import (
	"regexp"
	"slices"
)

// Result is what came of a Request. Exactly one of the other members is set, the one that Op names.
type Result struct {
	Op     Op            `json:"op"`
	Read   *ReadResult   `json:"read,omitzero"`
	Write  *WriteResult  `json:"write,omitzero"`
	Edit   *EditResult   `json:"edit,omitzero"`
	Patch  *PatchResult  `json:"patch,omitzero"`
	Grep   *GrepResult   `json:"grep,omitzero"`
	Glob   *GlobResult   `json:"glob,omitzero"`
	Stat   *StatResult   `json:"stat,omitzero"` // host.fs.stat and host.fs.exists
	List   *ListResult   `json:"list,omitzero"`
	Change *ChangeResult `json:"change,omitzero"` // host.fs.mkdir, move and remove
}

// Outcome is what every result says first.
type Outcome struct {
	Status  Status  `json:"status"`
	Code    Code    `json:"error_code,omitempty"`
	Message string  `json:"error_message,omitempty"`
	Clamped []Clamp `json:"clamped,omitempty"`
}

// Fail gives the outcome a status and a reason.
func (o *Outcome) Fail(status Status, code Code, message string) {
	o.Status, o.Code, o.Message = status, code, message
}

// Outcome finds what the result says first.
func (r *Result) Outcome() *Outcome {
	switch {
	case r.Read != nil:
		return &r.Read.Outcome
	case r.Write != nil:
		return &r.Write.Outcome
	case r.Edit != nil:
		return &r.Edit.Outcome
	case r.Patch != nil:
		return &r.Patch.Outcome
	case r.Grep != nil:
		return &r.Grep.Outcome
	case r.Glob != nil:
		return &r.Glob.Outcome
	case r.Stat != nil:
		return &r.Stat.Outcome
	case r.List != nil:
		return &r.List.Outcome
	case r.Change != nil:
		return &r.Change.Outcome
	}
	return nil
}

// Empty is a result of the operation with nothing in it but the arm; nil for an unknown one.
func Empty(op Op) *Result {
	r := &Result{Op: op}
	switch op {
	case OpRead:
		r.Read = &ReadResult{}
	case OpWrite:
		r.Write = &WriteResult{}
	case OpEdit:
		r.Edit = &EditResult{}
	case OpPatch:
		r.Patch = &PatchResult{}
	case OpGrep:
		r.Grep = &GrepResult{}
	case OpGlob:
		r.Glob = &GlobResult{}
	case OpStat, OpExists:
		r.Stat = &StatResult{}
	case OpList:
		r.List = &ListResult{}
	case OpMkdir, OpMove, OpRemove:
		r.Change = &ChangeResult{}
	default:
		return nil
	}
	return r
}

// codeForm is what a code looks like.
var codeForm = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// Formed reports whether the arm that is set is the one that the operation has, and no other is; and whether it says how it went
// in a word that the operation has, with a reason when it did not go well. A search that stopped at a ceiling is ok, and has one.
func (r *Result) Formed() bool {
	want := Empty(r.Op)
	if want == nil {
		return false
	}
	for _, arm := range []struct{ has, wants bool }{
		{r.Read != nil, want.Read != nil}, {r.Write != nil, want.Write != nil}, {r.Edit != nil, want.Edit != nil},
		{r.Patch != nil, want.Patch != nil}, {r.Grep != nil, want.Grep != nil}, {r.Glob != nil, want.Glob != nil},
		{r.Stat != nil, want.Stat != nil}, {r.List != nil, want.List != nil}, {r.Change != nil, want.Change != nil},
	} {
		if arm.has != arm.wants {
			return false
		}
	}
	out := r.Outcome()
	if out.Status == OK && out.Code == "" {
		return true
	}
	return slices.Contains(r.Op.Statuses(), out.Status) && codeForm.MatchString(string(out.Code))
}

// Output is what the operation gives beside what it says; nil for one that gives nothing.
func (r *Result) Output() *Output {
	switch {
	case r.Read != nil:
		return r.Read.Content
	case r.Grep != nil:
		return r.Grep.Matches
	case r.Glob != nil:
		return r.Glob.Paths
	case r.List != nil:
		return r.List.Entries
	}
	return nil
}

// Blob is the output where that is one; nil otherwise.
func (r *Result) Blob() *Blob {
	if o := r.Output(); o != nil {
		return o.Blob
	}
	return nil
}

// Changes are what became of each file that the operation changed, with digests before and after.
func (r *Result) Changes() []Change {
	switch {
	case r.Write != nil && r.Write.Change != nil:
		return []Change{*r.Write.Change}
	case r.Edit != nil && r.Edit.Change != nil:
		return []Change{*r.Edit.Change}
	case r.Patch != nil:
		return r.Patch.Changes
	}
	return nil
}

// Paths are those that the result says it is about, and those that it changed.
func (r *Result) Paths() []string {
	var paths []string
	add := func(more ...string) {
		for _, path := range more {
			if path != "" {
				paths = append(paths, path)
			}
		}
	}
	switch {
	case r.Read != nil:
		add(r.Read.Path)
	case r.Stat != nil:
		add(r.Stat.Path)
	case r.Change != nil:
		add(r.Change.Path, r.Change.To)
	case r.Patch != nil:
		add(r.Patch.ChangedPaths...)
		for _, e := range r.Patch.Errors {
			add(e.Path)
		}
	}
	for _, c := range r.Changes() {
		add(c.Path)
	}
	return paths
}

// Clamp says that a request-level limit was lowered (C17), or what stood in where the request
// named none (C18: source "runtime").
type Clamp struct {
	Field     string `json:"field"`
	Requested int64  `json:"requested"` // -1: without limit
	Effective int64  `json:"effective"`
	Source    string `json:"source"` // "capability" or "runtime"
}

// Output is bytes in the form that size and limits choose: a tagged variant.
type Output struct {
	InlineText  *InlineText  `json:"inline_text,omitzero"`
	InlineBytes *InlineBytes `json:"inline_bytes,omitzero"`
	Blob        *Blob        `json:"blob,omitzero"`
}

// Blob is an output that is too large to be in the document.
type Blob struct {
	BlobRef      string `json:"blob_ref"`
	SizeBytes    int64  `json:"size_bytes"`
	PreviewBytes []byte `json:"preview_bytes,omitempty"`
}

// Overflow says by how much a required inline output was too large.
type Overflow struct {
	SizeBytes  int64 `json:"size_bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

// ReadResult is the result of host.fs.read_file. A range that begins in the middle of a character
// comes as inline_bytes; one that would end in the middle ends before it, and truncated says so.
type ReadResult struct {
	Outcome
	Path       string    `json:"path,omitempty"`    // resolved; quoted where it must be
	Content    *Output   `json:"content,omitzero"`  // absent when the range is empty
	Overflow   *Overflow `json:"overflow,omitzero"` // of require_inline
	Truncated  bool      `json:"truncated,omitzero"`
	SizeBytes  *int64    `json:"size_bytes,omitzero"`        // of the whole file
	NextOffset int64     `json:"next_offset_bytes,omitzero"` // where the rest begins, when truncated
	FirstLine  int64     `json:"first_line,omitzero"`        // of the range, when lines were asked for
	LastLine   int64     `json:"last_line,omitzero"`
	SHA256     string    `json:"sha256,omitempty"` // of the whole file, when the range is that
	MtimeNS    int64     `json:"mtime_ns,omitzero"`
	Mode       uint32    `json:"mode,omitzero"` // permission bits
}

// Change is what became of one file: its digests before and after are evidence, and the
// precondition of the next change.
type Change struct {
	Path      string `json:"path"`           // resolved; quoted where it must be
	From      string `json:"from,omitempty"` // of a move
	Kind      string `json:"kind"`           // add, update, delete, move, mkdir
	Before    string `json:"before_sha256,omitempty"`
	After     string `json:"after_sha256,omitempty"`
	SizeBytes int64  `json:"size_bytes,omitzero"` // after
}

// WriteResult is the result of host.fs.write_file.
type WriteResult struct {
	Outcome
	Change       *Change `json:"change,omitzero"`
	WrittenBytes *int64  `json:"written_bytes,omitzero"`
	Created      *bool   `json:"created,omitzero"`
	NewMtimeNS   int64   `json:"new_mtime_ns,omitzero"`
}

// EditResult is the result of host.fs.edit_file.
type EditResult struct {
	Outcome
	Change       *Change     `json:"change,omitzero"`
	Replacements *int64      `json:"replacements,omitzero"` // that were applied (C29)
	Applied      *bool       `json:"applied,omitzero"`
	Match        string      `json:"match,omitempty"`        // "exact" or "fuzzy"
	Count        int64       `json:"candidates,omitzero"`    // places that match, when ambiguous
	Candidates   []Candidate `json:"candidate_at,omitempty"` // the first of them; of not_found, what comes nearest
	Summary      string      `json:"summary_text,omitempty"`
}

// Candidate is a place in a file.
type Candidate struct {
	Line int64  `json:"line"` // from 1
	Text string `json:"text"` // of its first line, shortened
}

// PatchResult is the result of host.fs.apply_patch.
type PatchResult struct {
	Outcome
	FilesChanged *int64       `json:"files_changed,omitzero"`
	ChangedPaths []string     `json:"changed_paths,omitempty"` // in the order of the patch
	Changes      []Change     `json:"changes,omitempty"`
	Ops          *PatchOps    `json:"ops,omitzero"`
	Summary      string       `json:"summary_text,omitempty"`
	Errors       []PatchError `json:"errors,omitempty"` // bounded; the first says what Code says
	DryRun       bool         `json:"dry_run,omitzero"`
}

// PatchOps counts what a patch does.
type PatchOps struct {
	Add    int64 `json:"add"`
	Update int64 `json:"update"`
	Delete int64 `json:"delete"`
	Move   int64 `json:"move"`
}

// PatchError is one reason why a patch does not apply, with what is needed to mend it.
type PatchError struct {
	Code      Code       `json:"code"`
	Message   string     `json:"message"`
	Path      string     `json:"path,omitempty"`
	PatchLine int64      `json:"patch_line,omitzero"` // in the patch, from 1
	Hunk      int64      `json:"hunk,omitzero"`       // of the file, from 1
	Expected  []string   `json:"expected,omitempty"`  // lines that were looked for
	Nearest   *Candidate `json:"nearest,omitzero"`    // where the file comes nearest to them
	Actual    []string   `json:"actual,omitempty"`    // what is there
}

// GrepResult is the result of host.fs.grep.
type GrepResult struct {
	Outcome
	Matches    *Output   `json:"matches,omitzero"` // path:line:text, context path-line-text; never inline_bytes
	Overflow   *Overflow `json:"overflow,omitzero"`
	MatchCount *int64    `json:"match_count,omitzero"` // before max_results
	Truncated  bool      `json:"truncated,omitzero"`
	Files      int64     `json:"files_scanned,omitzero"`   // that the worker itself has looked at
	Backend    string    `json:"backend,omitempty"`        // "native" or "ripgrep"
	Reason     string    `json:"backend_reason,omitempty"` // why that one; absent where only the native one is there
	Summary    string    `json:"summary_text,omitempty"`
}

// GlobResult is the result of host.fs.glob.
type GlobResult struct {
	Outcome
	Paths     *Output   `json:"paths,omitzero"` // one a line; never inline_bytes
	Overflow  *Overflow `json:"overflow,omitzero"`
	Count     *int64    `json:"count,omitzero"` // before max_results
	Truncated bool      `json:"truncated,omitzero"`
	Summary   string    `json:"summary_text,omitempty"`
}

// StatResult is the result of host.fs.stat, and of host.fs.exists (Exists only).
type StatResult struct {
	Outcome
	Exists    *bool  `json:"exists,omitzero"`
	IsDir     *bool  `json:"is_dir,omitzero"`
	SizeBytes *int64 `json:"size_bytes,omitzero"`
	MtimeNS   *int64 `json:"mtime_ns,omitzero"`
	Path      string `json:"path,omitempty"`
	Kind      string `json:"kind,omitempty"` // file, dir, symlink, fifo, socket, device
	Mode      uint32 `json:"mode,omitzero"`  // permission bits, with set-id and sticky
	UID       uint32 `json:"uid,omitzero"`
	GID       uint32 `json:"gid,omitzero"`
	LinkTo    string `json:"link_to,omitempty"`
}

// ListResult is the result of host.fs.list_dir.
type ListResult struct {
	Outcome
	Entries   *Output   `json:"entries,omitzero"` // one a line, "/" behind directories; never inline_bytes
	Overflow  *Overflow `json:"overflow,omitzero"`
	Count     *int64    `json:"count,omitzero"` // before max_results
	Truncated bool      `json:"truncated,omitzero"`
	Summary   string    `json:"summary_text,omitempty"`
}

// ChangeResult is the result of host.fs.mkdir, move and remove.
type ChangeResult struct {
	Outcome
	Path    string `json:"path,omitempty"`
	To      string `json:"to,omitempty"`
	Created *bool  `json:"created,omitzero"` // of mkdir
	Removed int64  `json:"removed,omitzero"` // of remove: how many names
}

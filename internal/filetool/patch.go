package filetool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/patch"
	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// maxErrors bounds the errors of one patch.
const maxErrors = 16

func (t *Tools) patch(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Patch, res.Patch
	out.DryRun = ask.DryRun
	format := ask.Format
	if format == "" {
		format = "v4a"
	}
	if allowed := t.config.Caps.PatchFormats; allowed != nil && !slices.Contains(allowed, format) {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeFormatNotAllowed, Message: fmt.Sprintf("the format %s is not among the allowed ones", format)}
	}
	text, fault := t.patchText(&ask.Patch)
	if fault != nil {
		return fault
	}
	parsed, bad := patch.Parse(format, text)
	if bad != nil {
		out.Errors = []file.PatchError{*bad}
		status := file.ParseError
		if bad.Code == file.CodePatchEmpty {
			status = file.Error
		}
		return &file.Fault{Status: status, Code: bad.Code, Message: located(bad)}
	}
	d := &draft{t: t, byPath: map[string]*sheet{}}
	defer d.close()
	for i := range parsed.Files {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		if d.file(&parsed.Files[i]); len(d.errors) >= maxErrors {
			break
		}
	}
	if len(d.errors) > 0 {
		out.Errors = d.errors
		return &file.Fault{Status: d.status, Code: d.errors[0].Code, Message: located(&d.errors[0])}
	}
	changes, fault := d.changes(out)
	if fault != nil {
		return fault
	}
	n := int64(len(out.ChangedPaths))
	if m := t.config.Caps.MaxChangedFiles; m != nil && n > *m {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeChangedFiles, Message: fmt.Sprintf("the patch changes %d files, allowed are %d", n, *m)}
	}
	if fault := tooMany(out.Changes); fault != nil {
		out.ChangedPaths, out.Changes, out.Ops = nil, nil, nil
		return fault
	}
	out.FilesChanged = ptr(n)
	counts := fmt.Sprintf("(add=%d update=%d delete=%d move=%d)", out.Ops.Add, out.Ops.Update, out.Ops.Delete, out.Ops.Move)
	if ask.DryRun {
		out.Summary = fmt.Sprintf("Patch dry-run: %d %s would change %s", n, plural(n, "file", "files"), counts)
		return nil
	}
	if len(changes) > 0 {
		if fault := stage.All(t.tree, changes, t.config.hook); fault != nil {
			out.FilesChanged, out.ChangedPaths, out.Changes, out.Ops = nil, nil, nil, nil
			if fault.Status == file.Conflict {
				fault.Status = file.Reject
			}
			return fault
		}
	}
	out.Summary = fmt.Sprintf("Applied patch: %d %s changed %s", n, plural(n, "file", "files"), counts)
	return nil
}

// maxEvidence bounds what a result says of the files that a patch changes. All of it is evidence: it is not cut.
const maxEvidence = 2 << 20

func tooMany(changes []file.Change) *file.Fault {
	size := 0
	for _, c := range changes {
		size += 2*len(c.Path) + len(c.From) + 256 // with digests, and the path among those that changed
	}
	if size > maxEvidence {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeChangedFiles, Message: fmt.Sprintf("the patch changes %d files: more than one receipt can vouch for", len(changes))}
	}
	return nil
}

func located(e *file.PatchError) string {
	at := ""
	if e.Path != "" {
		at = e.Path + ": "
	}
	if e.Hunk > 0 {
		at += fmt.Sprintf("hunk %d: ", e.Hunk)
	}
	if e.PatchLine > 0 {
		at = fmt.Sprintf("line %d of the patch: ", e.PatchLine) + at
	}
	return at + e.Message
}

func (t *Tools) patchText(p *file.PatchText) (string, *file.Fault) {
	limit := t.config.Runtime.PatchBytes
	if m := t.config.Caps.MaxPatchBytes; m != nil {
		limit = min(limit, *m)
	}
	tooLarge := &file.Fault{Status: file.Forbidden, Code: file.CodePatchBytes, Message: fmt.Sprintf("the patch has more than %d bytes", limit)}
	if p.InlineText != nil {
		if int64(len(p.InlineText.Text)) > limit {
			return "", tooLarge
		}
		return p.InlineText.Text, nil
	}
	if t.config.Load == nil {
		return "", failed(file.CodeInvalidBlobRef, "there is no store of blobs")
	}
	blob, err := t.config.Load(p.BlobRef.BlobRef)
	if err != nil {
		return "", failed(file.CodeInvalidBlobRef, "%v", err)
	}
	defer blob.Close()
	data, err := io.ReadAll(io.LimitReader(blob, limit+1))
	switch {
	case err != nil:
		return "", failed(file.CodeReadFailed, "%v", err)
	case int64(len(data)) > limit:
		return "", tooLarge
	}
	return string(data), nil
}

// draft is what a patch makes of the tree, before anything of it is done.
type draft struct {
	t      *Tools
	order  []*sheet
	byPath map[string]*sheet
	errors []file.PatchError
	status file.Status
	bytes  int64
	ops    file.PatchOps
	steps  []file.Change // in the order of the patch
}

// sheet is one path: what is there, and what is going to be.
type sheet struct {
	place        *tree.Place
	f            *os.File // of what is there; nil is nothing
	st           unix.Stat_t
	before       string // digest
	was, now     string
	exists       bool // in the draft
	exec         *bool
	like         *sheet // whose attributes a moved file has
	loaded, text bool
}

func (d *draft) close() {
	for _, s := range d.order {
		if s.f != nil {
			s.f.Close()
		}
		s.place.Close()
	}
}

// fail notes why a file of the patch cannot be.
func (d *draft) fail(f *patch.File, status file.Status, code file.Code, format string, args ...any) {
	d.note(status, file.PatchError{Code: code, Message: fmt.Sprintf(format, args...), Path: file.Quote(f.Path), PatchLine: int64(f.Line)})
}

func (d *draft) note(status file.Status, e file.PatchError) {
	if len(d.errors) == 0 {
		d.status = status
	}
	d.errors = append(d.errors, e)
}

// sheet finds the sheet of a path; nil when it is not to be touched, which is noted.
func (d *draft) sheet(f *patch.File, name string) *sheet {
	p, fault := d.t.find(name, tree.Options{Change: true, Whole: true, Missing: true})
	if fault != nil {
		if fault.Code == file.CodeInvalidPath {
			fault.Status = file.Error
		} else if fault.Status == file.Forbidden && fault.Code != file.CodeProtected {
			fault.Code = file.CodePathForbidden
		} else if fault.Status != file.Forbidden && fault.Status != file.NotFound {
			fault.Status = file.Error
		}
		d.fail(f, fault.Status, fault.Code, "%s", fault.Message)
		return nil
	}
	if s := d.byPath[p.Path]; s != nil {
		p.Close()
		return s
	}
	for at, other := range d.byPath {
		if other.exists && at != p.Path && (file.Within(p.Path, at) || file.Within(at, p.Path)) {
			d.fail(f, file.NotFound, file.CodePathNotFound, "%s is a file of the same patch: nothing can be below it", file.Quote(min(at, p.Path)))
			p.Close()
			return nil
		}
	}
	s := &sheet{place: p, exists: p.Exists}
	d.byPath[p.Path] = s
	d.order = append(d.order, s)
	return s
}

// load reads what is at a sheet's path.
func (d *draft) load(f *patch.File, s *sheet) bool {
	if s.loaded || !s.place.Exists {
		return true
	}
	h, st, fault := s.place.Open(unix.O_RDONLY)
	if fault != nil {
		d.fail(f, statusOf(fault), fault.Code, "%s", fault.Message)
		return false
	}
	s.f, s.st = h, st
	content, digest, fault := d.t.whole(h, st.Size)
	if fault != nil {
		d.fail(f, file.Error, fault.Code, "%s", fault.Message)
		return false
	}
	if d.bytes += int64(len(content)); d.bytes > 4*d.t.config.Runtime.WholeBytes {
		d.fail(f, file.Error, file.CodeTooLarge, "the files of the patch have more than %d bytes", 4*d.t.config.Runtime.WholeBytes)
		return false
	}
	s.was, s.before, s.loaded, s.text = string(content), digest, true, utf8.Valid(content)
	s.now = s.was
	return true
}

// statusOf gives a fault a status that apply_patch has.
func statusOf(f *file.Fault) file.Status {
	switch f.Status {
	case file.Forbidden, file.NotFound:
		return f.Status
	case file.Conflict:
		return file.Reject
	}
	return file.Error
}

// file puts one file of the patch into the draft.
func (d *draft) file(f *patch.File) {
	s := d.sheet(f, f.Path)
	if s == nil {
		return
	}
	switch f.Kind {
	case patch.Add:
		d.add(f, s)
	case patch.Delete:
		d.remove(f, s)
	case patch.Update:
		d.update(f, s)
	}
}

func (d *draft) add(f *patch.File, s *sheet) {
	if s.exists {
		d.fail(f, file.Reject, file.CodeAddExists, "the file to add exists: update it, or delete it first")
		return
	}
	if s.place.IsDirForm() {
		d.fail(f, file.Error, file.CodeInvalidPath, "a file's path does not end with a slash")
		return
	}
	s.now, s.exists, s.exec, s.like = f.Content, true, f.Exec, nil
	d.ops.Add++
	d.steps = append(d.steps, file.Change{Path: s.place.Path, Kind: "add"})
}

func (d *draft) remove(f *patch.File, s *sheet) {
	if !s.exists {
		d.fail(f, file.NotFound, file.CodeDeleteNotFound, "the file to delete does not exist")
		return
	}
	if !d.load(f, s) {
		return
	}
	if len(f.Hunks) > 0 { // a unified diff says what it deletes
		if _, bad := f.Apply(s.now); bad != nil {
			d.note(file.Reject, *bad)
			return
		}
	}
	s.exists, s.now = false, ""
	d.ops.Delete++
	d.steps = append(d.steps, file.Change{Path: s.place.Path, Kind: "delete"})
}

func (d *draft) update(f *patch.File, s *sheet) {
	if !s.exists {
		d.fail(f, file.NotFound, file.CodeUpdateNotFound, "the file to update does not exist")
		return
	}
	if !d.load(f, s) {
		return
	}
	if len(f.Hunks) > 0 && !utf8.ValidString(s.now) {
		d.fail(f, file.Error, file.CodeUpdateNotUTF8, "the file to update is not UTF-8")
		return
	}
	fresh, bad := f.Apply(s.now)
	if bad != nil {
		d.note(file.Reject, *bad)
		return
	}
	if m := d.t.config.Caps.MaxWriteBytes; m != nil && int64(len(fresh)) > *m {
		d.fail(f, file.Forbidden, file.CodeWriteBytes, "the file would have %d bytes, allowed are %d", len(fresh), *m)
		return
	}
	if f.MoveTo == "" {
		s.now = fresh
		s.mark(f.Exec)
		d.ops.Update++
		d.steps = append(d.steps, file.Change{Path: s.place.Path, Kind: "update"})
		return
	}
	to := d.sheet(f, f.MoveTo)
	switch {
	case to == nil:
		return
	case to == s:
		d.fail(f, file.Reject, file.CodeMoveExists, "the file would move to itself")
		return
	case to.exists:
		d.fail(f, file.Reject, file.CodeMoveExists, "%s exists, and would be moved over", file.Quote(to.place.Path))
		return
	}
	to.now, to.exists, to.exec, to.like = fresh, true, s.exec, s
	if s.like != nil {
		to.like = s.like
	}
	to.mark(f.Exec)
	s.now, s.exists = "", false
	d.ops.Move++
	d.steps = append(d.steps, file.Change{Path: to.place.Path, From: s.place.Path, Kind: "move"})
}

func (s *sheet) mark(exec *bool) {
	if exec != nil {
		s.exec = exec
	}
}

// changes are what has to be done, and what the result says of it.
func (d *draft) changes(out *file.PatchResult) ([]*stage.Change, *file.Fault) {
	var changes []*stage.Change
	for _, s := range d.order {
		limit := d.t.config.Caps.MaxWriteBytes
		c := &stage.Change{Place: s.place, Old: s.f, Stat: s.st, Judged: s.f != nil, Before: s.before, Exec: s.exec}
		switch {
		case s.exists && limit != nil && int64(len(s.now)) > *limit:
			return nil, &file.Fault{Status: file.Forbidden, Code: file.CodeWriteBytes, Message: fmt.Sprintf("%s would have %d bytes, allowed are %d", file.Quote(s.place.Path), len(s.now), *limit)}
		case !s.exists && !s.place.Exists:
			continue // added and deleted again
		case !s.exists:
			c.Remove = true
		case s.place.Exists && s.now == s.was && s.exec == nil:
			continue // what the patch does is there already
		default:
			c.Content = []byte(s.now)
			if !s.place.Exists && s.like != nil && s.like.f != nil {
				c.Like, c.LikeStat = s.like.f, s.like.st
			}
			c.New = !s.place.Exists
		}
		changes = append(changes, c)
	}
	out.Ops = &d.ops
	for _, step := range d.steps {
		s := d.byPath[step.Path]
		step.Before = s.before
		if step.From != "" {
			step.Before = d.byPath[step.From].before
			step.From = file.Quote(step.From)
		}
		if s.exists {
			step.After, step.SizeBytes = sum(s.now), int64(len(s.now))
		}
		step.Path = file.Quote(step.Path)
		out.Changes = append(out.Changes, step)
		if !slices.Contains(out.ChangedPaths, step.Path) {
			out.ChangedPaths = append(out.ChangedPaths, step.Path)
		}
	}
	return changes, nil
}

func sum(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

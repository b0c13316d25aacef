package filetool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/edit"
	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

func (t *Tools) write(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Write, res.Write
	// A file where a protected path's directory would be is in its way: Whole.
	p, fault := t.find(ask.Name(), tree.Options{Change: true, Whole: true, Missing: true})
	if fault != nil {
		return fault
	}
	defer p.Close()
	if fault := t.mayWrite(p, ask.CreateParents); fault != nil {
		return fault
	}
	if p.Exists && ask.Mode == "create_new" {
		return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: file.Quote(p.Path) + " exists"}
	}
	c := &stage.Change{Place: p, New: ask.Mode == "create_new" || ask.ExpectedSHA256 == "absent", Exec: ask.Executable}
	if p.Exists {
		if fault := t.old(c, ask.ExpectedSHA256); fault != nil {
			return fault
		}
		defer c.Old.Close()
	} else if ask.ExpectedSHA256 != "" && ask.ExpectedSHA256 != "absent" {
		return mismatch(p.Path, "there is no file")
	}
	limit := t.config.Runtime.WriteBytes
	if m := t.config.Caps.MaxWriteBytes; m != nil {
		limit = min(limit, *m)
	}
	closeContent, fault := t.content(c, &ask.Content, limit)
	if fault != nil {
		return fault
	}
	defer closeContent()
	if fault := stage.Put(c, t.config.hook); fault != nil {
		return fault
	}
	kind := "update"
	if !p.Exists {
		kind = "add"
	}
	out.Change = &file.Change{Path: file.Quote(p.Path), Kind: kind, Before: c.Before, After: c.After, SizeBytes: c.Written}
	if ask.Content.SecretText != nil { // a digest lets a guess be checked; and what a secret replaces is often one
		out.Change.Before, out.Change.After = "", ""
	}
	out.WrittenBytes, out.Created, out.NewMtimeNS = ptr(c.Written), ptr(!p.Exists), c.MtimeNS
	return nil
}

// mayWrite says why there can be no file at the place.
func (t *Tools) mayWrite(p *tree.Place, parents bool) *file.Fault {
	switch {
	case len(p.Missing) > 0 && !parents:
		return failed(file.CodeParentMissing, "the directory of %s does not exist", file.Quote(p.Path))
	case p.Exists && p.Kind() == "dir":
		return failed(file.CodeIsDirectory, "%s is a directory", file.Quote(p.Path))
	case p.Exists && p.Kind() != "file":
		return failed(file.CodeNotRegular, "%s is a %s", file.Quote(p.Path), p.Kind())
	case !p.Exists && p.IsDirForm():
		return failed(file.CodeIsDirectory, "%s/ names a directory", file.Quote(p.Path))
	}
	return nil
}

// old opens what is replaced, with its digest when that is expected or cheap. A file that its writer cannot read has no
// digest, and no attributes that could be kept.
func (t *Tools) old(c *stage.Change, expected string) *file.Fault {
	f, st, fault := c.Place.Open(unix.O_RDONLY)
	if fault != nil {
		return fault
	}
	c.Old, c.Stat = f, st
	if expected == "absent" {
		f.Close()
		return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: file.Quote(c.Place.Path) + " exists"}
	}
	if expected == "" && st.Size > t.config.Runtime.WholeBytes {
		return nil // evidence is not worth reading so much
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, min(st.Size, t.config.Runtime.ReadBytes))); err != nil {
		f.Close()
		return failed(file.CodeReadFailed, "%v", err)
	}
	c.Before = hex.EncodeToString(sum.Sum(nil))
	if expected != "" {
		if c.Judged = true; c.Before != expected {
			f.Close()
			return mismatch(c.Place.Path, "it has "+c.Before)
		}
	}
	return nil
}

func mismatch(at, why string) *file.Fault {
	return &file.Fault{Status: file.Conflict, Code: file.CodeHashMismatch, Message: file.Quote(at) + " is not what was expected: " + why}
}

// content gives the change its content, within the limit.
func (t *Tools) content(c *stage.Change, content *file.Content, limit int64) (func(), *file.Fault) {
	none := func() {}
	switch {
	case content.InlineText != nil:
		c.Content = []byte(content.InlineText.Text)
	case content.SecretText != nil:
		c.Content = []byte(content.SecretText.Text)
	case content.InlineBytes != nil:
		c.Content = content.InlineBytes.Bytes
	default:
		if t.config.Load == nil {
			return nil, failed(file.CodeInvalidBlobRef, "there is no store of blobs")
		}
		blob, err := t.config.Load(content.BlobRef.BlobRef)
		if err != nil {
			return nil, failed(file.CodeInvalidBlobRef, "%v", err)
		}
		c.Source = &bounded{blob, limit, limit}
		return func() { blob.Close() }, nil
	}
	if int64(len(c.Content)) > limit {
		return nil, tooMuch(limit)
	}
	return none, nil
}

func tooMuch(limit int64) *file.Fault {
	return &file.Fault{Status: file.Forbidden, Code: file.CodeWriteBytes, Message: fmt.Sprintf("the content has more than %d bytes", limit)}
}

// bounded is a reader that fails, rather than ends, when there is more than is allowed.
type bounded struct {
	r           io.Reader
	limit, left int64
}

func (b *bounded) Read(buf []byte) (int, error) {
	n, err := b.r.Read(buf[:min(int64(len(buf)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, tooMuch(b.limit)
	}
	return n, err
}

func (t *Tools) edit(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Edit, res.Edit
	out.Replacements, out.Applied = ptr(int64(0)), ptr(false)
	p, fault := t.find(ask.Name(), tree.Options{Change: true})
	if fault != nil {
		return fault
	}
	defer p.Close()
	if !p.Exists {
		return absent(file.Quote(p.Path))
	}
	f, st, fault := p.Open(unix.O_RDONLY)
	if fault != nil {
		return asError(fault)
	}
	defer f.Close()
	content, digest, fault := t.whole(f, st.Size)
	if fault != nil {
		return fault
	}
	if !utf8.Valid(content) {
		return failed(file.CodeInvalidUTF8, "%s is not UTF-8", file.Quote(p.Path))
	}
	if ask.ExpectedSHA256 != "" && ask.ExpectedSHA256 != digest {
		f := mismatch(p.Path, "it has "+digest)
		f.Status = file.Error
		return f
	}
	text := string(content)
	found := edit.Find(text, ask.OldString, ask.ExactOnly)
	if fault := t.accept(p, text, ask, found, out); fault != nil {
		return fault
	}
	limit := t.config.Runtime.WriteBytes
	if m := t.config.Caps.MaxWriteBytes; m != nil {
		limit = min(limit, *m)
	}
	fresh, ok := found.Replace(text, ask.NewString, limit)
	if !ok {
		return tooMuch(limit)
	}
	c := &stage.Change{Place: p, Old: f, Stat: st, Judged: true, Before: digest, Content: []byte(fresh)}
	if !ask.DryRun {
		if fault := stage.Put(c, t.config.hook); fault != nil {
			return asError(fault)
		}
	} else {
		sum := sha256.Sum256(c.Content)
		c.After, c.Written = hex.EncodeToString(sum[:]), int64(len(c.Content))
	}
	n := int64(len(found.Places))
	out.Replacements, out.Applied = ptr(n), ptr(!ask.DryRun)
	out.Change = &file.Change{Path: file.Quote(p.Path), Kind: "update", Before: digest, After: c.After, SizeBytes: c.Written}
	out.Summary = fmt.Sprintf("Updated %s (%d %s)", file.Quote(ask.Name()), n, plural(n, "replacement", "replacements"))
	return nil
}

// asError gives a status that edit_file does not have its error; the code says what it was.
func asError(f *file.Fault) *file.Fault {
	if f.Status == file.Conflict || f.Status == file.IsDirectory {
		f.Status = file.Error
	}
	return f
}

// accept says whether what was found is what is to be replaced.
func (t *Tools) accept(p *tree.Place, text string, ask *file.Edit, found edit.Matches, out *file.EditResult) *file.Fault {
	n := int64(len(found.Places))
	if n == 0 {
		out.Candidates = near(text, ask.OldString)
		return &file.Fault{Status: file.NotFound, Code: file.CodeEditNotFound, Message: "old_string is not in " + file.Quote(p.Path)}
	}
	out.Match = "exact"
	if found.Fuzzy {
		out.Match = "fuzzy"
	}
	if n > 1 && !ask.ReplaceAll {
		out.Count = n
		for _, m := range found.Places[:min(n, maxCandidates)] {
			out.Candidates = append(out.Candidates, candidate(text, m.Start))
		}
		return &file.Fault{Status: file.Ambiguous, Code: file.CodeAmbiguous, Message: fmt.Sprintf("old_string is in %s %d times: say more of what is around it, or replace_all", file.Quote(p.Path), n)}
	}
	if m := t.config.Caps.MaxReplacements; m != nil && n > *m {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeReplacements, Message: fmt.Sprintf("%d replacements, allowed are %d", n, *m)}
	}
	return nil
}

const maxCandidates = 20

func candidate(text string, offset int) file.Candidate {
	start := strings.LastIndexByte(text[:offset], '\n') + 1
	line, _, _ := strings.Cut(text[start:min(len(text), start+400)], "\n")
	return file.Candidate{Line: edit.Line(text, offset), Text: strings.ToValidUTF8(line[:min(len(line), 240)], "")}
}

// near are the lines that are like the first line of what was looked for, where white space and quotes do not count.
func near(text, old string) (out []file.Candidate) {
	want := ""
	for line := range strings.Lines(old) {
		if want = strings.TrimSpace(edit.Fold(line)); want != "" {
			break
		}
	}
	if want == "" {
		return nil
	}
	offset := 0
	for line := range strings.Lines(text) {
		if have := strings.TrimSpace(edit.Fold(line)); have == want {
			out = append(out, candidate(text, offset))
		}
		if offset += len(line); len(out) == maxCandidates {
			break
		}
	}
	return out
}

func plural(n int64, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

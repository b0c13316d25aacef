// Package filetool carries out file operations: reads, writes, edits, patches, searches. It works in one directory tree, with the
// identity of the process that it runs in, and promises that
//
//   - nothing outside of the tree, the roots and the rules of the symlink policy is read, written or listed, whatever is renamed
//     meanwhile (package tree);
//   - a change is whole or has not happened, for one file and for all files of a patch, also across a crash (package stage);
//   - nothing waits for what is no regular file, and nothing without an end is read to it;
//   - the same tree gives the same answer.
//
// It is linked into the worker inside a session, so it needs nothing but the standard library and system calls. It keeps
// nothing between two calls but descriptors; who asks, and whether policy agrees, is decided before.
package filetool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Config is what a Tools works with.
type Config struct {
	Root    *os.File  // directory; kept by a descriptor of its own
	Workdir string    // absolute, clean path in the tree
	Caps    file.Caps // what is allowed
	Runtime Runtime   // ceilings of the machine's sake

	// Store takes an output that is too large to be inline, and names it. nil: there is no such store, and a large
	// output is an error.
	Store func(content io.Reader) (ref string, size int64, err error)
	// Load gives the content of a blob. nil: there is none.
	Load func(ref string) (io.ReadCloser, error)

	// Ripgrep says which files below an open directory may have a line that a pattern of ripgrep's language matches. What it says is not
	// believed of any file, but that those which it leaves out have none. nil: the native engine finds that out itself.
	Ripgrep func(ctx context.Context, dir int, pattern string) (names []string, err error)

	hook stage.Hook // of tests: steps that fail
}

// Runtime are safety ceilings (C18). What they change is reported like what a capability changes, with source "runtime".
type Runtime struct {
	WholeBytes  int64 // of a file that a tool needs as a whole in memory (edit, patch, lines); 0 means 64 MiB
	ReadBytes   int64 // of one read; 0 means 1 GiB
	WriteBytes  int64 // of one write; 0 means 1 GiB
	PatchBytes  int64 // of a patch; 0 means 16 MiB
	Results     int64 // of one search or listing; 0 means 100,000
	ScanFiles   int64 // that one search looks at; 0 means 2,000,000
	OutputBytes int64 // of the text of one search or listing; 0 means 32 MiB
}

func (r Runtime) filled() Runtime {
	for _, row := range []struct {
		value *int64
		zero  int64
	}{
		{&r.WholeBytes, 64 << 20}, {&r.ReadBytes, 1 << 30}, {&r.WriteBytes, 1 << 30}, {&r.PatchBytes, 16 << 20},
		{&r.Results, 100_000}, {&r.ScanFiles, 2_000_000}, {&r.OutputBytes, 32 << 20},
	} {
		if *row.value == 0 {
			*row.value = row.zero
		}
	}
	return r
}

// Tools does file operations in one tree. Its methods may be called from any number of goroutines; changes happen one after the other.
type Tools struct {
	tree    *tree.Tree
	config  Config
	changes sync.Mutex
}

// Open makes Tools, and ends what a crash left in the working directory. The caller closes them.
func Open(c Config) (*Tools, error) {
	c.Runtime = c.Runtime.filled()
	t := &Tools{config: c}
	var err error
	if t.tree, err = tree.Open(c.Root, c.Workdir, &t.config.Caps); err != nil {
		return nil, err
	}
	t.recover(c.Workdir + "/.")
	return t, nil
}

// Close gives descriptors back.
func (t *Tools) Close() error { return t.tree.Close() }

// operations are what Do calls.
var operations = map[file.Op]func(*Tools, context.Context, *file.Request, *file.Result) *file.Fault{
	file.OpRead:   (*Tools).read,
	file.OpWrite:  (*Tools).write,
	file.OpEdit:   (*Tools).edit,
	file.OpPatch:  (*Tools).patch,
	file.OpGrep:   (*Tools).grep,
	file.OpGlob:   (*Tools).glob,
	file.OpStat:   (*Tools).stat,
	file.OpExists: (*Tools).stat,
	file.OpList:   (*Tools).list,
	file.OpMkdir:  (*Tools).mkdir,
	file.OpMove:   (*Tools).move,
	file.OpRemove: (*Tools).remove,
}

// Do carries a request out. The result says how it went; nil is only for an operation that there is not.
func (t *Tools) Do(ctx context.Context, r *file.Request) *file.Result {
	res := file.Empty(r.Op)
	if res == nil {
		return nil
	}
	out := res.Outcome()
	out.Status = file.OK
	fault := r.Validate()
	if fault == nil && !t.config.Caps.Check(r.Op.Class()) {
		fault = &file.Fault{Status: file.Forbidden, Code: file.CodeOpNotAllowed, Message: fmt.Sprintf("%s needs %q among the allowed operations", r.Op, r.Op.Class())}
	}
	if fault == nil {
		fault = t.outputMode(r)
	}
	if fault == nil && ctx.Err() != nil {
		fault = canceled(ctx)
	}
	if fault == nil {
		if r.Op.Changes() {
			t.changes.Lock()
			defer t.changes.Unlock()
		}
		fault = operations[r.Op](t, ctx, r, res)
	}
	if fault != nil {
		if !slices.Contains(r.Op.Statuses(), fault.Status) {
			fault.Status = file.Error
		}
		out.Fail(fault.Status, fault.Code, fault.Message)
	}
	return res
}

func canceled(ctx context.Context) *file.Fault {
	return &file.Fault{Status: file.Error, Code: file.CodeCanceled, Message: context.Cause(ctx).Error()}
}

func failed(code file.Code, format string, args ...any) *file.Fault {
	return &file.Fault{Status: file.Error, Code: code, Message: fmt.Sprintf(format, args...)}
}

// absent says that nothing is at a path, which is quoted already.
func absent(quoted string) *file.Fault {
	return &file.Fault{Status: file.NotFound, Code: file.CodePathNotFound, Message: quoted + " does not exist"}
}

// outputMode refuses a mode that the capabilities do not allow.
func (t *Tools) outputMode(r *file.Request) *file.Fault {
	mode, has := "", true
	switch {
	case r.Read != nil:
		mode = r.Read.OutputMode
	case r.Grep != nil:
		mode = r.Grep.OutputMode
	case r.Glob != nil:
		mode = r.Glob.OutputMode
	case r.List != nil:
		mode = r.List.OutputMode
	default:
		has = false
	}
	if mode == "" {
		mode = "auto"
	}
	if allowed := t.config.Caps.OutputModes; has && allowed != nil && !slices.Contains(allowed, mode) {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeOutputNotAllowed, Message: fmt.Sprintf("output mode %q is not among the allowed ones", mode)}
	}
	return nil
}

// find looks a path up, after what a crash may have left around it has been ended.
func (t *Tools) find(name string, o tree.Options) (*tree.Place, *file.Fault) {
	p, fault := t.tree.Find(name, o)
	if fault != nil || !t.recover(p.Path) {
		return p, fault
	}
	p.Close()
	return t.tree.Find(name, o)
}

// recover ends interrupted changes in the directories above a path, and reports whether there were any. It asks for the
// journals by name, which follows links and decides nothing.
func (t *Tools) recover(at string) (found bool) {
	for dir := path.Dir(at); ; dir = path.Dir(dir) {
		var st unix.Stat_t
		if unix.Fstatat(t.tree.Root(), strings.TrimPrefix(path.Join(dir, stage.Journal), "/"), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			found = t.recoverIn(dir) || found
		}
		if dir == "/" {
			return found
		}
	}
}

func (t *Tools) recoverIn(dir string) bool {
	p, fault := t.tree.FindAny(dir)
	if fault != nil {
		return false
	}
	defer p.Close()
	fd, fault := p.OpenDir()
	if fault != nil {
		return false
	}
	defer unix.Close(fd)
	caps := &t.config.Caps
	err := stage.Recover(fd, func(rel string) bool {
		at := path.Join(dir, rel)
		return caps.AdmitsChange(at) && caps.Protects(at, false) == ""
	})
	return err == nil
}

// mend ends interrupted changes that a walk below a directory comes by.
func (t *Tools) mend(base string) func(rel string) {
	return func(rel string) { t.recoverIn(path.Join(base, rel)) }
}

// limits are the ceilings of one request, as they come to be effective.
type limits struct{ clamped []file.Clamp }

// of is the smallest of what is asked, the capability and the ceiling of the machine.
func (l *limits) of(field string, asked, capability *int64, runtime int64) int64 {
	n, c := file.Min(field, asked, capability, "capability")
	if c != nil {
		l.clamped = append(l.clamped, *c)
	}
	if n < 0 || n > runtime {
		if n >= 0 {
			l.clamped = append(l.clamped, file.Clamp{Field: field, Requested: n, Effective: runtime, Source: "runtime"})
		}
		return runtime
	}
	return n
}

// inlineLimit is how much an output may have in the document.
func (t *Tools) inlineLimit() int64 {
	n := int64(file.InlineLimit)
	if c := t.config.Caps.MaxInlineBytes; c != nil {
		n = min(n, *c)
	}
	return n
}

// output puts content into the form that size and limits choose. text is never inline_bytes.
func (t *Tools) output(content []byte, mode string, valid bool) (*file.Output, *file.Overflow, *file.Fault) {
	if len(content) == 0 {
		return nil, nil, nil
	}
	limit := t.inlineLimit()
	if int64(len(content)) <= limit {
		if valid {
			return &file.Output{InlineText: &file.InlineText{Text: string(content)}}, nil, nil
		}
		return &file.Output{InlineBytes: &file.InlineBytes{Bytes: content}}, nil, nil
	}
	if mode == "require_inline" {
		over := &file.Overflow{SizeBytes: int64(len(content)), LimitBytes: limit}
		return nil, over, failed(file.CodeInlineTooLarge, "the output has %d bytes, inline are at most %d", over.SizeBytes, limit)
	}
	return t.store(strings.NewReader(string(content)), content[:min(len(content), file.PreviewLimit)])
}

func (t *Tools) store(content io.Reader, preview []byte) (*file.Output, *file.Overflow, *file.Fault) {
	if t.config.Store == nil {
		return nil, nil, failed(file.CodeStoreFailed, "the output is too large to be inline, and there is no store")
	}
	ref, size, err := t.config.Store(content)
	if err != nil {
		var fault *file.Fault
		if errors.As(err, &fault) {
			return nil, nil, fault
		}
		return nil, nil, failed(file.CodeStoreFailed, "%v", err)
	}
	return &file.Output{Blob: &file.Blob{BlobRef: ref, SizeBytes: size, PreviewBytes: slices.Clone(preview)}}, nil, nil
}

func ptr[T any](v T) *T { return &v }

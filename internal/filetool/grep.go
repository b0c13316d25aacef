package filetool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/glob"
	"github.com/stockade-dev/stockade/internal/filetool/search"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

func (t *Tools) grep(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Grep, res.Grep
	m, err := search.Compile(search.Options{
		Pattern: ask.Pattern, Fold: ask.CaseInsensitive, Fixed: ask.FixedStrings, Multiline: ask.Multiline,
		Before: int(ask.Before), After: int(ask.After), PerFile: ask.MaxPerFile,
	})
	if err != nil {
		return &file.Fault{Status: file.InvalidRegex, Code: file.CodeInvalidRegex, Message: err.Error()}
	}
	var filter *glob.Filter
	if ask.GlobFilter != "" {
		if filter, err = glob.CompileFilter(ask.GlobFilter, false); err != nil {
			return failed(file.CodeInvalidGlobFilter, "%v", err)
		}
	}
	var l limits
	limit := l.of("max_results", orDefault(ask.MaxResults), t.config.Caps.MaxGrepResults, t.config.Runtime.Results)
	out.Clamped = l.clamped
	p, fault := t.find(ask.Name(), tree.Options{})
	if fault != nil {
		return fault
	}
	defer p.Close()
	if !p.Exists {
		return absent(file.Quote(p.Path))
	}
	g := &grepping{t: t, m: m, limit: limit, filter: filter, out: out, base: t.shown(p.Path)}
	if p.Kind() == "dir" {
		fault = g.below(ctx, p, ask)
	} else {
		g.native(reasonOneFile)
		fault = g.file(ctx, p)
	}
	if fault != nil {
		return fault
	}
	if g.large > 0 && out.Code == "" {
		out.Truncated, out.Code = true, file.CodeTooLarge
		out.Message = fmt.Sprintf("%d %s larger than a pattern is held against as a whole", g.large, plural(int64(g.large), "file is", "files are"))
	}
	out.MatchCount, out.Truncated = ptr(g.count), out.Truncated || g.count > limit || g.cut
	out.Summary = "No matches found"
	if g.count > 0 {
		out.Summary = fmt.Sprintf("%d %s", g.count, plural(g.count, "match", "matches"))
	}
	out.Matches, out.Overflow, fault = t.output(g.text.Bytes(), ask.OutputMode, true)
	return fault
}

// shown is a resolved path as results name it: relative to the working directory where it lies in it.
func (t *Tools) shown(at string) string {
	if at == t.config.Workdir {
		return ""
	}
	if file.Within(at, t.config.Workdir) {
		return strings.TrimPrefix(strings.TrimPrefix(at, t.config.Workdir), "/")
	}
	return at
}

// join is a path below a base as results name it.
func join(base, rel string) string {
	switch {
	case rel == "":
		return base
	case base == "":
		return rel
	}
	return strings.TrimSuffix(base, "/") + "/" + rel
}

// grepping is one grep.
type grepping struct {
	t      *Tools
	m      *search.Matcher
	limit  int64
	filter *glob.Filter
	out    *file.GrepResult
	base   string

	count int64 // matching lines
	given int64 // of them in text
	cut   bool  // the text is full
	large int   // files that were not searched for their size
	full  atomic.Bool
	text  bytes.Buffer
}

// add gives the answer of one file, in order.
func (g *grepping) add(rel string, lines []search.Line, count int64) {
	g.count += count
	if g.given >= g.limit || g.cut || len(lines) == 0 {
		return
	}
	name := file.Quote(join(g.base, rel))
	context := g.m.Before > 0 || g.m.After > 0
	last := int64(-1)
	var number [20]byte
	for _, l := range lines {
		if l.Match && g.given == g.limit {
			break
		}
		if g.given == g.limit && l.Number > last+1 {
			break // context of a match that is not given any more
		}
		if int64(g.text.Len()) > g.t.config.Runtime.OutputBytes {
			g.cut = true
			break
		}
		if context && g.text.Len() > 0 && (last < 0 || l.Number > last+1) {
			g.text.WriteString("--\n")
		}
		sep := byte('-')
		if l.Match {
			sep = ':'
			g.given++
		}
		g.text.WriteString(name)
		g.text.WriteByte(sep)
		g.text.Write(strconv.AppendInt(number[:0], l.Number, 10))
		g.text.WriteByte(sep)
		g.text.WriteString(l.Text)
		g.text.WriteByte('\n')
		last = l.Number
	}
	if g.given >= g.limit || g.cut {
		g.full.Store(true)
	}
}

// maxUnsized is how much is read of a file that says that it is empty: what procfs makes while it is read.
const maxUnsized = 16 << 20

func bound(size int64) int64 {
	if size == 0 {
		return maxUnsized
	}
	return size
}

// file searches one file that was named.
func (g *grepping) file(ctx context.Context, p *tree.Place) *file.Fault {
	f, st, fault := p.Open(unix.O_RDONLY)
	if fault != nil {
		return fault
	}
	defer f.Close()
	if m := g.t.config.Caps.MaxScanBytes; m != nil && st.Size > *m {
		g.out.Truncated, g.out.Code, g.out.Message = true, file.CodeScanBytes, "the file is larger than may be searched"
		return nil
	}
	g.out.Files = 1
	lines, count, err := g.m.File(&interruptible{ctx, f}, bound(st.Size), &search.Buffer{}, true)
	if errors.Is(err, search.ErrTooLarge) {
		g.large++
		return nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		return failed(file.CodeGrepFailed, "%v", err)
	}
	g.add("", lines, count)
	return nil
}

type interruptible struct {
	ctx context.Context
	f   *os.File
}

func (r *interruptible) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	for {
		n, err := unix.Read(int(r.f.Fd()), b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// job is one file on its way through the workers. Jobs are answered in the order in which they were made.
type job struct {
	dir   *dir
	name  string
	rel   string
	lines []search.Line
	count int64
	large bool
	done  chan struct{}
}

// walk searches everything below a directory.
func (g *grepping) walk(ctx context.Context, p *tree.Place, respect bool) *file.Fault {
	fd, fault := p.OpenDir()
	if fault != nil {
		return fault
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	files, scanned := int64(0), int64(0)
	var w *walker
	err := g.each(ctx, func(search func(d *dir, name, rel string)) error {
		w = &walker{ctx: ctx, ignore: respect, mend: g.t.mend(p.Path), visit: func(d *dir, rel string, e tree.Entry) error {
			if e.Mode != unix.S_IFREG || g.filter != nil && !g.filter.Match(rel) {
				return nil
			}
			if code := g.t.scan(d, e.Name, &files, &scanned); code != "" {
				g.giveUp(code)
				return errStop
			}
			search(d, e.Name, rel)
			return nil
		}}
		return w.run(fd)
	})
	g.out.Files = files
	switch {
	case ctx.Err() != nil:
		return canceled(ctx)
	case err != nil:
		return failed(file.CodeGrepFailed, "%v", err)
	case w.failed != nil:
		return failed(file.CodeGrepFailed, "%v", w.failed)
	}
	g.out.Truncated = g.out.Truncated || w.deep
	return nil
}

// giveUp says that a ceiling ended the search.
func (g *grepping) giveUp(code file.Code) {
	g.out.Truncated, g.out.Code, g.out.Message = true, code, "the search has ended before all files were looked at"
}

// each searches the files that walk names, on all processors, and adds what they have in the order in which they were named.
func (g *grepping) each(ctx context.Context, walk func(search func(d *dir, name, rel string)) error) error {
	workers := max(runtime.GOMAXPROCS(0), 2)
	todo, order := make(chan *job, 16*workers), make(chan *job, 64*workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var buf search.Buffer
			for j := range todo {
				g.search(ctx, j, &buf)
				close(j.done)
			}
		})
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for j := range order {
			<-j.done
			if j.large {
				g.large++
			}
			g.add(j.rel, j.lines, j.count)
		}
	}()
	err := walk(func(d *dir, name, rel string) {
		j := &job{dir: d.hold(), name: name, rel: rel, done: make(chan struct{})}
		todo <- j
		order <- j
	})
	close(todo)
	close(order)
	wg.Wait()
	<-collected
	return err
}

// scan counts a file that is looked at, and names the ceiling that it goes beyond.
func (t *Tools) scan(d *dir, name string, files, scanned *int64) file.Code {
	limit := t.config.Runtime.ScanFiles
	if m := t.config.Caps.MaxScanFiles; m != nil {
		limit = min(limit, *m)
	}
	if *files >= limit {
		return file.CodeScanFiles
	}
	if m := t.config.Caps.MaxScanBytes; m != nil {
		var st unix.Stat_t
		if unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			*scanned += st.Size
		}
		if *scanned > *m {
			return file.CodeScanBytes
		}
	}
	*files++
	return ""
}

// search is one job. A file that cannot be read, or is none any more, has no lines.
func (g *grepping) search(ctx context.Context, j *job, buf *search.Buffer) {
	defer j.dir.release()
	if ctx.Err() != nil {
		return
	}
	fd, err := unix.Openat(j.dir.fd, j.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), j.name)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	j.lines, j.count, err = g.m.File(&interruptible{ctx, f}, bound(st.Size), buf, !g.full.Load())
	j.large = errors.Is(err, search.ErrTooLarge)
}

// found is one path of a glob.
type found struct {
	rel   string
	mtime int64
}

func (t *Tools) glob(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Glob, res.Glob
	var l limits
	limit := l.of("max_results", orDefault(ask.MaxResults), t.config.Caps.MaxGlobResults, t.config.Runtime.Results)
	out.Clamped = l.clamped
	p, fault := t.find(ask.Name(), tree.Options{})
	if fault != nil {
		return fault
	}
	defer p.Close()
	pattern, fault := t.pattern(ask, p)
	if fault != nil {
		return fault
	}
	if !p.Exists {
		return absent(file.Quote(p.Path))
	}
	fd, fault := p.OpenDir()
	if fault != nil {
		return fault
	}
	var all []found
	files, scanned := int64(0), int64(0)
	w := &walker{ctx: ctx, ignore: ask.RespectIgnore, mend: t.mend(p.Path), leads: pattern.Leads, visit: func(d *dir, rel string, e tree.Entry) error {
		if code := t.scan(d, e.Name, &files, &scanned); code != "" {
			out.Truncated, out.Code, out.Message = true, code, "the search has ended before all files were looked at"
			return errStop
		}
		if !pattern.Match(rel) {
			return nil
		}
		var st unix.Stat_t
		if unix.Fstatat(d.fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			all = append(all, found{rel, st.Mtim.Nano()})
		}
		return nil
	}}
	err := w.run(fd)
	switch {
	case ctx.Err() != nil:
		return canceled(ctx)
	case err != nil:
		return failed(file.CodeGlobFailed, "%v", err)
	case w.failed != nil:
		return failed(file.CodeGlobFailed, "%v", w.failed)
	}
	slices.SortFunc(all, func(a, b found) int {
		if a.mtime != b.mtime {
			if a.mtime > b.mtime {
				return -1
			}
			return 1
		}
		return strings.Compare(a.rel, b.rel)
	})
	n := int64(len(all))
	out.Count, out.Truncated = ptr(n), out.Truncated || w.deep || n > limit
	out.Summary = "No files matched"
	if n > 0 {
		out.Summary = fmt.Sprintf("%d %s matched", n, plural(n, "path", "paths"))
	}
	base := t.shown(p.Path)
	var b bytes.Buffer
	for _, f := range all[:min(n, limit)] {
		if int64(b.Len()) > t.config.Runtime.OutputBytes {
			out.Truncated = true
			break
		}
		b.WriteString(file.Quote(join(base, f.rel)))
		b.WriteByte('\n')
	}
	out.Paths, out.Overflow, fault = t.output(b.Bytes(), ask.OutputMode, true)
	return fault
}

// pattern reads the pattern of a glob. One that begins with the directory that is searched means the rest of it.
func (t *Tools) pattern(ask *file.Glob, p *tree.Place) (*glob.Pattern, *file.Fault) {
	bad := func(why string) *file.Fault {
		return &file.Fault{Status: file.InvalidPattern, Code: file.CodeInvalidPattern, Message: why}
	}
	text := ask.Pattern
	if strings.HasPrefix(text, "/") {
		rest, ok := strings.CutPrefix(text, strings.TrimSuffix(p.Path, "/")+"/")
		if !ok {
			return nil, bad("the pattern is relative to path, or begins with it")
		}
		text = rest
	}
	for strings.HasPrefix(text, "./") {
		text = text[2:]
	}
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			return nil, bad("the pattern goes up: use path")
		}
	}
	pattern, err := glob.Compile(text, ask.CaseInsensitive)
	if err != nil {
		return nil, bad(err.Error())
	}
	return pattern, nil
}

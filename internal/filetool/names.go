package filetool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

func (t *Tools) stat(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	out := res.Stat
	p, fault := t.find(r.Stat.Name(), tree.Options{NoFollow: r.Stat.Link})
	if fault != nil && fault.Status == file.NotFound {
		p = &tree.Place{Dir: -1}
	} else if fault != nil {
		if fault.Code == file.CodeIOError {
			fault.Code = file.CodeStatFailed
		}
		return fault
	}
	defer p.Close()
	out.Exists = ptr(p.Exists)
	switch {
	case r.Op == file.OpExists:
		return nil
	case !p.Exists:
		return absent(file.Quote(r.Stat.Name()))
	}
	st := &p.Stat
	out.IsDir, out.SizeBytes, out.MtimeNS = ptr(p.Kind() == "dir"), ptr(st.Size), ptr(st.Mtim.Nano())
	out.Path, out.Kind, out.Mode, out.UID, out.GID = file.Quote(p.Path), p.Kind(), st.Mode&0o7777, st.Uid, st.Gid
	if out.Kind == "symlink" {
		buf := make([]byte, unix.PathMax)
		if n, err := unix.Readlinkat(p.Dir, p.Name, buf); err == nil {
			out.LinkTo = file.Quote(string(buf[:n]))
		}
	}
	return nil
}

func (t *Tools) list(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.List, res.List
	var l limits
	limit := l.of("max_results", orDefault(ask.MaxResults), t.config.Caps.MaxGlobResults, t.config.Runtime.Results)
	out.Clamped = l.clamped
	p, fault := t.find(ask.Name(), tree.Options{})
	if fault != nil {
		return fault
	}
	defer p.Close()
	if !p.Exists {
		return absent(file.Quote(p.Path))
	}
	fd, fault := p.OpenDir()
	if fault != nil {
		return fault
	}
	defer unix.Close(fd)
	t.recover(p.Path + "/.")
	entries, err := tree.ReadDir(fd)
	if err != nil {
		return failed(file.CodeListFailed, "%v", err)
	}
	entries = slices.DeleteFunc(entries, func(e tree.Entry) bool {
		return strings.HasPrefix(e.Name, stage.Prefix) || !t.leads(path.Join(p.Path, e.Name))
	})
	slices.SortFunc(entries, func(a, b tree.Entry) int { return strings.Compare(a.Name, b.Name) })
	n := int64(len(entries))
	out.Count, out.Truncated = ptr(n), n > limit
	out.Summary = fmt.Sprintf("%d %s", n, plural(n, "entry", "entries"))
	var b bytes.Buffer
	for _, e := range entries[:min(n, limit)] {
		if int64(b.Len()) > t.config.Runtime.OutputBytes {
			out.Truncated = true
			break
		}
		b.WriteString(file.Quote(e.Name))
		if e.Mode == 0 {
			var st unix.Stat_t
			if unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				e.Mode = st.Mode & unix.S_IFMT
			}
		}
		if e.Mode == unix.S_IFDIR {
			b.WriteByte('/')
		}
		b.WriteByte('\n')
	}
	out.Entries, out.Overflow, fault = t.output(b.Bytes(), ask.OutputMode, true)
	return fault
}

// leads reports whether a path is in the roots or leads to one: what else there is next to it is not told.
func (t *Tools) leads(at string) bool {
	return t.config.Caps.Admits(at)
}

func orDefault(n *int64) *int64 {
	if n == nil {
		return ptr(int64(file.DefaultResults))
	}
	return n
}

func (t *Tools) mkdir(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Mkdir, res.Change
	p, fault := t.find(ask.Name(), tree.Options{Change: true, Missing: true})
	if fault != nil {
		return fault
	}
	defer p.Close()
	out.Path, out.Created = file.Quote(p.Path), ptr(false)
	switch {
	case p.Exists && p.Kind() == "dir" && ask.CreateParents:
		return nil
	case p.Exists:
		return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: file.Quote(p.Path) + " exists"}
	case len(p.Missing) > 0 && !ask.CreateParents:
		return failed(file.CodeParentMissing, "the directory of %s does not exist", file.Quote(p.Path))
	}
	created, fault := stage.Mkdir(p, t.config.hook)
	if fault != nil {
		return fault
	}
	if !created && !ask.CreateParents {
		return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: file.Quote(p.Path) + " exists"}
	}
	out.Created = ptr(created)
	return nil
}

func (t *Tools) move(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Move, res.Change
	from, fault := t.find(ask.Name(), tree.Options{NoFollow: true, Change: true, Whole: true})
	if fault != nil {
		return fault
	}
	defer from.Close()
	to, fault := t.find(ask.Destination(), tree.Options{NoFollow: true, Change: true, Whole: true})
	if fault != nil {
		return fault
	}
	defer to.Close()
	out.Path, out.To = file.Quote(from.Path), file.Quote(to.Path)
	switch {
	case !from.Exists:
		return absent(out.Path)
	case from.Name == "." || to.Name == ".":
		return &file.Fault{Status: file.Forbidden, Code: file.CodePathNotAllowed, Message: "the root is not moved"}
	case t.anchors(from.Path):
		return &file.Fault{Status: file.Forbidden, Code: file.CodePathNotAllowed, Message: out.Path + " is a root, or has one in it"}
	case to.Exists && !ask.Overwrite:
		return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: out.To + " exists"}
	case to.Exists && to.Kind() == "dir":
		return failed(file.CodeIsDirectory, "%s is a directory", out.To)
	case file.Within(to.Path, from.Path) && to.Path != from.Path:
		return failed(file.CodeInvalidPath, "%s lies in %s", out.To, out.Path)
	}
	return stage.Move(from, to, ask.Overwrite, t.config.hook)
}

// anchors reports whether a path is one of the roots or above one: with it, the rules would go elsewhere.
func (t *Tools) anchors(at string) bool {
	for _, roots := range [][]string{t.config.Caps.Roots, t.config.Caps.WriteRoots, {t.config.Workdir}} {
		for _, root := range roots {
			if file.Within(root, at) {
				return true
			}
		}
	}
	return false
}

func (t *Tools) remove(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Remove, res.Change
	p, fault := t.find(ask.Name(), tree.Options{NoFollow: true, Change: true, Whole: true})
	if fault != nil {
		return fault
	}
	defer p.Close()
	out.Path = file.Quote(p.Path)
	switch {
	case !p.Exists:
		return absent(out.Path)
	case p.Name == "." || t.anchors(p.Path):
		return &file.Fault{Status: file.Forbidden, Code: file.CodePathNotAllowed, Message: out.Path + " is a root, or has one in it"}
	}
	err := t.removeAll(ctx, p.Dir, p.Name, p.Kind() == "dir", ask.Recursive, &out.Removed, 0)
	if err != nil {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		f := tree.Fault(p.Path, err)
		if f.Code == file.CodeIOError {
			f.Code = file.CodeDeleteFailed
		}
		return f
	}
	return stage.Sync(p, t.config.hook)
}

const maxDepth = 1024

// removeAll removes a name. What becomes a directory meanwhile is not gone into, and what stops being one is removed as what it is: a
// link is never followed.
func (t *Tools) removeAll(ctx context.Context, dir int, name string, isDir, recursive bool, removed *int64, depth int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t.config.hook != nil {
		if err := t.config.hook("unlink"); err != nil {
			return err
		}
	}
	if !isDir {
		err := unix.Unlinkat(dir, name, 0)
		if err == nil {
			*removed++
		}
		return err
	}
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == nil {
		*removed++
	}
	if !recursive || err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if depth > maxDepth {
		return unix.ENAMETOOLONG
	}
	if t.config.hook != nil {
		if err := t.config.hook("enter"); err != nil {
			return err
		}
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	entries, err := tree.ReadDir(fd)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Mode == 0 {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
			e.Mode = st.Mode & unix.S_IFMT
		}
		if err := t.removeAll(ctx, fd, e.Name, e.Mode == unix.S_IFDIR, true, removed, depth+1); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil {
		*removed++
	}
	return err
}

package filetool

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Why a search was this engine's, or that one's.
const (
	reasonProvided   = "provided"     // ripgrep: the operator has provided it, and nothing spoke against it
	reasonOneFile    = "one_file"     // nothing is to be found out
	reasonPattern    = "pattern"      // ripgrep has no such pattern; every multiline one
	reasonIgnore     = "ignore_files" // their rules are the native engine's
	reasonCeiling    = "scan_ceiling" // there is more than may be looked at, and where the native engine stops is a promise
	reasonKernel     = "kernel_files" // below it are files of the kernel's, of which some never end and some never begin
	reasonGone       = "helper_gone"
	reasonLate       = "ripgrep_late"
	reasonFailed     = "ripgrep_failed"
	reasonUnfinished = "change_unfinished" // ripgrep has found the journal of an interrupted change, which a walk ends
)

// patience is how long ripgrep may take. A search that takes longer is made by the native engine, which needs at most about as long.
const patience = 20 * time.Second

func (g *grepping) native(reason string) {
	g.out.Backend = "native"
	if g.t.config.Ripgrep != nil {
		g.out.Reason = reason
	}
}

// below searches a directory: with ripgrep where that is provided and can be had without finding, reading or missing anything that the
// native engine would not.
func (g *grepping) below(ctx context.Context, p *tree.Place, ask *file.Grep) *file.Fault {
	why := ""
	if g.t.config.Ripgrep != nil {
		pattern, ok := g.m.Ripgrep()
		if why = g.unfit(p, ask, ok); why == "" {
			why = g.beyond(ctx, p)
		}
		if why == "" {
			var names []string
			names, why = g.named(ctx, p, pattern)
			if why == "" {
				g.out.Backend, g.out.Reason = "ripgrep", reasonProvided
				return g.those(ctx, p, names)
			}
			if ctx.Err() != nil {
				return canceled(ctx)
			}
		}
	}
	g.native(why)
	return g.walk(ctx, p, ask.RespectIgnore)
}

// unfit is why a search is not ripgrep's; "" is no reason.
func (g *grepping) unfit(p *tree.Place, ask *file.Grep, pattern bool) string {
	for _, row := range []struct {
		so  bool
		why string
	}{
		{!pattern, reasonPattern},
		{ask.RespectIgnore, reasonIgnore},
		{slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(k string) bool { return file.Within(k, p.Path) || file.Within(p.Path, k) }), reasonKernel},
	} {
		if row.so {
			return row.why
		}
	}
	return ""
}

// beyond counts what ripgrep would look at, where there is a ceiling: it knows none itself. What appears after the count it may read, with the
// session's own processor time; it is shown to nobody, because what is named is counted again.
func (g *grepping) beyond(ctx context.Context, p *tree.Place) string {
	if c := &g.t.config.Caps; c.MaxScanFiles == nil && c.MaxScanBytes == nil {
		return ""
	}
	fd, fault := p.OpenDir()
	if fault != nil {
		return reasonFailed
	}
	files, scanned, why := int64(0), int64(0), ""
	w := &walker{ctx: ctx, visit: func(d *dir, rel string, e tree.Entry) error {
		if e.Mode == unix.S_IFREG && g.t.scan(d, e.Name, &files, &scanned) != "" {
			why = reasonCeiling
			return errStop
		}
		return nil
	}}
	if err := w.run(fd); err != nil || w.failed != nil {
		return reasonFailed
	}
	return why
}

// named asks ripgrep which files to look at.
func (g *grepping) named(ctx context.Context, p *tree.Place, pattern string) (names []string, why string) {
	fd, fault := p.OpenDir()
	if fault != nil {
		return nil, reasonFailed // and so will be the walk, with the reason
	}
	defer unix.Close(fd)
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	names, err := g.t.config.Ripgrep(ctx, fd, pattern+"|"+stage.JournalLine)
	switch {
	case errors.Is(err, ripgrep.ErrGone):
		return nil, reasonGone
	case ctx.Err() != nil:
		return nil, reasonLate
	case err != nil:
		return nil, reasonFailed
	case slices.ContainsFunc(names, func(name string) bool { return path.Base(name) == stage.Journal }):
		return nil, reasonUnfinished
	}
	return names, ""
}

// those searches the files of a list that nobody vouches for: a name counts when it leads, component by component and through no link, from
// the directory to a regular file, as those do that a walk comes by.
func (g *grepping) those(ctx context.Context, p *tree.Place, names []string) *file.Fault {
	fd, fault := p.OpenDir()
	if fault != nil {
		return fault
	}
	type place struct {
		rel   string
		parts []string
	}
	var places []place
	for _, name := range names {
		parts := strings.Split(name, "/")
		if slices.ContainsFunc(parts, func(part string) bool {
			return part == "" || part == "." || part == ".." || strings.HasPrefix(part, stage.Prefix) || strings.IndexByte(part, 0) >= 0
		}) || g.filter != nil && !g.filter.Match(name) {
			continue
		}
		if len(parts) > maxOpen+1 {
			g.out.Truncated = true
			continue
		}
		places = append(places, place{name, parts})
	}
	slices.SortFunc(places, func(a, b place) int { return slices.Compare(a.parts, b.parts) })
	places = slices.CompactFunc(places, func(a, b place) bool { return a.rel == b.rel })
	files, scanned := int64(0), int64(0)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := g.each(ctx, func(search func(d *dir, name, rel string)) error {
		way := descend(fd)
		defer way.close()
		for _, f := range places {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			last := len(f.parts) - 1
			d := way.to(f.parts[:last])
			if d == nil {
				continue
			}
			if code := g.t.scan(d, f.parts[last], &files, &scanned); code != "" {
				g.giveUp(code)
				break
			}
			search(d, f.parts[last], f.rel)
		}
		return nil
	})
	g.out.Files = files
	switch {
	case ctx.Err() != nil:
		return canceled(ctx)
	case err != nil:
		return failed(file.CodeGrepFailed, "%v", err)
	}
	return nil
}

// descent is a directory, those below it that lead to where the last file was, and their names.
type descent struct {
	dirs  []*dir
	names []string
}

// descend begins at an open directory, which it takes over.
func descend(fd int) *descent {
	top := &dir{fd: fd}
	return &descent{dirs: []*dir{top.hold()}}
}

// to goes to a directory; nil is that there is none any more. Those that it shares with the last one are not opened again.
func (d *descent) to(names []string) *dir {
	same := 0
	for same < len(names) && same < len(d.names) && names[same] == d.names[same] {
		same++
	}
	d.up(same)
	for _, name := range names[same:] {
		fd, err := unix.Openat(d.dirs[len(d.dirs)-1].fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		sub := &dir{fd: fd}
		d.dirs, d.names = append(d.dirs, sub.hold()), append(d.names, name)
	}
	return d.dirs[len(d.dirs)-1]
}

func (d *descent) up(depth int) {
	for len(d.names) > depth {
		d.dirs[len(d.dirs)-1].release()
		d.dirs, d.names = d.dirs[:len(d.dirs)-1], d.names[:len(d.names)-1]
	}
}

func (d *descent) close() {
	d.up(0)
	d.dirs[0].release()
}

package filetool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/ignore"
	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
)

// walker goes through the names below a directory, sorted by component. It follows no link: every directory is opened in the
// one before it, with O_NOFOLLOW.
type walker struct {
	ctx    context.Context
	ignore bool                                         // files named by ignore files are left out
	leads  func(dir string) bool                        // whether to go into a directory; nil is always
	visit  func(d *dir, rel string, e tree.Entry) error // of everything but directories
	mend   func(rel string)                             // told of a directory in which a crash has left a journal, before anything of it is looked at
	deep   bool                                         // something was left out because it lies too deep
	failed error                                        // the first directory that could not be read
}

// dir is an open directory. Whoever uses it later takes a reference.
type dir struct {
	fd   int
	refs atomic.Int32
}

func (d *dir) hold() *dir { d.refs.Add(1); return d }

func (d *dir) release() {
	if d.refs.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// maxOpen bounds the directories that are open at a time, one below the other.
const maxOpen = 200

// errStop ends a walk.
var errStop = errors.New("enough")

// run walks below an open directory, which it closes.
func (w *walker) run(fd int) error {
	d := &dir{fd: fd}
	d.hold()
	defer d.release()
	err := w.dir(d, "", nil, 0)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (w *walker) dir(d *dir, rel string, rules *ignore.Rules, depth int) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	entries, err := tree.ReadDir(d.fd)
	if err != nil {
		w.fail(err)
		return nil
	}
	if w.mend != nil && slices.ContainsFunc(entries, func(e tree.Entry) bool { return e.Name == stage.Journal }) {
		w.mend(rel)
		unix.Seek(d.fd, 0, unix.SEEK_SET)
		if entries, err = tree.ReadDir(d.fd); err != nil {
			w.fail(err)
			return nil
		}
	}
	slices.SortFunc(entries, func(a, b tree.Entry) int { return strings.Compare(a.Name, b.Name) })
	if w.ignore {
		rules = w.rules(d, rel, entries, rules)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, stage.Prefix) {
			continue
		}
		if e.Mode == 0 {
			var st unix.Stat_t
			if unix.Fstatat(d.fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			e.Mode = st.Mode & unix.S_IFMT
		}
		at := e.Name
		if rel != "" {
			at = rel + "/" + e.Name
		}
		if rules != nil && rules.Ignored(at, e.Mode == unix.S_IFDIR) {
			continue
		}
		if e.Mode != unix.S_IFDIR {
			if err := w.visit(d, at, e); err != nil {
				return err
			}
			continue
		}
		if w.leads != nil && !w.leads(at) {
			continue
		}
		if depth == maxOpen {
			w.deep = true
			continue
		}
		fd, err := unix.Openat(d.fd, e.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			w.fail(err)
			continue
		}
		sub := &dir{fd: fd}
		sub.hold()
		err = w.dir(sub, at, rules, depth+1)
		sub.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// fail notes that something could not be read. A directory that is gone, or has become something else, is none.
func (w *walker) fail(err error) {
	if w.failed == nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EACCES) {
		w.failed = err
	}
}

// maxIgnore bounds an ignore file.
const maxIgnore = 1 << 20

// rules adds those of a directory's own ignore files.
func (w *walker) rules(d *dir, rel string, entries []tree.Entry, rules *ignore.Rules) *ignore.Rules {
	for _, name := range []string{".gitignore", ".ignore"} { // the later is the stronger
		if !slices.ContainsFunc(entries, func(e tree.Entry) bool { return e.Name == name && (e.Mode == unix.S_IFREG || e.Mode == 0) }) {
			continue
		}
		p := &tree.Place{Dir: d.fd, Name: name, Path: "/" + name}
		f, st, fault := p.Open(unix.O_RDONLY)
		if fault != nil {
			continue
		}
		buf := make([]byte, min(st.Size, maxIgnore))
		n, err := readFull(f, buf, 0)
		f.Close()
		if err == nil {
			rules = rules.With(rel, string(buf[:n]))
		}
	}
	return rules
}

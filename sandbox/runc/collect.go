package runc

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/openat2"
	"github.com/stockade-dev/stockade/sandbox"
)

const (
	// maxCollected bounds the files that one Collect opens: each is a descriptor that
	// travels to the daemon.
	maxCollected = 1024
	// maxNames bounds the files and directories that it finds below directories: a tree of
	// directories alone costs a session nothing, and us memory and time.
	maxNames = 2 * maxCollected
)

// Collect opens regular files of a session by inside path, a directory standing for
// the regular files below it in order of their names. Paths are resolved below the
// session's root as init sees it, and under the identity of its executions: what they
// cannot read is not collected, and a symbolic link leads nowhere that they could not go.
func (r *Runner) Collect(ctx context.Context, id string, paths []string) ([]sandbox.Artifact, error) {
	s, err := r.session(id)
	if err != nil {
		return nil, err
	}
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	c := collection{ctx: ctx, root: root}
	err = as(sandbox.Caller{UID: uint32(s.hostUID()), GID: uint32(s.hostGID()), Groups: s.hostGroups()}, func() error {
		for _, p := range paths {
			c.cut = false
			c.add(path.Clean("/" + p))
		}
		return ctx.Err()
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c.found, nil
}

// collection is what has been found so far.
type collection struct {
	ctx   context.Context
	root  *os.File
	found []sandbox.Artifact
	names int  // of what was found below directories
	cut   bool // below the path at hand there is more than is collected
}

func (c *collection) close() {
	for _, a := range c.found {
		if a.File != nil {
			a.File.Close()
		}
	}
}

func (c *collection) fail(path, code string) {
	c.found = append(c.found, sandbox.Artifact{Path: strings.ToValidUTF8(path, "\ufffd"), Err: code})
}

// tooMany says where the collection ends.
func (c *collection) tooMany(path string) {
	c.fail(path, "too_many_files")
	c.cut = true
}

// add opens what is there. O_NONBLOCK, because a FIFO or a device may be there
// instead of what was expected; O_NOCTTY for the same reason.
func (c *collection) add(at string) {
	if c.ctx.Err() != nil {
		return // nobody waits for the rest
	}
	if len(c.found) >= maxCollected {
		c.tooMany(at)
		return
	}
	if !utf8.ValidString(at) { // a receipt could not say whose content it is
		c.fail(at, "not_supported")
		return
	}
	fd, err := openat2.Open(int(c.root.Fd()), "."+at, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENXIO) { // a FIFO without a writer never gives it here; a socket does
		c.fail(at, "not_regular")
		return
	}
	if err != nil {
		c.fail(at, resolveCode(err))
		return
	}
	f := os.NewFile(uintptr(fd), at)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		c.fail(at, "not_supported")
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		c.found = append(c.found, sandbox.Artifact{Path: at, File: f, Size: st.Size, Mode: st.Mode & 0o777})
	case unix.S_IFDIR:
		names, whole := c.below(f)
		f.Close() // before what is in it: depth costs no descriptors
		for _, name := range names {
			if c.cut {
				return // one place says so
			}
			c.add(path.Join(at, name))
		}
		if !whole && !c.cut {
			c.tooMany(at)
		}
	default:
		f.Close()
		c.fail(at, "not_regular")
	}
}

// below returns the files and directories in a directory, in order of their names, and
// whether these are all. Symbolic links and special files in it are passed over: they were
// not asked for by name.
func (c *collection) below(dir *os.File) (names []string, whole bool) {
	room := maxNames - c.names
	for len(names) <= room {
		entries, err := dir.ReadDir(maxCollected)
		for _, e := range entries {
			if e.Type().IsRegular() || e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if err != nil || c.ctx.Err() != nil {
			break // the end
		}
	}
	whole = len(names) <= room
	names = names[:min(len(names), room)]
	c.names += len(names)
	slices.Sort(names)
	return names, whole
}

// hostGroups are the supplementary groups of executions, outside.
func (s *session) hostGroups() []uint32 {
	var out []uint32
	for _, g := range s.spec.Identity.Groups {
		out = append(out, s.base+g)
	}
	return out
}

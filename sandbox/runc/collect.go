package runc

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// maxCollected bounds the files that one Collect opens: each is a descriptor that
// travels to the daemon.
const maxCollected = 1024

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
		return nil, sandbox.Errorf(sandbox.CodeNoSession, "the session has ended")
	}
	defer root.Close()
	c := collection{root: root}
	err = as(sandbox.Caller{UID: uint32(s.hostUID()), GID: uint32(s.hostGID()), Groups: s.hostGroups()}, func() error {
		for _, p := range paths {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.add(path.Clean("/" + p))
		}
		return nil
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c.found, nil
}

// collection is what has been found so far.
type collection struct {
	root  *os.File
	found []sandbox.Artifact
}

func (c *collection) close() {
	for _, a := range c.found {
		if a.File != nil {
			a.File.Close()
		}
	}
}

func (c *collection) fail(path, code string) {
	c.found = append(c.found, sandbox.Artifact{Path: path, Err: code})
}

// add opens what is at path. O_NONBLOCK, because a FIFO or a device may be there
// instead of what was expected; O_NOCTTY for the same reason.
func (c *collection) add(path string) {
	if len(c.found) >= maxCollected {
		c.fail(path, "too_many_files")
		return
	}
	fd, err := unix.Openat2(int(c.root.Fd()), "."+path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENXIO) { // a FIFO without a writer never gives it here; a socket does
		c.fail(path, "not_regular")
		return
	}
	if err != nil {
		c.fail(path, resolveCode(err))
		return
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		c.fail(path, "not_supported")
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		c.found = append(c.found, sandbox.Artifact{Path: path, File: f, Size: st.Size, Mode: st.Mode & 0o777})
	case unix.S_IFDIR:
		c.below(f, path)
		f.Close()
	default:
		f.Close()
		c.fail(path, "not_regular")
	}
}

// below adds what a directory holds. Symbolic links and special files in it are passed
// over: they were not asked for by name.
func (c *collection) below(dir *os.File, at string) {
	entries, err := dir.ReadDir(maxCollected + 1)
	if err != nil && len(entries) == 0 {
		return // empty
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if e.Type().IsRegular() || e.IsDir() {
			if len(c.found) > maxCollected {
				return // the last says so
			}
			c.add(path.Join(at, e.Name()))
		}
	}
}

// hostGroups are the supplementary groups of executions, outside.
func (s *session) hostGroups() []uint32 {
	var out []uint32
	for _, g := range s.spec.Identity.Groups {
		out = append(out, s.base+g)
	}
	return out
}

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// Changes tells what the overlay has that its directory has not, the first limit of what follows path after in the
// order of paths (by components: what is in a directory follows it), and whether there are more. A directory that was
// deleted stands for what was in it, and one that was replaced has lost what it had. Names are the bytes that
// they are on the disk. What the session could not see is not told. Sockets are no changes.
func (s *Space) Changes(ctx context.Context, after string, limit int) (changes []sandbox.Change, more bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	upper, err := below{root: s.layers.store}.open(upperName, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, false, fmt.Errorf("changes of %s: %w", s.o.Target, err)
	}
	defer upper.Close()
	w := &walk{ctx: ctx, upper: below{root: upper}, lower: below{root: s.layers.lower}, skip: s.protects}
	full := errors.New("enough")
	w.found = func(d difference) error {
		if len(changes) == limit {
			return full
		}
		c, err := w.change(d)
		if err == nil {
			changes = append(changes, c)
		}
		return err
	}
	var from []string
	if after != "" {
		from = strings.Split(after, "/")
	}
	// The owner inside: through the mapping of the layer below he sees what the session sees.
	err = thread.As(s.o.Owner.caller(), func() error { return w.dir(".", false, from) })
	if errors.Is(err, full) {
		return changes, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("changes of %s: %w", s.o.Target, err)
	}
	return changes, false, nil
}

// change is what is told of a difference.
func (w *walk) change(d difference) (sandbox.Change, error) {
	c := sandbox.Change{Path: d.path, Kind: d.kind, Type: d.typ()}
	if d.kind == deleted {
		return c, nil
	}
	c.Mode = d.upper.Mode & 0o777
	switch c.Type {
	case "file":
		c.Size = d.upper.Size
	case "symlink":
		var err error
		c.Link, err = w.readlink(d.path)
		if err != nil && !isAbsent(err) {
			return c, err
		}
	}
	return c, nil
}

// protects reports whether a path is one that nobody inside changes: what is there is as it was, or was made to reserve it.
func (s *Space) protects(at string) bool {
	return slices.ContainsFunc(s.reserved, func(p string) bool { return within(at, p) })
}

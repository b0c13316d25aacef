package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// Options describe an overlay.
type Options struct {
	Target    string          // where it is inside; for messages, and to find it again
	Size      sandbox.Overlay // of what is written
	Owner     Owner           // whose it is inside
	Protected []string        // paths in it that nobody inside changes; they are never committed either
	Place     string          // a directory to mount on, where nobody else sees it
}

// Space is the overlay of a session over a caller's directory. Its methods may be called from many goroutines, while commands
// write: what is being written may be caught half, unless they are frozen.
type Space struct {
	o Options

	mu       sync.RWMutex // for writing, while the layers change
	layers   layers
	reserved []string // paths that nobody inside changes, with those that were made for them
	dev      uint64   // of the overlay's file system: no other mount has it
	opened   int64    // ns since 1970: what the host changes later is a conflict
	discards int

	committing sync.Mutex
	commits    []span // when we changed the directory below ourselves
}

// span is a time, in ns since 1970.
type span struct{ From, To int64 }

// Mounted is an overlay as it is to be attached: a detached mount, and the guards that are in it. Whoever attaches it closes both.
type Mounted struct {
	Tree   *os.File
	Guards Guards
}

// Close closes the descriptors. What is not attached goes with them.
func (m Mounted) Close() {
	m.Guards.Close()
	m.Tree.Close()
}

// Overlay puts an overlay over lower: a detached mount, read-only, that shows the owners of files as they are to be
// inside. The Space owns it from now on, also if there is an error. Its receiver closes it when the session has ended.
func Overlay(lower *os.File, o Options) (_ *Space, _ Mounted, err error) {
	s := &Space{o: o, layers: layers{lower: lower}, opened: time.Now().UnixNano()}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(s.Close)
	mounted, err := s.layers.fresh(o)
	if err != nil {
		return nil, Mounted{}, err
	}
	undo.Add(mounted.Close)
	if s.dev, err = device(mounted.Tree); err != nil {
		return nil, Mounted{}, err
	}
	s.reserved = mounted.Guards.readOnly()
	passed(s.opened)
	undo.Release()
	return s, mounted, nil
}

// fresh makes an empty overlay over the same directory, and makes it l's.
func (l *layers) fresh(o Options) (_ Mounted, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	if l.store, err = newStore(o.Target, o.Size, o.Owner, l.lower); err != nil {
		return Mounted{}, err
	}
	undo.Add(func() { l.store.Close() })
	m := Mounted{}
	if m.Tree, err = l.mount(o.Target, o.Place); err != nil {
		return Mounted{}, err
	}
	undo.Add(func() { m.Close() })
	if len(o.Protected) > 0 {
		tree, guards, err := Protect(m.Tree, Protection{Paths: o.Protected, Owner: o.Owner, Place: o.Place})
		if err != nil {
			return Mounted{}, err
		}
		m = Mounted{tree, guards}
	}
	undo.Release()
	return m, nil
}

// device is the number of the file system that f is on.
func device(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return st.Dev, nil
}

// Target is where the overlay is inside.
func (s *Space) Target() string { return s.o.Target }

// Full says which ceilings of the overlay are used up at this moment. Whoever removes what did not fit before anybody asks
// leaves no trace: the kernel keeps no peak. None are, while a Discard is under way.
func (s *Space) Full() ([]sandbox.Hit, error) {
	if !s.mu.TryRLock() { // it may hang, and the end of a command would with it
		return nil, nil
	}
	defer s.mu.RUnlock()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.layers.store.Fd()), &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", s.o.Target, err)
	}
	var hits []sandbox.Hit
	for _, c := range []struct {
		ceiling     string
		free, limit int64
	}{
		{sandbox.HitDiskBytes, int64(st.Bfree) * st.Bsize, int64(st.Blocks) * st.Bsize},
		{sandbox.HitDiskInodes, int64(st.Ffree), s.o.Size.Inodes},
	} {
		if c.free == 0 {
			hits = append(hits, sandbox.Hit{Ceiling: c.ceiling, Scope: sandbox.ScopeSession, Object: s.o.Target, Limit: c.limit, Peak: c.limit})
		}
	}
	return hits, nil
}

// Fill is how much of the overlay's room is used; nothing, when that cannot be known any more, or while a Discard is under way.
func (s *Space) Fill() (bytes, inodes sandbox.Fill) {
	if !s.mu.TryRLock() {
		return bytes, inodes
	}
	defer s.mu.RUnlock()
	var st unix.Statfs_t
	at, err := s.layers.store.SyscallConn()
	if err == nil {
		err = at.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &st) })
	}
	if err != nil {
		return bytes, inodes
	}
	blocks := int64(st.Blocks)
	return sandbox.Fill{Target: s.o.Target, Used: (blocks - int64(st.Bfree)) * int64(st.Bsize), Limit: blocks * int64(st.Bsize)},
		sandbox.Fill{Target: s.o.Target, Used: s.o.Size.Inodes - int64(st.Ffree), Limit: s.o.Size.Inodes}
}

// maxDiscards bounds how often a session starts over: each time leaves the mounts of the last one behind.
const maxDiscards = 64

// Discard puts an empty overlay over the present one, in the mount namespace of the session, and gives the
// room of the old one back. A session's mounts are locked: they can be covered, and not taken away. No execution may
// live; one that does has files that are gone. What is at the overlay's place, and is not it, is refused with CodeConflict.
func (s *Space) Discard(ns *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discards >= maxDiscards {
		return sandbox.Errorf(sandbox.CodeBusy, "%s: discarded %d times", s.o.Target, s.discards)
	}
	next, opened := layers{lower: s.layers.lower}, time.Now().UnixNano()
	mounted, err := next.fresh(s.o)
	s.layers.lower = next.lower // it may be another descriptor of the same
	if err != nil {
		return err
	}
	defer mounted.Close()
	dev, err := device(mounted.Tree)
	var covered *os.File
	if err == nil {
		err = thread.Enter(ns, func() error {
			covered, err = s.cover(mounted.Tree, dev)
			return err
		})
	}
	if err != nil {
		next.store.Close()
		return err
	}
	defer covered.Close()
	old := s.layers.store
	s.layers.store, s.reserved, s.dev = next.store, mounted.Guards.readOnly(), dev
	s.opened, s.commits = opened, nil
	passed(opened)
	s.discards++
	defer old.Close()
	if err := drain(old, covered); err != nil {
		return fmt.Errorf("discard %s: %w", s.o.Target, err)
	}
	return nil
}

// drain empties an upper layer. The overlay on it remembers what it has looked up, and that takes its room until
// it forgets, as every file system does when it is configured again.
func drain(store, overlay *os.File) error {
	upper, err := below{root: store}.open(upperName, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := empty(context.Background(), upper); err != nil {
		return err
	}
	ctx, err := unix.Fspick(int(overlay.Fd()), "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("fspick: %w", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigReconfigure(ctx); err != nil {
		return fmt.Errorf("reconfigure: %w", err)
	}
	return nil
}

// cover attaches tree over the overlay, if it is there, and returns what is covered. The thread is in the session's namespace, where
// somebody may have moved directories about.
func (s *Space) cover(tree *os.File, dev uint64) (covered *os.File, err error) {
	if covered, err = s.there(s.dev); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeConflict, "%s: %v", s.o.Target, err)
	}
	err = unix.MoveMount(int(tree.Fd()), "", int(covered.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		covered.Close()
		return nil, fmt.Errorf("cover %s: %w", s.o.Target, err)
	}
	now, err := s.there(dev)
	if err != nil {
		covered.Close()
		return nil, sandbox.Errorf(sandbox.CodeNotEnforced, "%s: %v", s.o.Target, err)
	}
	return covered, now.Close()
}

// there opens the target, which must be on the file system dev.
func (s *Space) there(dev uint64) (*os.File, error) {
	root, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := through(root).open(s.o.Target[1:], unix.O_PATH)
	if err != nil {
		return nil, err
	}
	if have, err := device(f); err != nil || have != dev {
		f.Close()
		return nil, errors.Join(err, errors.New("is another object"))
	}
	return f, nil
}

// Close gives up what the Space holds. The overlay lives as long as somebody has it mounted.
func (s *Space) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.layers.lower, s.layers.store)
}

// State is a Space without its files, for the program that goes on with it.
type State struct {
	Options  Options
	Reserved []string
	Dev      uint64
	Opened   int64
	Commits  []span
	Discards int
}

// Save returns what [Restore] needs. The files stay the Space's.
func (s *Space) Save() (State, []*os.File) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return State{s.o, s.reserved, s.dev, s.opened, s.commits, s.discards}, []*os.File{s.layers.lower, s.layers.store}
}

// Restore returns the Space that was saved. It owns the files.
func Restore(st State, files []*os.File) (*Space, error) {
	if len(files) != 2 {
		return nil, fmt.Errorf("overlay %s: %d files, not 2", st.Options.Target, len(files))
	}
	return &Space{o: st.Options, layers: layers{files[0], files[1]}, reserved: st.Reserved, dev: st.Dev, opened: st.Opened, commits: st.Commits, discards: st.Discards}, nil
}

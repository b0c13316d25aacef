package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/internal/turns"
	"github.com/stockade-dev/stockade/sandbox"
)

// Placeholders are the files and empty directories that keep protected paths, in callers' directories,
// from being created, and the names under which commits make what is to come. They are remembered on the disk from before they are there until they are removed, so that a
// runner that begins can remove those of one that was killed. Sessions can share one: the last removes it.
type Placeholders struct {
	dir  string
	open func(sandbox.Source) (*os.File, error) // called under the caller's identity

	mu      sync.Mutex
	left    *sync.Cond                // something has been removed
	held    map[string][]*placeholder // by session
	seen    uint64                    // counts what was made, and removed
	leaving turns.Lines[uint32]       // of users: releases under way, whether somebody waits for them or not
}

// placeholder is one that a session needs, whoever made it.
type placeholder struct {
	Caller   sandbox.Caller
	Source   sandbox.Source
	Path     string // below the source
	Temp     string // the name that it was made under, beside its own; "" if another session made it
	Dir      bool
	Dev, Ino uint64 // zero until it is there
	Since    uint64 // seen, when it came to be this object: tells it from what has its number after it
	In       []byte // of a commit: the directory that Temp was last in, empty at its end; what is made for it has no Path
	leaving  bool   // is being removed
}

// OpenPlaceholders reads what is remembered in dir, a directory of the runner's that is made when it is needed.
// open leads from a source to the object that was judged.
func OpenPlaceholders(dir string, open func(sandbox.Source) (*os.File, error)) (*Placeholders, error) {
	p := &Placeholders{dir: dir, open: open, held: map[string][]*placeholder{}}
	p.left = sync.NewCond(&p.mu)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("placeholders: %w", err)
	}
	for _, f := range files {
		session := f.Name()
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("placeholders: %w", err)
		}
		for line := range bytes.Lines(data) {
			h := new(placeholder)
			if err := json.Unmarshal(line, h); err != nil {
				continue // the last one, of a runner that was killed while it wrote: nothing had been made yet
			}
			p.note(session, h)
			p.seen = max(p.seen, h.Since)
		}
	}
	return p, nil
}

// answering is how long the end of a session, or the beginning of a runner, waits for a file system to answer. Tests shorten it.
var answering = 5 * time.Second

// maxHanging is how many releases of one user go on at a time: each that hangs keeps a thread. The others wait for it.
const maxHanging = 16

// Sweep removes what an earlier runner left. It goes on behind its caller where a file system does not answer.
func (p *Placeholders) Sweep() error {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.held))
	p.mu.Unlock()
	swept := make(chan error, 1)
	go func() {
		var errs []error
		for _, session := range sessions {
			errs = append(errs, p.Release(session))
		}
		swept <- errors.Join(errs...)
	}()
	select {
	case err := <-swept:
		return err
	case <-time.After(answering):
		return errHangs
	}
}

var errHangs = errors.New("placeholders: a file system does not answer")

// Release removes the placeholders of a session that no other needs: those that are still the same object, with
// what they were made with. What cannot be removed is forgotten all the same, and said. Where a file system does not answer, they are
// removed when it does, or by the next runner; nobody waits for that.
func (p *Placeholders) Release(session string) error {
	p.mu.Lock()
	sources := p.sources(session)
	if len(sources) == 0 {
		defer p.mu.Unlock()
		return p.forget(session)
	}
	own := slices.Clone(p.held[session]) // another may have the name by the time that it is this one's turn
	p.mu.Unlock()
	released := make(chan error, 1)
	go func() {
		leave, _ := p.leaving.Join(context.Background(), sources[0].Caller.UID, maxHanging) // it comes
		var errs []error
		for _, of := range sources {
			errs = append(errs, p.release(session, of, own))
		}
		p.mu.Lock()
		errs = append(errs, p.forget(session))
		p.mu.Unlock()
		leave()
		released <- errors.Join(errs...)
	}()
	select {
	case err := <-released:
		return err
	case <-time.After(answering):
		return errHangs
	}
}

// Hanging is how many releases are under way, which nobody waits for where no session is being closed.
func (p *Placeholders) Hanging() int { return p.leaving.In() }

// sources returns a placeholder of each source in which a session has some, sources in others first. The caller holds mu.
func (p *Placeholders) sources(session string) (one []*placeholder) {
	for _, h := range p.held[session] {
		if !slices.ContainsFunc(one, func(o *placeholder) bool { return o.Source == h.Source }) {
			one = append(one, h)
		}
	}
	slices.SortFunc(one, func(a, b *placeholder) int { return -comparePaths(a.Source.Path, b.Source.Path) })
	return one
}

// forget removes the file of a session that has none any more. The caller holds mu.
func (p *Placeholders) forget(session string) error {
	if len(p.held[session]) > 0 { // of another one that has the name now
		return nil
	}
	delete(p.held, session)
	if err := os.Remove(p.file(session)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("placeholders: %w", err)
	}
	_ = os.Remove(p.dir) // if it is empty
	return nil
}

// release removes those of the session's own that are in one source. It is looked up before anything is said to be leaving: the look may never come to its end, and
// others would wait for it.
func (p *Placeholders) release(session string, of *placeholder, own []*placeholder) error {
	var source *os.File
	err := thread.As(of.Caller, func() (err error) {
		source, err = p.open(of.Source)
		return err
	})
	p.mu.Lock()
	// What others need is theirs from now on; of two that end together, one sees the other. What has come to have its number since
	// is theirs as well: somebody outside has removed ours.
	p.held[session] = slices.DeleteFunc(p.held[session], func(h *placeholder) bool {
		other := p.find(h.Dev, h.Ino, session)
		theirs := other != nil && (other.Since > h.Since || other.Since == h.Since && !other.leaving)
		return h.Source == of.Source && slices.Contains(own, h) && (err != nil || theirs)
	})
	var going []*placeholder
	for _, h := range p.held[session] {
		if h.Source == of.Source && slices.Contains(own, h) {
			h.leaving = true
			going = append(going, h)
		}
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("placeholders in %s: %w", of.Source.Path, err)
	}
	defer source.Close()
	// A directory after what was reserved in it.
	slices.SortStableFunc(going, func(a, b *placeholder) int { return -comparePaths(a.Path, b.Path) })
	var errs []error
	for _, h := range going {
		var err error
		for range looks {
			seen := p.count()
			err = thread.As(h.Caller, func() error { return h.remove(source) })
			if !errors.Is(err, unix.ENOTEMPTY) || !p.emptied(session, h, seen) {
				break
			}
		}
		if err != nil && !errors.Is(err, unix.ENOTEMPTY) { // what somebody has put there is his
			errs = append(errs, fmt.Errorf("placeholder %s in %s: %w", h.Path, h.Source.Path, err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[session] = slices.DeleteFunc(p.held[session], func(h *placeholder) bool { return slices.Contains(going, h) })
	p.seen++
	p.left.Broadcast()
	return errors.Join(errs...)
}

// remove removes a placeholder, by whichever of its names it has. It is called under the caller's identity.
func (h *placeholder) remove(source *os.File) error {
	if len(h.In) > 0 {
		return removeTemporary(source, string(h.In), h.Temp)
	}
	parent, name, err := below{root: source}.parent(h.Path)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	for _, name := range []string{name, h.Temp} {
		if name == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); isAbsent(err) {
			continue
		} else if err != nil {
			return err
		}
		// Nobody else chooses the temporary name: a runner that was killed there had not looked at the object yet.
		ours := st.Dev == h.Dev && st.Ino == h.Ino || h.Ino == 0 && name == h.Temp
		if !ours || !unused(parent, name, st, contentOf(h.Path)) {
			continue
		}
		if err := remove(parent, name, kindOf(st.Mode) == "dir"); err != nil {
			return err
		}
	}
	return nil
}

// removeTemporary removes what a commit that came to no end has left: half a file, or a directory that was being removed.
func removeTemporary(source *os.File, in, temp string) error {
	dir, err := below{root: source}.open(in, unix.O_PATH|unix.O_DIRECTORY)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), temp, &st, unix.AT_SYMLINK_NOFOLLOW); isAbsent(err) {
		return nil // as a rule
	} else if err != nil {
		return err
	}
	// Others may write there, and fill it as quickly as it is emptied: what is left then is theirs.
	ctx, cancel := context.WithTimeout(context.Background(), emptying)
	defer cancel()
	return discard(ctx, place{dir, temp}, kindOf(st.Mode) == "dir")
}

// emptying bounds how long a directory is emptied that a commit has left. The end of its session waits for that. Tests shorten it.
var emptying = 5 * time.Second

func (p *Placeholders) count() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// emptied waits for another session that is removing what it has reserved in a directory, and reports whether there was one, or
// has been since. Nobody waits for whom waits for him: all go from the last path to the first.
func (p *Placeholders) emptied(session string, dir *placeholder, seen uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != seen {
		return true
	}
	for other, held := range p.held {
		for _, h := range held {
			if other != session && h.leaving && h.Source == dir.Source && within(h.Path, dir.Path) && h.Path != dir.Path {
				p.left.Wait()
				return true
			}
		}
	}
	return false
}

// unused reports whether nobody has given a placeholder another content. A directory the kernel removes only if it is
// empty. An empty file is one that a runner was killed over before it could write.
func unused(parent *os.File, name string, st unix.Stat_t, content string) bool {
	switch kindOf(st.Mode) {
	case "dir":
		return true
	case "file":
	default:
		return false
	}
	if st.Size == 0 {
		return true
	}
	if st.Size != int64(len(content)) {
		return false
	}
	f, err := below{root: parent}.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false
	}
	defer f.Close()
	has := make([]byte, len(content))
	_, err = io.ReadFull(f, has)
	return err == nil && string(has) == content
}

// find returns the placeholder that is this object, of any session but one: of those that have had its number the last, and of one
// that stays, if there is such. The caller holds mu.
func (p *Placeholders) find(dev, ino uint64, but string) (found *placeholder) {
	for session, held := range p.held {
		for _, h := range held {
			if session == but || h.Ino == 0 || h.Dev != dev || h.Ino != ino {
				continue
			}
			if found == nil || h.Since > found.Since || h.Since == found.Since && found.leaving {
				found = h
			}
		}
	}
	return found
}

func (p *Placeholders) file(session string) string { return filepath.Join(p.dir, session) }

// note takes one in, in the place of what was known of it before. Of a commit that has come to its end nothing is
// known any more. The caller holds mu.
func (p *Placeholders) note(session string, h *placeholder) {
	held := slices.DeleteFunc(p.held[session], func(known *placeholder) bool {
		return known.Path == h.Path && known.Temp == h.Temp && known.Source == h.Source
	})
	if h.Path != "" || len(h.In) > 0 {
		held = append(held, h)
	}
	p.held[session] = held // if there is none left, there is a file
}

// hold remembers one, or what has become known of it: a line at the end of the session's file. It outlives the runner; what a power
// failure leaves behind is an empty file, and not worth the wait for the disk. The caller holds mu.
func (p *Placeholders) hold(session string, h *placeholder) error {
	line, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("placeholders: %w", err)
	}
	p.note(session, h)
	written := make(chan error)
	go func() { // on a thread with our own rights: this one may have the caller's
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			written <- err
			return
		}
		f, err := os.OpenFile(p.file(session), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			written <- err
			return
		}
		_, err = f.Write(append(line, '\n'))
		written <- errors.Join(err, f.Close())
	}()
	if err := <-written; err != nil {
		return fmt.Errorf("placeholders: %w", err)
	}
	return nil
}

// Reservation is a session's right to placeholders in one source.
type Reservation struct {
	Placeholders *Placeholders
	Session      string
	Caller       sandbox.Caller
	Source       sandbox.Source
}

// begin remembers a placeholder that is about to be made.
func (r *Reservation) begin(at, temp string, dir bool) error {
	return r.hold(&placeholder{Path: at, Temp: temp, Dir: dir})
}

// made remembers which object it is.
func (r *Reservation) made(at, temp string, dir bool, st unix.Stat_t) error {
	return r.hold(&placeholder{Path: at, Temp: temp, Dir: dir, Dev: st.Dev, Ino: st.Ino})
}

// unmade remembers that it will be no object any more. Its number is free for others then.
func (r *Reservation) unmade(at, temp string, dir bool) error { return r.begin(at, temp, dir) }

func (r *Reservation) hold(h *placeholder) error {
	r.Placeholders.mu.Lock()
	defer r.Placeholders.mu.Unlock()
	r.Placeholders.seen++
	h.Caller, h.Source, h.Since = r.Caller, r.Source, r.Placeholders.seen
	return r.Placeholders.hold(r.Session, h)
}

// Commit returns what a commit of the session to the source calls before it makes the temporary name in another directory, and at its end.
// What it leaves under that name, killed or cut off, goes with the session, or when the next runner begins.
func (r Reservation) Commit() func(temp, in string) error {
	return func(temp, in string) error { return r.hold(&placeholder{Temp: temp, In: []byte(in)}) }
}

// has reports whether what is at a path was made by the session to reserve it.
func (r *Reservation) has(at string, st unix.Stat_t) bool {
	r.Placeholders.mu.Lock()
	defer r.Placeholders.mu.Unlock()
	return slices.ContainsFunc(r.Placeholders.held[r.Session], func(h *placeholder) bool {
		return h.Path == at && h.Temp != "" && h.Source == r.Source && h.Dev == st.Dev && h.Ino == st.Ino
	})
}

// seen is for share: it is asked for before what is at a path is looked at.
func (r *Reservation) seen() uint64 {
	if r == nil {
		return 0
	}
	return r.Placeholders.count()
}

// share keeps what was found at a path until this session ends too, if it is a placeholder of another session's. It reports whether what was
// found is still what it was, that or nobody's: a number is free for the next object as soon as one is removed, and what is
// about to be removed is gone when share returns.
func (r *Reservation) share(at string, st unix.Stat_t, seen uint64) (same bool, err error) {
	p := r.Placeholders
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.find(st.Dev, st.Ino, r.Session)
	if h == nil {
		return p.seen == seen, nil
	}
	if h.leaving {
		for h != nil && h.leaving {
			p.left.Wait()
			h = p.find(st.Dev, st.Ino, r.Session)
		}
		return false, nil
	}
	if h.Since > seen {
		return false, nil
	}
	known := func(own *placeholder) bool {
		return own.Path == at && own.Source == r.Source && own.Dev == st.Dev && own.Ino == st.Ino
	}
	if slices.ContainsFunc(p.held[r.Session], known) {
		return true, nil
	}
	return true, p.hold(r.Session, &placeholder{Caller: r.Caller, Source: r.Source, Path: at, Dir: h.Dir, Dev: st.Dev, Ino: st.Ino, Since: h.Since})
}

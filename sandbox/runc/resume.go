package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/network"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// Resume returns a runner that goes on where [Runner.Save] stopped another one in this process, under the
// same options. It owns the files. If the state cannot be taken up, lost says why: then the other runner's
// sessions have ended, all of them, and the one that is returned begins anew, as if by New.
func Resume(o Options, state []byte, files []*os.File) (_ *Runner, lost, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	r := runnerOf(o)
	// First, and whatever comes of the state: libcontainer's library of groups is shown them once
	// in the life of a program.
	if err := r.equip(&undo); err != nil {
		lose(files)
		return nil, nil, err
	}
	follow, lost := r.takeOver(state, files)
	if lost != nil {
		lose(files)
		r.sessions, r.swept = map[string]*session{}, nil
		if err := r.lock(&undo); err != nil {
			return nil, lost, err
		}
		if err := r.sweep(); err != nil {
			return nil, lost, err
		}
	}
	for _, f := range follow {
		go f()
	}
	r.stock = r.newStock(o.Stock)
	undo.Release()
	return r, lost, nil
}

// takeOver makes the runner of what was saved, and says what is to be run once all of it stands.
func (r *Runner) takeOver(state []byte, files []*os.File) (follow []func(), err error) {
	var in saved
	if err := json.Unmarshal(state, &in, stateOptions); err != nil {
		return nil, err
	}
	if in.Version != stateVersion {
		return nil, fmt.Errorf("state of version %d, not %d", in.Version, stateVersion)
	}
	h := &inheritance{files: files, used: make([]bool, len(files))}
	if r.state, err = h.file(in.Lock); err != nil {
		return nil, err
	}
	if err := sameDirectory(r.state, r.options.State); err != nil {
		return nil, err
	}
	ids, err := h.file(in.IDs)
	if err != nil {
		return nil, err
	}
	if r.ids, err = takenRanges(ids, in.Ranges); err != nil {
		return nil, err
	}
	for _, n := range in.Swept {
		f, err := h.file(n)
		if err != nil {
			return nil, err
		}
		r.swept = append(r.swept, f)
	}
	for _, id := range in.Lost {
		r.sessions[id] = nil
	}
	for _, s := range in.Sessions {
		restored, more, err := r.restore(s, h)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", s.Spec.Session, err)
		}
		r.sessions[s.Spec.Session] = restored
		follow = append(follow, more...)
	}
	return follow, h.complete()
}

// sameDirectory makes sure that the lock is on the directory that the options name.
func sameDirectory(f *os.File, path string) error {
	have, err := f.Stat()
	if err != nil {
		return err
	}
	want, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(have, want) {
		return fmt.Errorf("the lock that was handed over is not on %s", path)
	}
	return nil
}

// inheritance is the files that were handed over. Each is somebody's, and only one's.
type inheritance struct {
	files []*os.File
	used  []bool
}

// file returns the file at a place, nil for -1.
func (h *inheritance) file(n int) (*os.File, error) {
	if n == -1 {
		return nil, nil
	}
	if n < 0 || n >= len(h.files) || h.used[n] {
		return nil, fmt.Errorf("no file %d among %d", n, len(h.files))
	}
	h.used[n] = true
	return h.files[n], nil
}

// all returns the files at some places.
func (h *inheritance) all(places []int) (files []*os.File, err error) {
	for _, n := range places {
		f, err := h.file(n)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func (h *inheritance) complete() error {
	for n, used := range h.used {
		if !used {
			return fmt.Errorf("file %d is nobody's", n)
		}
	}
	return nil
}

// restore makes a session of what was saved, and says what is to be run for it once all the rest stands.
func (r *Runner) restore(in savedSession, h *inheritance) (s *session, follow []func(), err error) {
	s = r.newSession(in.Spec)
	s.base, s.frozen, s.spent, s.stray = in.Base, in.Frozen, in.Spent, in.Stray
	if s.groups, err = r.tree.Reopen(in.Groups); err != nil {
		return nil, nil, err
	}
	for _, saved := range in.Spaces {
		files, err := h.all(saved.Files)
		if err != nil {
			return nil, nil, err
		}
		space, err := workspace.Restore(saved.State, files)
		if err != nil {
			return nil, nil, err
		}
		s.spaces[space.Target()] = space
	}
	if s.box, err = foundBox(filepath.Join(r.boxes(), in.Spec.Session), in.PID); err != nil {
		return nil, nil, err
	}
	socket, err := h.file(in.Init)
	if err != nil {
		return nil, nil, err
	}
	var processes map[uint64]*guest.Process
	if s.init, processes, err = guest.Resume(socket, in.Conn); err != nil {
		return nil, nil, err
	}
	for _, e := range in.Execs {
		x, err := s.restore(e, processes, h)
		if err != nil {
			return nil, nil, fmt.Errorf("execution %s: %w", e.ID, err)
		}
		follow = append(follow, x.pump)
		switch {
		case x.result == nil:
			follow = append(follow, func() { x.follow(x.process.Load()) })
		case !x.over:
			follow = append(follow, x.leave)
		}
	}
	if err := s.openDisks(); err != nil {
		return nil, nil, err
	}
	options, err := r.networkOptions(s)
	if err != nil {
		return nil, nil, err
	}
	relay, err := h.all(in.Relay)
	if err != nil {
		return nil, nil, err
	}
	if s.network, err = network.Restore(in.Net, relay, options); err != nil {
		return nil, nil, err
	}
	listener, err := h.file(in.Notify)
	if err != nil {
		return nil, nil, err
	}
	s.watchClock()
	return s, follow, s.hear(listener)
}

// restore makes an execution of what was saved. One that runs is among those of init.
func (s *session) restore(in savedExec, processes map[uint64]*guest.Process, h *inheritance) (*execution, error) {
	x := &execution{id: in.ID, background: in.Background, session: s, group: in.Group, limits: in.Limits, before: in.Before, denials: in.Denials}
	x.killed.Store(in.Killed)
	x.spent.Store(in.Spent)
	x.started, x.result, x.forgotten, x.over = in.Started, in.Result, in.Forgotten, in.Over
	x.told = in.Result != nil
	for _, p := range []struct {
		file **os.File
		n    int
	}{{&x.stdin, in.Stdin}, {&x.stdout, in.Stdout}, {&x.stderr, in.Stderr}, {&x.outlet, in.Outlet}} {
		var err error
		if *p.file, err = h.file(p.n); err != nil {
			return nil, err
		}
	}
	process := processes[in.Call]
	switch {
	case in.Result != nil:
		process = s.init.Ended(in.Call)
	case process == nil:
		return nil, errors.New("init does not know of it")
	}
	x.process.Store(process)
	var err error
	if x.leaf, err = s.groups.Reopen(in.Leaf); err != nil {
		return nil, err
	}
	if s.execs[x.id] != nil {
		return nil, errors.New("is there twice")
	}
	s.execs[x.id] = x
	if !x.over {
		s.leaves[x.leaf.Name()] = x
		s.live.Add(1)
		x.watchClock()
	}
	if x.result != nil && !x.forgotten {
		s.ended++
	}
	return x, nil
}

// takenRanges are id ranges that are locked already: the locks belong to the open file.
func takenRanges(file *os.File, bases []uint32) (*idRanges, error) {
	r := &idRanges{file: file}
	for _, base := range bases {
		i := (int64(base) - sandbox.FirstHostID) / sandbox.IDs
		if i < 0 || i >= slots {
			return nil, fmt.Errorf("no id range begins at %d", base)
		}
		r.taken[i] = true
	}
	return r, nil
}

// lose ends what the files hold together: each init ends with its socket, and with it everything
// inside. They are our children, and we have no others yet.
func lose(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
	for end := time.Now().Add(dying); time.Now().Before(end); {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return
		case pid <= 0 && !errors.Is(err, unix.EINTR):
			time.Sleep(time.Millisecond)
		}
	}
}

package runc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
)

// Bounds of what tries the session.
const (
	canariesWithin = 20 * time.Second
	canaryOutput   = 1 << 20
)

// canaries try from inside what must fail, as an execution like any other, before one of the caller's can. What
// the kernel says of itself in the evidence is one thing, what it does another.
func (o *opening) canaries() error {
	if o.spec.Verify == "" {
		return nil
	}
	inside, err := o.inside()
	if err != nil {
		return err
	}
	canaries := guest.Canaries(inside)
	ctx, cancel := context.WithTimeout(o.ctx, canariesWithin)
	defer cancel()
	output, err := o.session.try(ctx, canaries)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeNotEnforced, "canaries: %v", err)
	}
	judged, err := guest.Judge(canaries, output)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeNotEnforced, "%v", err)
	}
	for _, c := range judged {
		o.enforced.Canaries = append(o.enforced.Canaries, sandbox.Canary(c))
	}
	return nil
}

// inside is what the canaries have to know.
func (o *opening) inside() (guest.Inside, error) {
	in := guest.Inside{
		Profile:      o.spec.Seccomp,
		Network:      o.spec.Network.Mode,
		Landlock:     o.landlock > 0,
		Masked:       o.config.Linux.MaskedPaths,
		PIDs:         uint64(o.spec.Limits.PIDs),
		Memory:       o.spec.Limits.MemoryBytes,
		Capabilities: o.spec.Identity.CapabilityMask(),
	}
	root, err := o.session.root()
	if err != nil {
		return in, err
	}
	defer root.Close()
	in.ReadOnly = []string{"/"}
	for _, a := range o.files.attach {
		if a.readOnly && !a.part && reachable(view{root}, a.target) {
			in.ReadOnly = append(in.ReadOnly, a.target)
		}
	}
	slices.Sort(in.ReadOnly)
	return in, nil
}

// reachable reports whether anybody can come to a place, whoever he is inside.
func reachable(inside view, at string) bool {
	for i := 1; i < len(at); i++ {
		if at[i] != '/' {
			continue
		}
		if st, err := inside.stat(at[:i]); err != nil || st.Mode&0o001 == 0 {
			return false
		}
	}
	st, err := inside.stat(at)
	return err == nil && (st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o001 != 0)
}

// try runs canaries, and returns what they say.
func (s *session) try(ctx context.Context, canaries []guest.Canary) (output []byte, err error) {
	x := &execution{id: "canaries", session: s}
	if x.leaf, err = s.groups.Leaf(); err != nil {
		return nil, err
	}
	defer x.clear()
	if err := x.number(); err != nil {
		return nil, err
	}
	// What is refused to it is nobody's, and no news.
	s.mu.Lock()
	s.leaves[x.leaf.Name()] = x
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.leaves, x.leaf.Name())
		s.mu.Unlock()
	}()
	out, theirs, err := s.pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	defer theirs.Close()
	in, nobodys, err := s.pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	nobodys.Close()

	process, err := s.init.Spawn(ctx, guest.Command{Canary: guest.Names(canaries)}, guest.Streams{Stdin: in, Stdout: theirs, Stderr: theirs, Cgroup: x.leaf.FD()})
	if err != nil {
		return nil, err
	}
	theirs.Close()
	defer context.AfterFunc(ctx, func() { _ = x.leaf.Kill() })() // which ends the read
	if output, err = io.ReadAll(io.LimitReader(out, canaryOutput)); err != nil {
		return nil, err
	}
	select {
	case exit, ok := <-process.Exited:
		if !ok || exit.Status != 0 {
			return nil, fmt.Errorf("they ended with status %d: %.200q", exit.Status, output)
		}
		return output, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

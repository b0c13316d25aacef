package cgroup

import (
	"fmt"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
)

// Events is what the kernel has counted of a group and everything below it. A figure that the
// kernel does not keep is 0: pids.peak came with Linux 6.1, memory.peak with 5.19 (it can be
// reset since 6.12, which nobody here does).
type Events struct {
	OOMKills   int64 // processes killed for want of memory, whosever ceiling that was
	OOMs       int64 // times that this very group's memory ceiling made such kills
	PIDsMax    int64 // forks that were refused: see [Leaf.Hits] for by whom
	PIDsPeak   int64 // the most processes and threads at once
	MemoryPeak int64 // bytes
}

// Events are the session's: what its own ceilings did, and to whom. It is cheap enough to be read before
// and after every execution.
func (s *Session) Events() (Events, error) {
	e, err := s.memoryEvents()
	if err != nil {
		return e, err
	}
	// Every fork is made in or below x, init's own aside.
	forks := s.group("pids").child("x")
	if e.PIDsMax, err = forks.ownRefusals(); err != nil {
		return e, err
	}
	e.PIDsPeak, err = optional(forks.file("pids.peak"))
	e.PIDsPeak = max(0, e.PIDsPeak-(s.forks()-s.limits.PIDs))
	return e, err
}

func (s *Session) memoryEvents() (Events, error) {
	g := s.group("memory")
	e, err := g.memoryEvents(s.limits.MemoryBytes)
	if err != nil || g.controller == "" {
		return e, err
	}
	// v1 counts a kill where the victim was, and nowhere above it. Executions with a
	// ceiling of their own have been elsewhere.
	s.mu.Lock()
	defer s.mu.Unlock()
	e.OOMKills += s.legacyKills.OOMKills
	e.OOMs += s.legacyKills.OOMs
	for l := range s.bounded {
		below, err := l.memoryEvents()
		if err != nil {
			return e, err
		}
		e.OOMKills += below.OOMKills
		e.OOMs += below.OOMKills - below.OOMs // by the ceiling above its own
	}
	return e, nil
}

// Events are the execution's. On v1 one without ceilings of its own has no counters of its own.
func (l *Leaf) Events() (Events, error) {
	e, err := l.memoryEvents()
	if err != nil {
		return e, err
	}
	g, ok := l.groups["pids"]
	if !ok {
		return e, nil
	}
	if e.PIDsMax, err = refusals(g.file("pids.events")); err != nil {
		return e, err
	}
	e.PIDsPeak, err = optional(g.file("pids.peak"))
	return e, err
}

func (l *Leaf) memoryEvents() (Events, error) {
	g, ok := l.groups["memory"]
	if !ok {
		return Events{}, nil
	}
	bytes, err := g.bound()
	if err != nil {
		return Events{}, err
	}
	return g.memoryEvents(bytes)
}

// nearly is how far below its ceiling a group may stay that cannot have one more page: what is
// asked for at once is up to eight (an order that the kernel kills for).
const nearly = 64 << 10

// memoryEvents reads what a group's memory controller has counted, under a ceiling of so many
// bytes; 0 is none.
func (g group) memoryEvents(ceiling int64) (e Events, err error) {
	if g.controller == "" {
		if e.OOMKills, err = keyed(g.file("memory.events"), "oom_kill"); err != nil {
			return e, missing(err)
		}
		// The victim's group counts the kill, the group whose ceiling it was counts the reason.
		if e.OOMs, err = keyed(g.file("memory.events.local"), "oom"); err != nil {
			return e, missing(err)
		}
		e.MemoryPeak, err = optional(g.file("memory.peak"))
		return e, err
	}
	if e.OOMKills, err = keyed(g.file("memory.oom_control"), "oom_kill"); err != nil {
		return e, missing(err)
	}
	if e.MemoryPeak, err = number(g.file("memory.max_usage_in_bytes")); err != nil {
		return e, missing(err)
	}
	// v1 does not say why. A group that never came near its ceiling was not the reason.
	if ceiling > 0 && e.MemoryPeak >= ceiling-nearly {
		e.OOMs = e.OOMKills
	}
	return e, nil
}

// bound is the memory ceiling that a group of one execution holds; 0 is none.
func (g group) bound() (int64, error) {
	if g.controller == "memory" {
		return number(g.file("memory.limit_in_bytes")) // it was made for the ceiling
	}
	return ceilingOf(g.file("memory.max"))
}

// ceilingOf reads a file that holds a number or "max", which is 0.
func ceilingOf(file string) (int64, error) {
	data, err := readFile(file)
	if err != nil {
		return 0, missing(err)
	}
	if strings.TrimSpace(data) == "max" {
		return 0, nil
	}
	var n int64
	_, err = fmt.Sscan(data, &n)
	return n, err
}

// ownRefusals are the forks that a group's own ceiling has refused, in it and below it. Since 6.11, v2
// counts them there (pids.events.local); v1, and v2 before, where the fork was tried.
func (g group) ownRefusals() (int64, error) {
	if g.controller == "" && exists(g.file("pids.events.local")) {
		return refusals(g.file("pids.events.local"))
	}
	return refusals(g.file("pids.events"))
}

func refusals(file string) (int64, error) {
	n, err := keyed(file, "max")
	return n, missing(err)
}

// missing forgives a file that this kernel does not have, and a group that is gone.
func missing(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// optional reads a number from a file that not every kernel has.
func optional(file string) (int64, error) {
	n, err := number(file)
	return n, missing(err)
}

// Hits are the ceilings of groups that were reached while the execution ran: its own, and its session's
// since before was read. What the session shares is everybody's who ran at the time. It says what the kernel
// counted, not what the command died of.
func (l *Leaf) Hits(before Events) ([]sandbox.Hit, error) {
	own, err := l.Events()
	if err != nil {
		return nil, err
	}
	now, err := l.session.Events()
	if err != nil {
		return nil, err
	}
	var hits []sandbox.Hit
	hit := func(ceiling, scope string, limit, peak, count int64) {
		if count > 0 {
			hits = append(hits, sandbox.Hit{Ceiling: ceiling, Scope: scope, Limit: limit, Peak: peak, Count: count})
		}
	}
	limits := l.session.limits

	memory := int64(0)
	if g, ok := l.groups["memory"]; ok {
		if memory, err = g.bound(); err != nil {
			return nil, err
		}
	}
	if memory > 0 {
		hit(sandbox.HitMemory, sandbox.ScopeExecution, memory, own.MemoryPeak, own.OOMs)
	}
	hit(sandbox.HitMemory, sandbox.ScopeSession, limits.MemoryBytes, now.MemoryPeak, now.OOMs-before.OOMs)

	// Where a leaf counts the forks that were tried in it, a ceiling that its peak did not
	// reach did not refuse them.
	above := now.PIDsMax - before.PIDsMax
	pids := int64(0)
	if g, ok := l.groups["pids"]; ok {
		if pids, err = ceilingOf(g.file("pids.max")); err != nil {
			return nil, err
		}
	}
	if pids > 0 && (own.PIDsPeak == 0 || own.PIDsPeak >= pids) {
		// What was parked had more threads than the command may have, before there was a ceiling.
		hit(sandbox.HitPIDs, sandbox.ScopeExecution, pids, min(own.PIDsPeak, pids), own.PIDsMax)
	} else {
		above += own.PIDsMax
	}
	hit(sandbox.HitPIDs, sandbox.ScopeSession, limits.PIDs, now.PIDsPeak, above)
	return hits, nil
}

// bequeath keeps what v1 has counted of an execution whose groups are about to go. The caller holds
// the session's mu.
func (l *Leaf) bequeath() {
	e, err := l.memoryEvents()
	if err != nil {
		return // it was never there, or has gone
	}
	l.session.legacyKills.OOMKills += e.OOMKills
	l.session.legacyKills.OOMs += e.OOMKills - e.OOMs
}

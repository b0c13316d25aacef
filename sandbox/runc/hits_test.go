package runc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// script runs a shell script with ceilings of its own.
func script(t *testing.T, r *Runner, session, text string, l sandbox.ExecLimits) outcome {
	t.Helper()
	return start(t, r, sandbox.Exec{Session: session, Argv: []string{"/bin/sh", "-c", text}, Limits: l}, nil).wait()
}

// hit finds a ceiling among those that were reached.
func hit(o outcome, ceiling, scope string) *sandbox.Hit {
	i := slices.IndexFunc(o.Hits, func(h sandbox.Hit) bool { return h.Ceiling == ceiling && h.Scope == scope })
	if i < 0 {
		return nil
	}
	return &o.Hits[i]
}

const eatMemory = "head -c 60m /dev/zero | tail >/dev/null; echo after $?"

// TestExecutionCeilings lets one execution meet each of its own ceilings, while its session has room: it is
// told which, and the session goes on (R053, T059, T061).
func TestExecutionCeilings(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	open(t, r, hostSpec("s"))
	for _, c := range []struct {
		name, script string
		limits       sandbox.ExecLimits
		ceiling      string
		limit        int64
		check        func(outcome) bool
	}{
		{"memory, of a child", eatMemory, sandbox.ExecLimits{MemoryBytes: 16 << 20}, sandbox.HitMemory, 16 << 20, nil},
		{"processes", "for i in $(seq 20); do sleep 1 & done; wait", sandbox.ExecLimits{PIDs: 5}, sandbox.HitPIDs, 5,
			func(o outcome) bool { return strings.Contains(o.stderr, "fork") }},
		{"processor time", "while :; do :; done", sandbox.ExecLimits{CPUTime: 200 * time.Millisecond}, sandbox.HitCPUTime, int64(200 * time.Millisecond),
			func(o outcome) bool { return o.Signal == 9 && !o.OOM && o.Usage.CPU < time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := script(t, r, "s", c.script, c.limits)
			h := hit(o, c.ceiling, sandbox.ScopeExecution)
			if h == nil || h.Limit != c.limit || h.Count == 0 || len(o.Hits) != 1 || c.check != nil && !c.check(o) {
				t.Errorf("%+v", o)
			}
			if o := shell(t, r, "s", "echo on"); o.stdout != "on\n" || len(o.Hits) != 0 {
				t.Errorf("afterwards: %+v", o)
			}
		})
	}
	o := script(t, r, "s", "ulimit -n; ulimit -Hn; head -c 8m /dev/zero | wc -c", sandbox.ExecLimits{Files: 17, MemoryBytes: 64 << 20, CPUMillis: 500, PIDs: 10})
	if o.stdout != "17\n17\n8388608\n" || len(o.Hits) != 0 {
		t.Errorf("within its ceilings: %+v", o)
	}
	// A command that cannot be executed is refused as one without ceilings is.
	_, err := r.Start(context.Background(), sandbox.Exec{Session: "s", ID: "none", Argv: []string{"/none"}, Cwd: "/tmp", Limits: sandbox.ExecLimits{PIDs: 5}}, nil, func(sandbox.Result) {})
	if codeOf(err) != sandbox.CodeSpawn {
		t.Errorf("got %v", err)
	}
	closeSession(t, r, "s")
	before.mustLeaveNothing(t, r)
}

// TestTightestCeiling starts commands that may have one process and little processor time: what
// becomes the command has threads, and needs no more of them once it is under the ceiling, however long it is kept from running.
func TestTightestCeiling(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if o := script(t, r, "s", "echo on", sandbox.ExecLimits{PIDs: 1, CPUMillis: 30}); o.stdout != "on\n" || o.stderr != "" {
					t.Errorf("%+v", o)
				}
			}
		})
	}
	all.Wait()
}

// TestSessionCeilings lets executions meet what they share (R049, T059, T061, T062, T064, T065).
func TestSessionCeilings(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("s")
	spec.Limits.MemoryBytes, spec.Limits.PIDs = 40<<20, 20
	spec.Scratch = []sandbox.Scratch{{Target: "/tmp", Bytes: 1 << 20, Inodes: 50}}
	open(t, r, spec)
	defer closeSession(t, r, "s")
	for _, c := range []struct {
		name, script, ceiling, object string
		limit                         int64
	}{
		{"memory, of a child", eatMemory, sandbox.HitMemory, "", 40 << 20},
		{"processes", "for i in $(seq 40); do sleep 1 & done; wait", sandbox.HitPIDs, "", 20},
		{"bytes", "head -c 2m /dev/zero > /tmp/full", sandbox.HitDiskBytes, "/tmp", 1 << 20},
		{"inodes", "rm -f /tmp/full; for i in $(seq 100); do : > /tmp/$i; done", sandbox.HitDiskInodes, "/tmp", 50},
		{"inodes of /dev/shm", "rm -f /tmp/*; i=0; while [ $i -lt 5000 ]; do : > /dev/shm/$i || break; i=$((i+1)); done", sandbox.HitDiskInodes, "/dev/shm", 4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := shell(t, r, "s", c.script)
			h := hit(o, c.ceiling, sandbox.ScopeSession)
			if h == nil || h.Limit != c.limit || h.Object != c.object || len(o.Hits) != 1 {
				t.Errorf("%+v", o)
			}
		})
	}
	if o := shell(t, r, "s", "rm -rf /dev/shm/* /tmp/*; echo on"); o.stdout != "on\n" || len(o.Hits) != 0 {
		t.Errorf("afterwards: %+v", o)
	}
}

// TestSessionProcessorTime kills every execution when the session has used its time, and starts none any
// more.
func TestSessionProcessorTime(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("s")
	spec.Limits.CPUTime = 300 * time.Millisecond
	open(t, r, spec)
	defer closeSession(t, r, "s")
	idle := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/sleep", "60"}}, nil)
	busy := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/sh", "-c", "while :; do :; done"}}, nil)
	for _, x := range []*started{idle, busy} {
		o := x.wait()
		h := hit(o, sandbox.HitCPUTime, sandbox.ScopeSession)
		if h == nil || h.Limit != int64(300*time.Millisecond) || h.Peak < h.Limit || o.Signal != 9 || o.OOM {
			t.Errorf("%+v", o)
		}
	}
	_, err := r.Start(context.Background(), sandbox.Exec{Session: "s", ID: "late", Argv: []string{"/bin/true"}, Cwd: "/tmp"}, nil, func(sandbox.Result) {})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.CodeCPUTime {
		t.Errorf("got %v", err)
	}
}

// TestDenials tells each execution what seccomp has refused to it, and nobody else; by the filter itself, not by
// what the program says (T043).
func TestDenials(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	other := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/sh", "-c", "sleep 0.5"}}, nil)
	o := shell(t, r, "s", `unshare -n true 2>&1; unshare -m true; (unshare -U true); nohup sh -c 'unshare -n true' 2>/dev/null; :`)
	kinds := map[string]int64{}
	for _, d := range o.Denials {
		kinds[d.Syscall+" "+d.Object] += d.Count
		if d.Layer != "seccomp" || d.Rule == "" || d.Errno == "" || d.At.IsZero() || d.At.Before(o.Started.Add(-time.Second)) || d.At.After(time.Now()) {
			t.Errorf("%+v", d)
		}
	}
	if want := map[string]int64{"unshare CLONE_NEWNET": 2, "unshare CLONE_NEWNS": 1, "unshare CLONE_NEWUSER": 1}; !maps.Equal(kinds, want) || len(o.Hits) != 0 {
		t.Errorf("%+v\n%s%s", o.Denials, o.stdout, o.stderr)
	}
	if o := other.wait(); len(o.Denials) != 0 {
		t.Errorf("of the other: %+v", o.Denials)
	}
	// A flood is counted, and nothing more.
	o = shell(t, r, "s", "i=0; while [ $i -lt 30 ]; do unshare -n true; i=$((i+1)); done 2>/dev/null")
	if len(o.Denials) != 1 || o.Denials[0].Count != 30 || o.Dropped != 0 {
		t.Errorf("%+v", o.Denials)
	}
}

// A program that may open no more files knows it, and nobody else: a ceiling that is not told of is listed.
func TestSilentCeilings(t *testing.T) {
	r := newRunner(t)
	e := open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	o := shell(t, r, "s", `bash -c 'for i in {1..300}; do exec {f}</dev/null || exit 7; done'`)
	if o.ExitCode == 0 || !strings.Contains(o.stderr, "Too many open files") || len(o.Hits)+len(o.Denials) != 0 {
		t.Errorf("%+v", o)
	}
	for _, ceiling := range []string{"ceilings.files", "ceilings.cpu_millis"} {
		if told, known := e.Reports[ceiling]; !known || told != "" {
			t.Errorf("%s: %q, %v", ceiling, told, known)
		}
	}
	if e.Reports["ceilings"] != "counter" {
		t.Errorf("%v", e.Reports)
	}
}

// Of many kinds the first are kept, and the others counted.
func TestDenialsAreBounded(t *testing.T) {
	var d denials
	for round := range 3 {
		for i := range sandbox.MaxDenials + 5 {
			if first := d.add(sandbox.Denial{Layer: "seccomp", Syscall: strings.Repeat("x", i)}); first != (round == 0 && i < sandbox.MaxDenials) {
				t.Errorf("round %d, %d: first %v", round, i, first)
			}
		}
	}
	if len(d.Kinds) != sandbox.MaxDenials || d.Kinds[7].Count != 3 || d.Dropped != 15 {
		t.Errorf("%d kinds, %d dropped", len(d.Kinds), d.Dropped)
	}
}

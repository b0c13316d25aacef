package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/worker"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// decider is an engine of this process, or workers.
type decider interface {
	Decide(ctx context.Context, ref string, in rego.Input) rego.Decision
}

// policy measures decisions of the shipped library three times. Evaluated: from the canonical bytes of a question to those of an
// answer, which is what a worker does and what the bars are about. In an engine, as the author's commands have it: the question is encoded
// and digested, another goroutine evaluates it under a deadline, and the answer is decoded and judged. And through a worker, as the daemon
// has it: the same around a process of its own, so that the difference of these two is what the walls around an evaluation cost.
func (b *bench) policy(bin string) error {
	engine, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		return err
	}
	defer engine.Close()
	pool, err := worker.Load(policies.FS, worker.Options{Program: []string{filepath.Join(bin, "stockaded"), worker.Argument, b.dir}})
	if err != nil {
		return err
	}
	defer pool.Close()
	open := opening(20)
	exec, err := b.executing(engine)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		name, ref string
		in        rego.Input
	}{
		{"policy: exec", rego.Exec, exec},
		{"policy: open with 20 mounts", rego.Open, open},
	} {
		decide := func(d decider) func() error {
			return func() error {
				if d := d.Decide(b.ctx, q.ref, q.in); !d.Allow {
					return fmt.Errorf("denied: %v", d.Deny)
				}
				return nil
			}
		}
		canonical := engine.Decide(b.ctx, q.ref, q.in).Input
		evaluate := func() error {
			if a := engine.Evaluate(q.ref, canonical, q.in.NowNS); a.Code != "" {
				return fmt.Errorf("%s: %s", a.Code, a.Message)
			}
			return nil
		}
		within := *b // as many as their size allows: they are short
		within.n, within.figures = 10*b.n, nil
		if err := within.compare([]contender{
			{name: q.name + ", evaluated", do: evaluate},
			{name: q.name + ", engine", do: decide(engine)},
			{name: q.name + ", worker", baseline: q.name + ", engine", do: decide(pool)},
		}); err != nil {
			return err
		}
		b.figures = append(b.figures, within.figures...)
	}
	return nil
}

// opening asks for a session with so many mounts of the caller's own directories.
func opening(mounts int) rego.Input {
	local := &api.Local{}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: &api.SessionOpen{Target: api.Target{Local: local}}},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   time.Now().UnixNano(),
	}
	for i := range mounts {
		host := fmt.Sprintf("/home/alice/%d", i)
		local.Mounts = append(local.Mounts, api.Mount{HostPath: host, GuestPath: fmt.Sprintf("/workspace/%d", i), Mode: "rw"})
		in.Facts.Sources[host] = rego.Source{Found: &rego.Found{Resolved: host, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

// executing asks to execute something in a session of the shipped library's.
func (b *bench) executing(engine *rego.Engine) (rego.Input, error) {
	in := opening(1)
	d := engine.Decide(b.ctx, rego.Open, in)
	if !d.Allow {
		return in, fmt.Errorf("denied: %v", d.Deny)
	}
	in.Session = &rego.Session{SessionID: "s-1", Profile: "workspace", Principal: in.Request.Principal, Grant: d.Grant, StartedAtNS: in.NowNS}
	in.Request = &api.Request{Op: api.OpExec, Principal: in.Request.Principal, Facade: "http", Exec: &api.Exec{
		SessionID: "s-1", Argv: []string{"go", "test", "./..."}, EnvPatch: map[string]api.EnvValue{"GOFLAGS": {Text: "-mod=mod"}},
	}}
	in.Facts = rego.Facts{}
	return in, nil
}

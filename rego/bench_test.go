package rego_test

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// question is one that the benchmarks ask.
type question struct {
	name, entrypoint string
	in               rego.Input
}

func questions(t testing.TB, e *rego.Engine) []question {
	return []question{
		{"open", rego.Open, openInput(1)},
		{"open20", rego.Open, openInput(20)},
		{"open200paths", rego.Open, pathsInput()},
		{"exec", rego.Exec, execInput(t, e)},
		{"control", rego.Signal, controlInput(t, e, api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: "x1"}}})},
		{"read", rego.Read, readInput()},
	}
}

// A whole decision: the question is encoded and digested, another goroutine evaluates it, the answer is decoded and judged.
func BenchmarkDecide(b *testing.B) {
	e, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range questions(b, e) {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := e.Decide(b.Context(), bench.entrypoint, bench.in); !d.Allow {
					b.Fatal(d.Deny)
				}
			}
		})
	}
}

// What a worker does of a decision, with its collector: from the bytes of the question to those of the answer. The bars are an open
// with 20 mounts within 0.6 ms and an exec within 20 µs.
func BenchmarkEvaluate(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	e, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range questions(b, e) {
		b.Run(bench.name, func(b *testing.B) {
			canonical := e.Decide(b.Context(), bench.entrypoint, bench.in).Input
			b.ReportAllocs()
			for b.Loop() {
				if a := e.Evaluate(bench.entrypoint, canonical, bench.in.NowNS); a.Code != "" {
					b.Fatal(a.Message)
				}
			}
		})
	}
}

// pathsInput is a hermetic build with 200 root paths under an operator's narrow ceiling.
func pathsInput() rego.Input {
	in := openInput(1)
	in.Request.Open.Profile = "hermetic"
	local := in.Request.Open.Target.Local
	local.Mounts[0].Mode = "ro"
	local.Root.Paths = &api.RootPaths{}
	in.Ceiling.MountRoots = []string{"/usr/local/go", "/root/go/pkg/mod", "/home/alice"}
	for i := range 200 {
		p := fmt.Sprintf("/root/go/pkg/mod/example.org/module-%d@v1.0.0", i)
		local.Root.Paths.Paths = append(local.Root.Paths.Paths, p)
		in.Facts.Sources[p] = rego.Source{Found: &rego.Found{Resolved: p, Kind: "dir", Ino: 1, Mode: 0o755}}
	}
	return in
}

func execInput(t testing.TB, e *rego.Engine) rego.Input {
	in := openInput(1)
	d := e.Decide(t.Context(), rego.Open, in)
	if !d.Allow {
		t.Fatal(d.Deny)
	}
	in.Session = &rego.Session{SessionID: "s1", Profile: "workspace", Principal: in.Request.Principal, Grant: d.Grant, StartedAtNS: in.NowNS}
	in.Request = &api.Request{Op: api.OpExec, Principal: in.Request.Principal, Facade: "http", Exec: &api.Exec{
		SessionID: "s1",
		Argv:      []string{"go", "test", "./..."},
		EnvPatch:  map[string]api.EnvValue{"GOFLAGS": {Text: "-mod=mod"}},
	}}
	in.Facts = rego.Facts{}
	return in
}

func readInput() rego.Input {
	in := openInput(0)
	in.Request = &api.Request{Op: api.OpSessionList, Principal: in.Request.Principal, Facade: "http", Read: &api.Read{}}
	return in
}

// A policy is loaded at a start, at a reload and whenever a worker is replaced.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		e, err := rego.Load(policies.FS, rego.Options{})
		if err != nil {
			b.Fatal(err)
		}
		e.Close()
	}
}

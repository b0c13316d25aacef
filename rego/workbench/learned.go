package workbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Room beyond what was seen: the next run need not be the same.
const (
	moreMemory = 2
	moreTime   = 4
	morePIDs   = 2
	leastBytes = 64 << 20
	leastTime  = 60_000_000_000
	leastPIDs  = 16
)

// write makes a policy of what was observed, and tests it.
func (l *learning) write(dir string, base fs.FS, got *observed, ask api.SessionOpen) (*learned, error) {
	for i, m := range ask.Target.Local.Mounts {
		seen := slices.IndexFunc(got.Mounts, func(s seenMount) bool { return s.GuestPath == m.GuestPath })
		if got.Mounts[seen].Changes == 0 {
			ask.Target.Local.Mounts[i].Mode = "ro"
		}
	}
	ask.Profile, ask.Labels = l.name, nil
	if err := copyPolicy(dir, base); err != nil {
		return nil, err
	}
	if err := l.writeData(dir, got, ask); err != nil {
		return nil, err
	}
	cases, err := l.learnedCases(ask)
	if err != nil {
		return nil, err
	}
	if err := l.writeTests(dir, cases, l.bounds(got)); err != nil {
		return nil, err
	}
	result := &learned{Name: l.name, Dir: dir, Command: l.argv, Runs: l.runs, Observed: *got, Request: ask, Run: commandLine(l.name, ask, l.argv)}
	for _, c := range cases {
		verb := "denied: "
		if *c.allow {
			verb = "allowed: "
		}
		result.Tests = append(result.Tests, verb+c.Name)
	}
	return result, tried(l.ctx, dir, l.name)
}

// copyPolicy copies what decides. Tests are left behind: they are of the data that is about to be replaced.
func copyPolicy(dir string, base fs.FS) error {
	return fs.WalkDir(base, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.rego") || strings.HasPrefix(name, fixturesDir+"/") {
			return err
		}
		text, err := fs.ReadFile(base, name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// bounds are the ceilings of the profile.
func (l *learning) bounds(got *observed) map[string]int64 {
	mebibytes := func(n int64) int64 { return (n + 1<<20 - 1) &^ (1<<20 - 1) }
	b := map[string]int64{"memory_bytes": max(leastBytes, mebibytes(got.MemoryBytes*moreMemory))}
	if got.PIDs > 0 {
		b["pids"] = max(leastPIDs, got.PIDs*morePIDs)
	}
	return b
}

// writeData adds the profile, and gives it to every principal as its only one.
func (l *learning) writeData(dir string, got *observed, ask api.SessionOpen) error {
	profile, err := readData(filepath.Join(dir, "profiles/workspace/data.json"))
	if err != nil {
		return fmt.Errorf("the profile that is narrowed: %w", err)
	}
	mounts := object(profile, "mounts")
	modes, roots, guests := []string{}, []string{}, []string{}
	var room, inodes int64
	for _, m := range ask.Target.Local.Mounts {
		host, guest := slashed(m.HostPath), slashed(m.GuestPath)
		for list, element := range map[*[]string]string{&modes: m.Mode, &roots: host, &guests: guest} {
			if !slices.Contains(*list, element) {
				*list = append(*list, element)
			}
		}
	}
	for _, m := range got.Mounts {
		room, inodes = max(room, m.Bytes), max(inodes, m.Changes)
	}
	mounts["max"], mounts["modes"], mounts["host_roots"], mounts["guest_prefixes"] = len(ask.Target.Local.Mounts), modes, roots, guests
	overlay := map[string]any{"bytes": max(leastBytes, room*moreMemory), "inodes": max(4096, inodes*moreMemory)}
	mounts["overlay"] = map[string]any{"default": overlay, "max": overlay}
	profile["roots"], profile["default_root"] = []string{"host"}, "host"
	profile["networks"], profile["egress"] = []string{"none"}, []api.Destination{}
	if mode := ask.Target.Local.NetworkMode; mode != "" {
		profile["networks"], profile["egress"] = []string{"none", mode}, got.Destinations
	}
	ceilings := object(profile, "ceilings")
	for name, bound := range l.bounds(got) {
		object(ceilings, "default")[name] = bound
		object(ceilings, "max")[name] = bound
	}
	wall := max(leastTime, got.WallNS*moreTime)
	exec := object(profile, "exec")
	exec["max_timeout_ns"], exec["default_timeout_ns"] = wall, wall
	profile["ttl"] = map[string]any{"default_ns": 2 * wall, "max_ns": 2 * wall}
	profile["background"] = map[string]any{"allowed": false, "default": false}
	if err := writeJSON(filepath.Join(dir, "profiles", l.name, "data.json"), profile); err != nil {
		return err
	}
	file := filepath.Join(dir, "principals/data.json")
	principals, err := readData(file)
	if err != nil {
		return err
	}
	usual := object(principals, "default")
	usual["profiles"], usual["profile"] = []string{l.name}, l.name
	return writeJSON(file, principals)
}

func slashed(p string) string { return strings.TrimSuffix(p, "/") + "/" }

// object is a member that is an object, which is made if it is not there.
func object(of map[string]any, name string) map[string]any {
	member, ok := of[name].(map[string]any)
	if !ok {
		member = map[string]any{}
		of[name] = member
	}
	return member
}

func readData(name string) (map[string]any, error) {
	var data map[string]any
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &data)
	}
	return data, err
}

func writeJSON(name string, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// temptation is a change to a request that asks for what was not seen to be needed.
type temptation struct {
	name  string
	tempt func(*rego.Input, *api.Local) bool // false: it is no temptation to this one
}

var temptations = []temptation{
	{"another directory of the host", func(in *rego.Input, l *api.Local) bool {
		const other = "/srv/not-learned"
		in.Facts.Sources[other] = rego.Source{Found: &rego.Found{Resolved: other, Kind: "dir", Dev: 1, Ino: 1, OwnerUID: in.Request.Principal.UID, Mode: 0o700}}
		if len(l.Mounts) == 0 {
			l.Mounts = []api.Mount{{HostPath: other, GuestPath: "/workspace", Mode: "ro"}}
		} else {
			l.Mounts[0].HostPath = other
		}
		return true
	}},
	{"another place inside", func(_ *rego.Input, l *api.Local) bool {
		if len(l.Mounts) > 0 {
			l.Mounts[0].GuestPath = "/opt/not-learned"
		}
		return len(l.Mounts) > 0
	}},
	{"to write in place", func(_ *rego.Input, l *api.Local) bool {
		if len(l.Mounts) > 0 {
			l.Mounts[0].Mode = "rw"
		}
		return len(l.Mounts) > 0
	}},
	{"one mount more", func(in *rego.Input, l *api.Local) bool {
		if len(l.Mounts) > 0 {
			again := l.Mounts[0]
			again.GuestPath = path.Join(again.GuestPath, "not-learned")
			l.Mounts = append(l.Mounts, again)
		}
		return len(l.Mounts) > 0
	}},
	{"all of the network", func(_ *rego.Input, l *api.Local) bool {
		l.NetworkMode, l.Egress = "full", nil
		return true
	}},
	{"another destination", func(_ *rego.Input, l *api.Local) bool {
		l.NetworkMode, l.Egress = "egress", []api.Destination{{Name: "not-learned.example", Ports: []uint16{443}}}
		return true
	}},
	{"another root", func(in *rego.Input, l *api.Local) bool {
		const other = "/srv/not-learned-root"
		in.Facts.Sources[other] = rego.Source{Found: &rego.Found{Resolved: other, Kind: "dir", Dev: 1, Ino: 1, OwnerUID: in.Request.Principal.UID, Mode: 0o755}}
		l.Root = api.Root{Dir: &api.RootDir{Path: other}}
		return true
	}},
	{"another profile", func(in *rego.Input, _ *api.Local) bool {
		in.Request.Open.Profile = "workspace"
		return true
	}},
	{"to leave processes behind", func(in *rego.Input, _ *api.Local) bool {
		yes := true
		in.Request.Open.Background = &yes
		return true
	}},
	{"to change how programs are loaded", func(_ *rego.Input, l *api.Local) bool {
		l.Env = map[string]api.EnvValue{"LD_PRELOAD": {Text: "/tmp/x.so"}}
		return true
	}},
}

// learnedCases are the request itself, and what must be denied.
func (l *learning) learnedCases(ask api.SessionOpen) ([]aCase, error) {
	fresh := func() (rego.Input, error) {
		text, err := api.Encode(ask)
		if err != nil {
			return rego.Input{}, err
		}
		req := &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, Facade: "http"}
		if _, refused := req.SetParameters(text); refused != nil {
			return rego.Input{}, refused
		}
		in := rego.Input{Request: req, Facts: lookUp(req), Ceiling: sandbox.DefaultCeiling(), NowNS: someTime}
		return in, nil
	}
	var cases []aCase
	add := func(name string, in rego.Input, allow bool) error {
		c, err := rego.CaseOf(name, in)
		cases = append(cases, aCase{Case: c, allow: &allow})
		return err
	}
	in, err := fresh()
	if err != nil {
		return nil, err
	}
	if err := add("what "+l.name+" asks for", in, true); err != nil {
		return nil, err
	}
	for _, t := range temptations {
		in, err := fresh()
		if err != nil {
			return nil, err
		}
		if !t.tempt(&in, in.Request.Open.Target.Local) {
			continue
		}
		if err := add(t.name, in, false); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// testFile is the only Rego that learn writes: questions as data, and what their answers must be.
var testFile = template.Must(template.New("").Parse(`# Written by "stockade policy learn {{.Name}}" from what a command was seen to need.
package learned.{{.Name}}_test

import data.stockade.open

cases := {{.Cases}}

bounds := {{.Bounds}}

test_{{.Name}}_is_asked[name] if {
	some name, row in cases
	decision := open.decision with input as row.input
	decision.allow == row.allow
}

test_{{.Name}}_gets_no_more_than_its_ceilings[name] if {
	some name, bound in bounds
	document := json.patch(cases[{{.First}}].input, [{"op": "add", "path": "/request/open/limits", "value": {name: 1125899906842624}}])
	decision := open.decision with input as document
	decision.grant.ceilings[name] <= bound
}
`))

// writeTests writes the cases as tests and as fixtures.
func (l *learning) writeTests(dir string, cases []aCase, bounds map[string]int64) error {
	table := map[string]map[string]any{}
	var lines bytes.Buffer
	for _, c := range cases {
		table[c.Name] = map[string]any{"allow": *c.allow, "input": c.Input}
		text, err := json.Marshal(map[string]any{"name": l.name + ": " + c.Name, "allow": *c.allow, "input": c.Input}, json.Deterministic(true))
		if err != nil {
			return err
		}
		lines.Write(append(text, '\n'))
	}
	var parts [3][]byte
	for i, v := range []any{table, bounds, cases[0].Name} {
		text, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("\t"))
		if err != nil {
			return err
		}
		parts[i] = text
	}
	var text bytes.Buffer
	if err := testFile.Execute(&text, map[string]any{"Name": l.name, "Cases": string(parts[0]), "Bounds": string(parts[1]), "First": string(parts[2])}); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		filepath.Join(dir, "learned", l.name+"_test.rego"): text.Bytes(),
		filepath.Join(dir, fixturesDir, l.name+".jsonl"):   lines.Bytes(),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tried runs what was written about one name.
func tried(ctx context.Context, dir, name string) error {
	fsys := os.DirFS(dir)
	bundle, err := rego.ReadBundle(fsys)
	if err != nil {
		return err
	}
	results, _, err := bundle.Test(ctx, rego.TestOptions{Run: "learned." + name})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range results {
		if !r.Pass() {
			errs = append(errs, fmt.Errorf("%s fails: %v", r.Name, r.Error))
		}
	}
	for _, o := range fixtureOutcomes(ctx, fsys, "^fixture "+name+": ") {
		if o.Outcome == "fail" {
			errs = append(errs, fmt.Errorf("%s: %s", o.Name, o.Error))
		}
	}
	return errors.Join(errs...)
}

// commandLine is a request as flags of run.
func commandLine(name string, ask api.SessionOpen, argv []string) string {
	words := []string{"stockade", "run", "--profile", name}
	for _, m := range ask.Target.Local.Mounts {
		flag := "--mount " + m.HostPath + ":" + m.GuestPath + ":" + m.Mode
		if m.Mode == api.ModeOverlay {
			flag = "--overlay " + m.HostPath + ":" + m.GuestPath
		}
		words = append(words, flag)
	}
	if ask.Target.Local.Workdir != "" {
		words = append(words, "--workdir", ask.Target.Local.Workdir)
	}
	if ask.Target.Local.NetworkMode != "" {
		words = append(words, "--network", ask.Target.Local.NetworkMode)
	}
	return strings.Join(append(append(words, "--"), argv...), " ")
}

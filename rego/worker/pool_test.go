package worker

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Workers of these tests are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		if err := Main(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tree is a policy whose open says what is given; the other entry points allow.
func tree(open string) fstest.MapFS {
	files := fstest.MapFS{"open.rego": {Data: []byte("package stockade.open\n\n" + open)}}
	for _, name := range []string{"exec", "signal", "blob", "read"} {
		files[name+".rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, "package stockade.%s\n\ndecision := {\"allow\": true, \"deny\": []}\n", name)}
	}
	return files
}

// input asks for a session with so many mounts of the caller's own directories.
func input(mounts int) rego.Input {
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: open},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   1_700_000_000_000_000_000,
	}
	for i := range mounts {
		host := fmt.Sprintf("/home/alice/%d", i)
		open.Target.Local.Mounts = append(open.Target.Local.Mounts, api.Mount{HostPath: host, GuestPath: fmt.Sprintf("/workspace/%d", i), Mode: "rw"})
		in.Facts.Sources[host] = rego.Source{Found: &rego.Found{Resolved: host, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

// decider is what both an engine and a pool are.
type decider interface {
	Decide(ctx context.Context, ref string, in rego.Input) rego.Decision
}

// executing asks to execute something in a session that p grants.
func executing(t testing.TB, p decider) rego.Input {
	t.Helper()
	in := input(1)
	d := p.Decide(t.Context(), rego.Open, in)
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

func TestPool(t *testing.T) {
	begin := time.Now()
	p, err := Load(policies.FS, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	t.Log(time.Since(begin))
	d := p.Decide(t.Context(), rego.Open, input(1))
	t.Log(d.Allow, d.Deny, d.Elapsed, d.Policy)
	time.Sleep(time.Second)
	for range 10 {
		d = p.Decide(t.Context(), rego.Open, input(1))
		t.Log(d.Allow, d.Deny, d.Elapsed, p.State())
	}
}

package rego_test

import (
	"testing"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func TestShippedLibraryLoads(t *testing.T) {
	e, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []rego.Input{openInput(2)} {
		d := e.Decide(t.Context(), rego.Open, in)
		t.Logf("%+v", d)
		t.Log(d.Elapsed)
		if !d.Allow {
			t.Fatal(d.Deny)
		}
		b, _ := api.Encode(d.Grant)
		t.Log(string(b))
	}
}

func openInput(mounts int) rego.Input {
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: open},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   1_700_000_000_000_000_000,
	}
	for i := range mounts {
		name := string(rune('a' + i))
		open.Target.Local.Mounts = append(open.Target.Local.Mounts, api.Mount{HostPath: "/home/alice/" + name, GuestPath: "/workspace/" + name, Mode: "rw"})
		in.Facts.Sources["/home/alice/"+name] = rego.Source{Found: &rego.Found{Resolved: "/home/alice/" + name, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

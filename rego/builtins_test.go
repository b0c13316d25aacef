package rego

import (
	"strings"
	"testing"
	"testing/quick"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func TestFormed(t *testing.T) {
	for _, row := range []struct {
		document string
		formed   bool
	}{
		{`{}`, true},
		{`{"unknown": [1, null], "now_ns": 1}`, true},
		{`{"request": {"op": "host.exec", "exec": {"argv": ["true"], "env_patch": {"A": "b", "S": {"secret": "s"}}}}}`, true},
		{`{"session": {"grant": {"exec": {"max_argv": 3}, "mounts": [{"mode": "ro"}]}}}`, true},
		{`{"session": {"grant": null}}`, true}, // as one that is not there
		{`{"facts": {"sources": {"/a": {"resolved": "/a", "owner_uid": 0}, "/b": {"error": "x"}}}}`, true},
		{`[]`, false},
		{`{"now_ns": null}`, false},
		{`{"now_ns": "1"}`, false},
		{`{"request": {"exec": {"argv": ["true", 1]}}}`, false},
		{`{"request": {"exec": {"argv": {"0": "true"}}}}`, false},
		{`{"request": {"exec": {"env_patch": []}}}`, false},
		{`{"session": {"grant": {"exec": {"max_argv": null}}}}`, false},
		{`{"session": {"grant": {"env": {"set": {"A": null}}}}}`, false},
		{`{"session": {"grant": {"mounts": [[]]}}}`, false},
		{`{"facts": {"sources": {"/a": {"resolved": 1}}}}`, false},
	} {
		v, err := parseJSON([]byte(row.document))
		if err != nil {
			t.Fatal(err)
		}
		if got := inputForm.fits(v); got != row.formed {
			t.Errorf("%s: %v", row.document, got)
		}
	}
}

// What the supervisor asks has the form of its types, whatever is in it.
func TestAskedIsFormed(t *testing.T) {
	if err := quick.Check(func(grant api.Grant, now int64, argv []string) bool {
		in := Input{Request: &api.Request{Op: api.OpExec, Exec: &api.Exec{Argv: argv}}, Session: &Session{Grant: &grant}, NowNS: now}
		text, err := in.canonical()
		if err != nil {
			return strings.Contains(err.Error(), "UTF-8")
		}
		v, err := parseJSON(text)
		return err == nil && inputForm.fits(v)
	}, nil); err != nil {
		t.Error(err)
	}
}

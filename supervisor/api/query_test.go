package api

import (
	"testing"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// R091, R094: each filter, by one receipt that fits and by itself; a filter that says nothing fits everything.
func TestReceiptFilters(t *testing.T) {
	uid, other := int64(1000), int64(1001)
	open := &Receipt{
		IntentID: "sha256:1", Op: OpSessionOpen, Outcome: OutcomeDenied, SessionID: "s-1", ExecID: "x-1", SettledAtNS: 100,
		Principal: Principal{UID: 1000, Scope: Scope{AgentID: "a", ChatID: "c"}},
		Deny:      []Deny{{Code: "mount_not_allowed", Subject: "mount:/srv/payroll/2026"}},
		Policy:    PolicyRef{Rules: []string{"open/decision.rego:12 stockade.open.deny"}},
	}
	granted := &Receipt{Payload: Payload{Open: &OpenResult{Grant: &Grant{Mounts: []GrantMount{{HostPath: "/home/a/ws", GuestPath: "/work"}}}}}}
	ran := &Receipt{Payload: Payload{Exec: &ExecResult{
		LimitsHit: []LimitHit{{Code: "oom_killed"}}, Outputs: []Artifact{{Path: "/tmp/out"}}, Denials: []Denial{{Object: "example.org:443"}, {Object: "/proc/kcore"}},
	}}}
	patched := &Receipt{Payload: Payload{File: &file.Result{Op: file.OpPatch, Patch: &file.PatchResult{Changes: []file.Change{{Path: "/work/a.go"}}}}}}
	for name, row := range map[string]struct {
		f    Read
		r    *Receipt
		fits bool
	}{
		"nothing":                   {Read{}, open, true},
		"session":                   {Read{SessionID: "s-1"}, open, true},
		"another session":           {Read{SessionID: "s-2"}, open, false},
		"execution":                 {Read{ExecID: "x-2"}, open, false},
		"intent":                    {Read{IntentID: "sha256:2"}, open, false},
		"operation":                 {Read{Op: OpSessionOpen}, open, true},
		"another operation":         {Read{Op: OpExec}, open, false},
		"outcome":                   {Read{Outcome: OutcomeDenied}, open, true},
		"another outcome":           {Read{Outcome: OutcomeOK}, open, false},
		"since is included":         {Read{SinceNS: 100}, open, true},
		"before since":              {Read{SinceNS: 101}, open, false},
		"until is not":              {Read{UntilNS: 100}, open, false},
		"before until":              {Read{UntilNS: 101}, open, true},
		"user":                      {Read{UID: &uid}, open, true},
		"another user":              {Read{UID: &other}, open, false},
		"root is a user":            {Read{UID: new(int64)}, open, false},
		"part of the scope":         {Read{AgentID: "a"}, open, true},
		"another agent":             {Read{AgentID: "b", ChatID: "c"}, open, false},
		"a world where there is no": {Read{WorldID: "w"}, open, false},
		"code":                      {Read{Code: "mount_not_allowed"}, open, true},
		"a part of a code":          {Read{Code: "mount"}, open, false},
		"code of a ceiling":         {Read{Code: "oom_killed"}, ran, true},
		"rule":                      {Read{Rule: "stockade.open.deny"}, open, true},
		"rule, by the code":         {Read{Rule: "not_allowed"}, open, true},
		"another rule":              {Read{Rule: "stockade.exec"}, open, false},
		"refused path":              {Read{Path: "/srv/payroll"}, open, true},
		"the path itself":           {Read{Path: "/srv/payroll/2026"}, open, true},
		"a longer name":             {Read{Path: "/srv/pay"}, open, false},
		"everything is below /":     {Read{Path: "/"}, open, true},
		"source of a mount":         {Read{Path: "/home/a"}, granted, true},
		"where it is mounted":       {Read{Path: "/work"}, granted, true},
		"another":                   {Read{Path: "/home/b"}, granted, false},
		"output":                    {Read{Path: "/tmp"}, ran, true},
		"refused object":            {Read{Path: "/proc"}, ran, true},
		"changed file":              {Read{Path: "/work"}, patched, true},
		"no changed file":           {Read{Path: "/work/b.go"}, patched, false},
	} {
		if row.f.Fits(row.r) != row.fits {
			t.Errorf("%s: %v", name, !row.fits)
		}
	}
}

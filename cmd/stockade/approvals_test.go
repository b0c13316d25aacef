package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// What the commands about approvals ask, say and end with.
func TestApprovals(t *testing.T) {
	const id = "a-waitbbbbbbbbbbbbbbbbbbbbbb"
	waits := api.Approval{
		ApprovalID: id, IntentID: intentRuns, Op: api.OpExec, Principal: api.Principal{UID: 7, GID: 8}, SessionID: sessionOne, State: api.ApprovalWaiting,
		Reason: "it publishes", Review: "sha256:" + strings.Repeat("e", 64), Argv: []string{"git", "push"}, AskedAtNS: begun, DeadlineNS: begun,
	}
	shown := waits
	shown.Reviewed = &api.Reviewed{
		Request: &api.Request{Exec: &api.Exec{Argv: []string{"git", "push", "\x1b[2J"}, EnvPatch: map[string]api.EnvValue{"TOKEN": {SecretDigest: "hmac"}}}},
		Policy:  "sha256:p", Limits: map[string]int64{"timeout_ns": 5}, Sources: map[string]api.Source{"/link": {Resolved: "/srv/prod", Kind: "dir"}},
	}
	verdict := func(state api.ApprovalState) api.Receipt {
		return api.Receipt{Payload: api.Payload{Verdict: &api.VerdictResult{ApprovalID: id, State: state}}}
	}
	for _, row := range []struct {
		args   string
		status int
		stdout string // all of it, or with … a part
		asked  string // a part of what was asked
	}{
		{"approvals ls", 0, "APPROVAL                      STATE    WHO          OPERATION  SUBJECT   LEFT  REASON\n" +
			id + "  waiting  uid 7 gid 8  host.exec  git push  0s    it publishes\n", "state=waiting"},
		{"approvals show a-wait", 0, "…source     /link is dir /srv/prod", "/v1/approvals/" + id},
		{"approvals show " + id, 0, "…git push \"\\x1b[2J\"", ""},
		{"approvals show " + id, 0, "…env        TOKEN", ""},
		{"approvals approve a-wait --comment fine", 0, id + " approved\n", `"review":"` + waits.Review + `","comment":"fine"`},
		{"approvals approve " + id + " --review sha256:0", 0, id + " approved\n", `"review":"sha256:0"`},
		{"approvals deny " + id, 0, id + " denied\n", `{"approval_id":"` + id + `"}`},
		{"approvals show a-x", exitUsage, "", ""},
		{"approvals approve", exitUsage, "", ""},
	} {
		f := newFake(t)
		page := 0
		f.mux.HandleFunc("GET /v1/approvals", func(w http.ResponseWriter, _ *http.Request) {
			list := api.ApprovalList{Approvals: []api.Approval{waits}, Next: "7"}
			if page++; page > 1 {
				list.Approvals = []api.Approval{}
			}
			reply(w, 200, list)
		})
		f.answers("GET /v1/approvals/"+id, shown)
		f.does(api.OpApprove, verdict(api.ApprovalApproved))
		f.does(api.OpDeny, verdict(api.ApprovalDenied))
		got := f.run(t, "", strings.Fields(row.args)...)
		part, isPart := strings.CutPrefix(row.stdout, "…")
		if got.status != row.status || isPart && !strings.Contains(got.stdout, part) || !isPart && got.stdout != row.stdout {
			t.Errorf("%s: %d %s%s", row.args, got.status, cmp.Diff(row.stdout, got.stdout), got.stderr)
		}
		if row.asked != "" && len(f.said(row.asked)) == 0 {
			t.Errorf("%s: asked %q, want %s", row.args, f.calls, row.asked)
		}
	}
}

// An open that waits for leave says so, and then waits, or with --no-wait does not.
func TestOpenWaitsForLeave(t *testing.T) {
	for _, row := range []struct {
		args   string
		status int
		stdout string
	}{
		{"open --no-wait", exitRunning, intentOpen + "\n"},
		{"open", exitDenied, ""},
	} {
		f := newFake(t)
		f.mux.HandleFunc("POST /v1/sessions", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Prefer") != "respond-async" {
				t.Error("it did not say that it would rather not wait")
			}
			reply(w, http.StatusAccepted, api.Pending{IntentID: intentOpen, Approval: "a-1", State: api.StateQueued})
		})
		f.mux.HandleFunc("GET /v1/intents/"+intentOpen+"/frames", func(w http.ResponseWriter, _ *http.Request) {
			stream(w, api.Event{Kind: "receipt", IntentID: intentOpen, Receipt: &api.Receipt{Op: api.OpSessionOpen, IntentID: intentOpen, Outcome: api.OutcomeDenied, ErrorCode: api.CodeApprovalDenied}})
		})
		got := f.run(t, "", strings.Fields(row.args)...)
		if got.status != row.status || got.stdout != row.stdout || !strings.Contains(got.stderr, "it waits for leave: stockade approvals show a-1") {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

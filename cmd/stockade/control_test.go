package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// someProcesses are executions in every kind of state.
func someProcesses() []api.Process {
	return []api.Process{
		{ExecID: execRuns, IntentID: intentRuns, SessionID: sessionOne, State: api.StateRunning, Argv: []string{"make", "-j2", "test"},
			QueuedAtNS: begun, StartedAtNS: begun + 1e9, StdoutBytes: 2048, StdinOpen: true, Labels: map[string]string{"step": "test", "job": "42"}},
		{ExecID: execRust, SessionID: sessionTwo, State: api.StateQueued, Argv: []string{"cargo", "build"}, QueuedAtNS: theTime - 5e9},
		{ExecID: execDone, IntentID: intentDone, SessionID: sessionOne, State: api.StateFailed, Reason: "non_zero_exit", ExitCode: new(7),
			Argv: []string{"sh", "-c", "while true; do something; done"}, QueuedAtNS: begun, StartedAtNS: begun, EndedAtNS: begun + 60e9, StderrBytes: 10},
		{ExecID: execGone, SessionID: sessionOne, State: api.StateFailed, Reason: "oom", Signal: "KILL", Argv: []string{"tail", "/dev/zero"},
			QueuedAtNS: begun, StartedAtNS: begun, EndedAtNS: begun + 50e9},
	}
}

// registry is a supervisor that knows them, and gives them out in pages of two.
func registry(t *testing.T) *fake {
	f := newFake(t)
	f.mux.HandleFunc("GET /v1/executions", func(w http.ResponseWriter, r *http.Request) {
		all := someProcesses()
		q := r.URL.Query()
		all = slices.DeleteFunc(all, func(p api.Process) bool {
			return q.Get("active") == "true" && p.State.Final() || q.Get("session_id") != "" && q.Get("session_id") != p.SessionID
		})
		list := api.ProcessList{Processes: all}
		if q.Get("after") == "2" {
			list.Processes = all[2:]
		} else if len(all) > 2 {
			list = api.ProcessList{Processes: all[:2], Next: "2"}
		}
		reply(w, 200, list)
	})
	f.mux.HandleFunc("GET /v1/executions/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, p := range someProcesses() {
			if p.ExecID == r.PathValue("id") {
				reply(w, 200, p)
				return
			}
		}
		fails(w, 404, api.CodeExecNotFound)
	})
	f.answers("GET /v1/sessions", api.SessionList{Sessions: []api.Session{
		{SessionID: sessionOne, State: "quiesced", StartedAtNS: begun}, {SessionID: sessionTwo, State: "closed", StartedAtNS: begun, EndedAtNS: theTime},
	}})
	f.answers("GET /v1/intents", api.IntentList{Intents: []api.Intent{
		{IntentID: intentRuns, Op: api.OpExec, ExecID: execRuns, SessionID: sessionOne, FrameSeq: 4, AdmittedAtNS: begun, AgeNS: 180e9, Key: "build-42"},
		{IntentID: intentDone, Op: api.OpExec, ExecID: execDone, SessionID: sessionOne, AdmittedAtNS: begun, SettledAtNS: theTime, Outcome: api.OutcomeOK},
		{IntentID: intentOpen, Op: api.OpSessionOpen, SessionID: sessionOne, AdmittedAtNS: begun, SettledAtNS: theTime, Outcome: api.OutcomeDenied},
	}})
	f.answers("GET /v1/intents/"+intentRuns, api.Intent{IntentID: intentRuns, Op: api.OpExec, ExecID: execRuns})
	f.answers("GET /v1/intents/"+intentOpen, api.Intent{IntentID: intentOpen, Op: api.OpSessionOpen, SessionID: sessionOne})
	return f
}

// What lists look like, and how they are asked for (R228, R239).
func TestLists(t *testing.T) {
	rows := []struct{ args, want string }{
		{"ps", `
EXEC                          SESSION       COMMAND        CREATED        STATUS             OUTPUT  LABELS
x-runsbbbbbbbbbbbbbbbbbbbbbb  s-oneaaaaaaa  make -j2 test  3 minutes ago  running 2 minutes  2KiB    job=42,step=test
x-rustbbbbbbbbbbbbbbbbbbbbbb  s-twoaaaaaaa  cargo build    5 seconds ago  queued 5 seconds   0B      
`},
		{"ps --all --session " + sessionOne, `
EXEC                          SESSION       COMMAND                         CREATED        STATUS                               OUTPUT  LABELS
x-runsbbbbbbbbbbbbbbbbbbbbbb  s-oneaaaaaaa  make -j2 test                   3 minutes ago  running 2 minutes                    2KiB    job=42,step=test
x-donebbbbbbbbbbbbbbbbbbbbbb  s-oneaaaaaaa  sh -c "while true; do somethi…  3 minutes ago  failed (7) 2 minutes ago             10B     
x-gonebbbbbbbbbbbbbbbbbbbbbb  s-oneaaaaaaa  tail /dev/zero                  3 minutes ago  failed (SIGKILL, oom) 2 minutes ago  0B      
`},
		{"ps -aq", "\n" + strings.Join([]string{execRuns, execRust, execDone, execGone}, "\n") + "\n"},
		{"ps -aqn 2", "\n" + execRuns + "\n" + execRust + "\n"},
		{"ls", `
SESSION                       STATE     PROFILE  STARTED              EXECS  LIVE  LABELS
s-oneaaaaaaaaaaaaaaaaaaaaaaa  quiesced           2023-11-14 22:13:20  0      0     
`},
		{"intents", `
INTENT                                                                   OPERATION          OUTCOME         ADMITTED             FRAMES  SUBJECT                       KEY
sha256:1111111111111111111111111111111111111111111111111111111111111111  host.exec          in flight 3m0s  2023-11-14 22:13:20  4       x-runsbbbbbbbbbbbbbbbbbbbbbb  build-42
sha256:2222222222222222222222222222222222222222222222222222222222222222  host.exec          ok              2023-11-14 22:13:20  0       x-donebbbbbbbbbbbbbbbbbbbbbb  
sha256:3333333333333333333333333333333333333333333333333333333333333333  host.session.open  denied          2023-11-14 22:13:20  0       s-oneaaaaaaaaaaaaaaaaaaaaaaa  
`},
		{"intents --active --limit 1", `
INTENT                                                                   OPERATION  OUTCOME         ADMITTED             FRAMES  SUBJECT                       KEY
sha256:1111111111111111111111111111111111111111111111111111111111111111  host.exec  in flight 3m0s  2023-11-14 22:13:20  4       x-runsbbbbbbbbbbbbbbbbbbbbbb  build-42
`},
		{"show x-runs", `
execution  x-runsbbbbbbbbbbbbbbbbbbbbbb
state      running 2 minutes
command    make -j2 test
session    s-oneaaaaaaaaaaaaaaaaaaaaaaa
intent     sha256:1111111111111111111111111111111111111111111111111111111111111111
principal  uid 0 gid 0
labels     job=42,step=test
queued     
started    
ended      
output     stdout 2KiB, stderr 0B
frames     0
can        logs -f, wait, input, signal, modify, pause, resume, cancel
`},
	}
	f := registry(t)
	for _, row := range rows {
		got := f.run(t, "", strings.Fields(row.args)...)
		if diff := cmp.Diff(row.want[1:], got.stdout); got.status != 0 || diff != "" {
			t.Errorf("stockade %s: status %d, %s%s", row.args, got.status, got.stderr, diff)
		}
	}
	if got := f.run(t, "", "ps", "--json", "--state", "running", "--label", "a=b"); !strings.HasPrefix(got.stdout, "{\n  \"processes\": [") {
		t.Errorf("%+v", got)
	}
	if len(f.said("GET /v1/executions?", "state=running", "label=a%3Db")) == 0 || len(f.said("state=running", "active")) != 0 {
		t.Errorf("calls: %q", f.calls)
	}
}

// An id may be named by its beginning where that names one, and by the intent that started the
// execution; what it does not name and what it names twice have a status each.
func TestNames(t *testing.T) {
	f := registry(t)
	f.does(api.OpProcessCancel, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: api.ControlCanceled}}})
	for _, row := range []struct {
		word   string
		status int
		says   string
		exec   string // that was canceled
	}{
		{execRuns, 0, "", execRuns},
		{"x-runs", 0, "", execRuns},
		{"x-runsbbbbb", 0, "", execRuns},
		{intentRuns, 0, "", execRuns},
		{"sha256:1111", 0, "", execRuns},
		{"x-zzzz", exitUnavailable, "exec_not_found", ""},
		{"x-ru", exitUsage, "at least 4 characters", ""},
		{"sha256:9999", exitUnavailable, "not_found", ""},
		{intentOpen, exitUsage, "host.session.open", ""},
	} {
		before := len(f.said("host.process.cancel"))
		got := f.run(t, "", "cancel", row.word)
		calls := f.said("host.process.cancel")[before:]
		if got.status != row.status || !strings.Contains(got.stderr, row.says) || (len(calls) == 1) != (row.exec != "") ||
			row.exec != "" && !strings.Contains(calls[0], row.exec) {
			t.Errorf("%s: %+v, %q", row.word, got, calls)
		}
	}

	twice := newFake(t)
	twice.answers("GET /v1/executions", api.ProcessList{Processes: []api.Process{{ExecID: execRuns}, {ExecID: execPrefix + "runs" + strings.Repeat("c", 22)}}})
	if got := twice.run(t, "", "cancel", "x-runs"); got.status != exitUsage || !strings.Contains(got.stderr, "beginning of 2 execution ids") || !strings.Contains(got.stderr, execRuns) {
		t.Errorf("%+v", got)
	}
}

// What each operation on something that runs sends, says and ends with.
func TestControl(t *testing.T) {
	control := func(status string) api.Receipt {
		return api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: status}}}
	}
	for _, row := range []struct {
		args   string
		op     api.Op
		r      api.Receipt
		status int
		stdout string
		sent   string // a part of the body
	}{
		{"cancel EXEC", api.OpProcessCancel, control("canceled"), 0, "EXEC canceled\n", `{"exec_id":"EXEC"}`},
		{"cancel --grace 0s EXEC", api.OpProcessCancel, control("canceled"), 0, "EXEC canceled\n", `"grace_timeout_ns":0`},
		{"cancel --no-wait EXEC", api.OpProcessCancel, control("cancel_requested"), 0, "EXEC cancel_requested\n", `"wait":false`},
		{"cancel EXEC", api.OpProcessCancel, control("already_finished"), 0, "EXEC already_finished\n", ""},
		{"cancel EXEC", api.OpProcessCancel, control("not_cancellable"), exitUnavailable, "EXEC not_cancellable\n", ""},
		{"cancel EXEC", api.OpProcessCancel, api.Receipt{Outcome: api.OutcomeDenied}, exitDenied, "", ""},
		{"cancel EXEC", api.OpProcessCancel, api.Receipt{Outcome: api.OutcomeFaulted, ErrorCode: api.CodeExecNotFound}, exitUnavailable, "", ""},
		{"pause EXEC", api.OpProcessPause, control("paused"), 0, "EXEC paused\n", "EXEC"},
		{"resume EXEC", api.OpProcessResume, control("resumed"), 0, "EXEC resumed\n", "EXEC"},
		{"pause SESSION", api.OpSessionPause, control("paused"), 0, "SESSION paused\n", `{"session_id":"SESSION"}`},
		{"resume SESSION", api.OpSessionResume, control("resumed"), 0, "SESSION resumed\n", `{"session_id":"SESSION"}`},
		{"signal EXEC usr1", api.OpProcessSignal, control("signaled"), 0, "EXEC signaled\n", `"signal":"USR1"`},
		{"signal EXEC --grace 1s term", api.OpProcessSignal, control("signaled"), exitUsage, "", ""},
		{"modify --timeout 5m EXEC", api.OpProcessModify, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: "accepted", TimeoutNS: 120e9}}}, 0,
			"EXEC timeout 2m0s accepted\n", `"timeout_ns":300000000000`},
		{"rm EXEC", api.OpProcessDelete, control("deleted"), 0, "EXEC deleted\n", "EXEC"},
		{"rm EXEC", api.OpProcessDelete, control("active_process_conflict"), exitUnavailable, "EXEC active_process_conflict\n", ""},
		{"stop --session SESSION --label a=b", api.OpProcessStop, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: "stopped", Count: 3}}}, 0,
			"stopped 3\n", `"labels":{"a":"b"}`},
		{"input EXEC one two", api.OpProcessInput, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: "accepted", Bytes: 8}}}, 0,
			"accepted 8 bytes\n", `"data":{"inline_bytes":{"bytes":"b25lCnR3bwo="}}`},
		{"input --id a --secret EXEC hush", api.OpProcessInput, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: "duplicate", Bytes: 5}}}, 0,
			"duplicate 5 bytes\n", `"exec_id":"EXEC","input_id":"a","data":{"secret_text":{"text":"hush\n"}}`},
		{"input --close EXEC", api.OpProcessInput, control("accepted"), 0, "accepted 0 bytes\n", `{"exec_id":"EXEC","close":true}`},
		{"input EXEC x", api.OpProcessInput, api.Receipt{Outcome: api.OutcomeFaulted, ErrorCode: api.CodeStdinClosed}, exitUnavailable, "", ""},
	} {
		f := newFake(t)
		f.does(row.op, row.r)
		named := strings.NewReplacer("EXEC", execRuns, "SESSION", sessionOne)
		got := f.run(t, "", strings.Fields(named.Replace(row.args))...)
		if got.status != row.status || got.stdout != named.Replace(row.stdout) {
			t.Errorf("%s: %+v, want %d %q", row.args, got, row.status, row.stdout)
		}
		if row.sent != "" && len(f.said(string(row.op), named.Replace(row.sent))) != 1 {
			t.Errorf("%s: sent %q, want %s", row.args, f.calls, row.sent)
		}
	}
}

// Of several, each is tried, and the status is that of the first failure.
func TestSeveral(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("POST /v1/ops/host.process.cancel", func(w http.ResponseWriter, r *http.Request) {
		if len(f.said("cancel")) == 1 {
			reply(w, 403, api.Receipt{Op: api.OpProcessCancel, IntentID: intentOpen, Outcome: api.OutcomeDenied})
			return
		}
		reply(w, 200, api.Receipt{Op: api.OpProcessCancel, IntentID: intentOpen, Outcome: api.OutcomeOK, Payload: api.Payload{Control: &api.ControlResult{Status: "canceled"}}})
	})
	got := f.run(t, "", "cancel", execRuns, execRust)
	if got.status != exitDenied || got.stdout != execRust+" canceled\n" || strings.Count(got.stderr, "denied") != 1 {
		t.Errorf("%+v", got)
	}
}

// rm --force ends first what has not ended.
func TestRemoveByForce(t *testing.T) {
	f := newFake(t)
	f.does(api.OpProcessCancel, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: api.ControlFinished}}})
	f.does(api.OpProcessDelete, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: api.ControlDeleted}}})
	got := f.run(t, "", "rm", "--force", execRuns)
	if got.status != 0 || got.stdout != execRuns+" deleted\n" || !strings.Contains(f.calls[0], "cancel") || !strings.Contains(f.calls[1], "delete") {
		t.Errorf("%+v %q", got, f.calls)
	}
}

// Completion offers what there is: what lives to cancel, all there is to logs.
func TestCompletion(t *testing.T) {
	f := registry(t)
	for _, row := range []struct {
		args    string
		want    []string
		without []string
	}{
		{"cancel ", []string{execRuns + "\trunning make -j2 test", execRust}, []string{execDone}},
		{"logs ", []string{execRuns, execDone, execGone}, nil},
		{"exec ", []string{sessionOne}, []string{sessionTwo, execRuns}},
		{"signal ", []string{sessionOne, execRuns}, nil},
		{"ps --session ", []string{sessionOne}, nil},
		{"frames ", []string{intentRuns}, nil},
		{"events --kind ", []string{"PROCESS_STATE"}, nil},
	} {
		got := f.run(t, "", append([]string{"__complete"}, strings.Split(row.args, " ")...)...)
		for _, w := range row.want {
			if !strings.Contains(got.stdout, w) {
				t.Errorf("%s: no %q in %q", row.args, w, got.stdout)
			}
		}
		for _, w := range row.without {
			if strings.Contains(got.stdout, w) {
				t.Errorf("%s: %q in %q", row.args, w, got.stdout)
			}
		}
	}
}

// What an operator asks (R134, R135).
func TestOperator(t *testing.T) {
	f := newFake(t)
	f.answers("GET /v1/quiescence", api.Quiescence{Draining: true, Sessions: 1, Executions: 1, Intents: []api.Intent{
		{IntentID: intentRuns, Op: api.OpExec, ExecID: execRuns, AdmittedAtNS: begun, AgeNS: 180e9, FrameSeq: 4, Principal: api.Principal{UID: 7, GID: 8, Scope: api.Scope{AgentID: "a"}}},
	}})
	f.answers("POST /v1/drain", api.Receipt{Op: api.OpDrain, IntentID: intentOpen, Outcome: api.OutcomeOK, Payload: api.Payload{Control: &api.ControlResult{Status: api.ControlDraining}}})
	f.answers("GET /v1/snapshot", api.Snapshot{Records: 12, Digest: "sha256:abc", SizeBytes: 2048})
	for _, row := range []struct {
		args   string
		status int
		stdout string
	}{
		{"quiescence", exitRunning, `not quiet, draining: 1 intent(s) in flight, 1 session(s), 1 execution(s)
INTENT                                                                   OPERATION  OUTCOME         ADMITTED             FRAMES  SUBJECT                       KEY  OWNER
sha256:1111111111111111111111111111111111111111111111111111111111111111  host.exec  in flight 3m0s  2023-11-14 22:13:20  4       x-runsbbbbbbbbbbbbbbbbbbbbbb       uid 7 gid 8 agent_id=a
`},
		{"drain --undo", 0, "draining\n"},
		{"snapshot", 0, "12 records  sha256:abc  2KiB\n"},
	} {
		got := f.run(t, "", strings.Fields(row.args)...)
		if diff := cmp.Diff(row.stdout, got.stdout); got.status != row.status || diff != "" {
			t.Errorf("%s: %+v%s", row.args, got, diff)
		}
	}
	if len(f.said("POST /v1/drain", `{"undo":true}`)) != 1 {
		t.Errorf("%q", f.calls)
	}
}

package supervisor

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Table 1.4: C6, C11, C12, R038, R039, R045–R049, R054, R064, R068.
// C21, pitfall 16 of part 4: what was required inline and is too large has its own code.
func TestHowCommandsEnd(t *testing.T) {
	for _, tt := range []struct {
		name    string
		x       api.Exec
		outcome api.Outcome
		receipt string // status for agent hosts
		status  string
		exit    int
		signal  string
		code    api.Code
		stdout  string
		wall    time.Duration
	}{
		{name: "exit 0", x: api.Exec{Argv: []string{"true"}}, outcome: "ok", receipt: "ok", status: "ok"},
		{name: "exit 3", x: api.Exec{Argv: []string{"exit", "3"}}, outcome: "ok", receipt: "ok", status: "ok", exit: 3},
		{name: "abort", x: api.Exec{Argv: []string{"abort"}}, outcome: "ok", receipt: "ok", status: "signaled", exit: -1, signal: "ABRT"},
		{name: "oom", x: api.Exec{Argv: []string{"hog"}}, outcome: "ok", receipt: "ok", status: "signaled", exit: -1, signal: "KILL", code: "oom_killed"},
		{name: "oom of a child", x: api.Exec{Argv: []string{"shhog"}}, outcome: "ok", receipt: "ok", status: "ok", exit: 137, code: "oom_killed"},
		{name: "timeout", x: api.Exec{Argv: []string{"sleep"}, TimeoutNS: int64(time.Second)},
			outcome: "ok", receipt: "timeout", status: "timeout", exit: -1, signal: "TERM", code: "timeout", stdout: "sleeping", wall: time.Second},
		{name: "timeout, TERM ignored", x: api.Exec{Argv: []string{"stubborn"}, TimeoutNS: int64(time.Second)},
			outcome: "ok", receipt: "timeout", status: "timeout", exit: -1, signal: "KILL", code: "timeout", wall: 3 * time.Second},
		{name: "timeout, exits 0 on TERM", x: api.Exec{Argv: []string{"polite"}, TimeoutNS: int64(time.Second)},
			outcome: "ok", receipt: "timeout", status: "timeout", exit: -1, signal: "TERM", code: "timeout", wall: time.Second},
		{name: "timeout of the grant", x: api.Exec{Argv: []string{"sleep"}},
			outcome: "ok", receipt: "timeout", status: "timeout", exit: -1, signal: "TERM", code: "timeout", stdout: "sleeping", wall: 10 * time.Second},
		{name: "timeout of the decision", x: api.Exec{Argv: []string{"sleep", "brief"}},
			outcome: "ok", receipt: "timeout", status: "timeout", exit: -1, signal: "TERM", code: "timeout", stdout: "sleeping", wall: time.Second},
		{name: "no such command", x: api.Exec{Argv: []string{"nope"}}, outcome: "faulted", receipt: "error", status: "error", exit: -1, code: "spawn_failed"},
		{name: "inline required", x: api.Exec{Argv: []string{"echo", "x"}, OutputMode: "require_inline"}, outcome: "ok", receipt: "ok", status: "ok", stdout: "x"},
		{name: "inline required, too large", x: api.Exec{Argv: []string{"flood", "20000"}, OutputMode: "require_inline"},
			outcome: "faulted", receipt: "error", status: "error", code: "inline_required_too_large"},
		{name: "inline required, blob obliged", x: api.Exec{Argv: []string{"echo", "asblob"}, OutputMode: "require_inline"},
			outcome: "denied", receipt: "error", status: "error", exit: -1, code: "inline_forbidden_by_policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				tt.x.SessionID = b.session()
				r := b.execute(tt.x)
				x := r.Payload.Exec
				if r.Outcome != tt.outcome || r.Status != tt.receipt || r.ErrorCode != tt.code || x.ErrorCode != tt.code {
					t.Errorf("outcome %s, status %s, code %s, payload code %s", r.Outcome, r.Status, r.ErrorCode, x.ErrorCode)
				}
				if x.Status != tt.status || x.ExitCode != tt.exit || x.Signal != tt.signal {
					t.Errorf("status %s, exit %d, signal %s", x.Status, x.ExitCode, x.Signal)
				}
				if got := text(x.Stdout); got != tt.stdout {
					t.Errorf("stdout %q", got)
				}
				if tt.wall != 0 && x.Usage.WallNS != int64(tt.wall) {
					t.Errorf("took %v", time.Duration(x.Usage.WallNS))
				}
				if x.EndedAtNS < x.StartedAtNS {
					t.Error("ended before it started")
				}
			})
		})
	}
}

func text(o *api.Output) string {
	switch {
	case o == nil:
		return ""
	case o.InlineText != nil:
		return o.InlineText.Text
	case o.InlineBytes != nil:
		return string(o.InlineBytes.Bytes)
	}
	return "blob " + o.Blob.BlobRef
}

// R058–R066, R048, R122: form, sizes and previews of outputs.
func TestOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()

		x := b.exec(id, "both").Payload.Exec
		if text(x.Stdout) != "out" || text(x.Stderr) != "err" {
			t.Errorf("%q %q", text(x.Stdout), text(x.Stderr))
		}
		if x = b.exec(id, "bytes").Payload.Exec; x.Stdout.InlineBytes == nil || x.Stderr != nil {
			t.Errorf("%+v", x.Stdout)
		}
		if x = b.exec(id, "flood", "16384").Payload.Exec; x.Stdout.InlineText == nil {
			t.Errorf("16384 bytes are not inline: %+v", x.Stdout)
		}
		x = b.exec(id, "flood", "16385").Payload.Exec
		if x.Stdout.Blob == nil || x.Stdout.Blob.SizeBytes != 16385 || string(x.Stdout.Blob.PreviewBytes) != string(pattern(512)) {
			t.Errorf("16385 bytes: %+v", x.Stdout)
		}
		if x = b.exec(id, "echo", "asblob").Payload.Exec; x.Stdout.Blob == nil || x.Stdout.Blob.SizeBytes != 6 {
			t.Errorf("obliged blob: %+v", x.Stdout)
		}

		// The output ceiling keeps the beginning and counts the rest.
		x = b.exec(id, "flood", "300000").Payload.Exec
		if x.Stdout.Blob == nil || x.Stdout.Blob.SizeBytes != 262144 || !x.Stdout.Truncated || x.Stdout.TotalBytes != 300000 || x.Status != "ok" {
			t.Errorf("beyond the ceiling: %+v", x.Stdout)
		}
		r := b.execute(api.Exec{SessionID: id, Argv: []string{"flood", "5000"}, Limits: api.Limits{OutputBytes: 1000}})
		if out := r.Payload.Exec.Stdout; out.InlineText == nil || len(out.InlineText.Text) != 1000 || out.TotalBytes != 5000 {
			t.Errorf("tightened: %+v", out)
		}

		r = b.execute(api.Exec{SessionID: id, Argv: []string{"flood", "20000"}, OutputMode: "require_inline"})
		if x := r.Payload.Exec; x.ExitCode != 0 || x.Stdout != nil || x.Overflow == nil || *x.Overflow != (api.Overflow{Stream: "stdout", SizeBytes: 20000, LimitBytes: 16384}) {
			t.Errorf("inline required: %+v", x)
		}
		r = b.execute(api.Exec{SessionID: id, Argv: []string{"flood", "20000"}, OutputMode: "require_inline", MaxInline: 30000})
		if x := r.Payload.Exec; x.Status != "ok" || len(text(x.Stdout)) != 20000 {
			t.Errorf("inline raised within the grant: %+v", x)
		}
	})
}

// R035, R037, R040–R043: what the command gets.
func TestWhatCommandsGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		put, err := b.PutBlob(t.Context(), &api.Request{Op: api.OpBlobPut, Principal: alice, Blob: &api.BlobPut{SizeBytes: 5}}, strings.NewReader("input"))
		if err != nil || put.Outcome != api.OutcomeOK {
			t.Fatal(put, err)
		}
		blob := put.Payload.Blob.BlobRef
		id := b.session(func(o *api.SessionOpen) {
			o.Target.Local.Env = map[string]api.EnvValue{"A": {Text: "session"}, "B": {Text: "session"}}
		})
		for _, tt := range []struct {
			name string
			x    api.Exec
			want string
		}{
			{"literal arguments", api.Exec{Argv: []string{"echo", "$HOME;id"}}, "$HOME;id"},
			{"workdir", api.Exec{Argv: []string{"pwd"}}, "/work"},
			{"relative cwd", api.Exec{Argv: []string{"pwd"}, Cwd: "a/../b"}, "/work/b"},
			{"absolute cwd", api.Exec{Argv: []string{"pwd"}, Cwd: "/tmp/x"}, "/tmp/x"},
			{"no stdin", api.Exec{Argv: []string{"cat"}}, ""},
			{"inline stdin", api.Exec{Argv: []string{"cat"}, Stdin: &api.Stdin{InlineText: &api.InlineText{Text: "text"}}}, "text"},
			{"byte stdin", api.Exec{Argv: []string{"cat"}, Stdin: &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: []byte("bytes")}}}, "bytes"},
			{"secret stdin", api.Exec{Argv: []string{"cat"}, Stdin: &api.Stdin{SecretText: &api.InlineText{Text: "s"}}}, "s"},
			{"blob stdin", api.Exec{Argv: []string{"cat"}, Stdin: &api.Stdin{BlobRef: &api.BlobRef{BlobRef: blob}}}, "input"},
			{"stdin_ref", api.Exec{Argv: []string{"cat"}, StdinRef: blob}, "input"},
			{"session env", api.Exec{Argv: []string{"env"}}, "A=session\nB=session\nFIXED=policy\nPATH=" + defaultPath},
			{"env patch", api.Exec{Argv: []string{"env"}, EnvPatch: map[string]api.EnvValue{"A": {Text: "patch"}, "B": {Unset: true}, "X_1": {Text: "new"}}},
				"A=patch\nFIXED=policy\nPATH=" + defaultPath + "\nX_1=new"},
		} {
			tt.x.SessionID = id
			if got := text(b.execute(tt.x).Payload.Exec.Stdout); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		if got := text(b.exec(id, "env").Payload.Exec.Stdout); !strings.HasPrefix(got, "A=session") {
			t.Errorf("the patch stayed: %q", got)
		}
	})
}

// R037, R041, R087, R088: the grant of the open bounds every execution.
func TestGrantBoundsExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		for _, tt := range []struct {
			code    api.Code
			subject string
			x       api.Exec
		}{
			{api.CodeCwdNotAllowed, "cwd:/etc", api.Exec{Cwd: "/etc"}},
			{api.CodeCwdNotAllowed, "cwd:/workshop", api.Exec{Cwd: "/workshop"}},
			{api.CodeCwdNotAllowed, "cwd:/etc", api.Exec{Cwd: "../etc"}},
			{api.CodeEnvVarNotAllowed, "env:LD_PRELOAD", api.Exec{EnvPatch: map[string]api.EnvValue{"LD_PRELOAD": {Text: "x"}}}},
			{api.CodeArgvLimit, "argv", api.Exec{Argv: make([]string, 101)}},
			{api.CodeArgLength, "argv/1", api.Exec{Argv: []string{"true", strings.Repeat("x", 10001)}}},
			{api.CodeOutputNotAllowed, "output:/etc/passwd", api.Exec{Outputs: []string{"/etc/passwd"}}},
		} {
			if tt.x.Argv == nil {
				tt.x.Argv = []string{"true"}
			}
			tt.x.Argv[0] = "true"
			tt.x.SessionID = id
			r := b.execute(tt.x)
			if r.Outcome != api.OutcomeDenied || r.Deny[0].Code != tt.code || r.Deny[0].Subject != tt.subject {
				t.Errorf("%s: %s %v", tt.subject, r.Outcome, r.Deny)
			}
		}
		if n := b.fake.called("start"); n != 0 {
			t.Errorf("%d commands were started", n)
		}
	})
}

// C17, R099: what a request loses is said.
func TestClamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		r := b.open(func(o *api.SessionOpen) { o.SessionTTLNS = int64(30 * time.Second) })
		id := r.SessionID
		r = b.execute(api.Exec{
			SessionID: id, Argv: []string{"true"}, TimeoutNS: int64(time.Hour), MaxInline: 2 << 20,
			Limits: api.Limits{OutputBytes: 1 << 30, MemoryBytes: 1 << 40},
		})
		want := []api.Clamp{
			{Field: "limits.output_bytes", Requested: 1 << 30, Effective: 256 << 10, Source: "policy"},
			{Field: "max_inline_bytes", Requested: 2 << 20, Effective: 32 << 10, Source: "policy"},
			{Field: "limits.memory_bytes", Requested: 1 << 40, Effective: 64 << 20, Source: "policy"},
			{Field: "timeout_ns", Requested: int64(time.Hour), Effective: int64(30 * time.Second), Source: "runtime"},
		}
		if diff := cmp.Diff(want, r.Clamped); diff != "" {
			t.Error(diff)
		}
	})
}

// Pitfall 7: what a command leaves behind with its pipe open does not hold the receipt.
func TestLeftoversDoNotHoldTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"background": "yes"} })
		began := time.Now()
		r := b.exec(id, "daemon")
		if text(r.Payload.Exec.Stdout) != "started" || time.Since(began) != drainBackground {
			t.Errorf("%+v after %v", r.Payload.Exec, time.Since(began))
		}
		b.close(id)
	})
}

// What a command has written is waited for, though what it leaves behind has its pipe, and however long a busy machine takes to take it out; but
// not what is written after it.
func TestLastWordsBesideLeftovers(t *testing.T) {
	logs, err := spool.Open(t.TempDir() + "/spool")
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("last words"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		x := &execution{log: logs.Create("x", 1000), plan: execPlan{exec: sandbox.Exec{Background: true}}}
		began := time.Now()
		const busy = 3 * time.Second
		go func() {
			time.Sleep(busy)
			_, _ = w.WriteString(", and others")
			w.Close()
			_ = x.log.Drain(spool.Stdout, r)
		}()
		x.await(make(chan struct{}), &sandbox.Process{Stdout: r, Stderr: io.NopCloser(strings.NewReader(""))})
		if took, has := time.Since(began), x.log.Total(spool.Stdout); took < busy || took > reapLimit || has < int64(len("last words")) {
			t.Errorf("%d bytes after %v", has, took)
		}
	})
}

// A tree that does not die, of a dead disk or a hung file system, does not hold its
// caller for ever.
func TestUndead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		began := time.Now()
		r := b.execute(api.Exec{SessionID: id, Argv: []string{"undead"}, TimeoutNS: int64(time.Second)})
		if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeWaitFailed || r.Payload.Exec.ExitCode != -1 {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took != time.Second+b.defaults.Grace+reapLimit+drainLimit {
			t.Errorf("took %v", took)
		}
		b.fake.lose()
	})
}

// The files that the caller wants come back as blobs; one that cannot is said.
func TestArtifacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		b.fake.artifact["/work/a"] = "content"
		id := b.session()
		r := b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, Outputs: []string{"/work/a", "/work/b"}})
		want := []api.Artifact{
			{Path: "/work/a", BlobRef: ledger.Digest([]byte("content")), SizeBytes: 7, Mode: 0o644},
			{Path: "/work/b", ErrorCode: api.CodePathNotFound},
		}
		if diff := cmp.Diff(want, r.Payload.Exec.Outputs); diff != "" {
			t.Error(diff)
		}
		if f, _, err := b.blobs.Open(want[0].BlobRef); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
	})
}

// T080, R056: a command that is kept from starting (its process was stopped before it
// executes, and init waits for it) costs its caller no more than its time, and its session
// can be closed.
func TestStartThatStalls(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		close   bool
		code    api.Code
		took    time.Duration
	}{
		{name: "timeout", timeout: time.Second, code: api.CodeTimeout, took: time.Second},
		{name: "no timeout to speak of", timeout: time.Minute, code: api.CodeSpawnFailed, took: startLimit},
		{name: "close", timeout: time.Minute, close: true, code: api.CodeSessionClosed, took: 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				id := b.session()
				killed := make(chan struct{})
				b.fake.hook = func(call string) {
					switch call {
					case "start true":
						<-killed
					case "kill":
						close(killed)
						b.fake.hook = nil
					}
				}
				if tt.close {
					go func() {
						time.Sleep(2 * time.Second)
						b.do(api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id, Mode: "force"}})
					}()
				}
				began := time.Now()
				r := b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, TimeoutNS: int64(tt.timeout)})
				if took := time.Since(began); r.ErrorCode != tt.code || took != tt.took {
					t.Errorf("%s after %v, want %s after %v", r.ErrorCode, took, tt.code, tt.took)
				}
				if r = b.close(id); r.Outcome != api.OutcomeOK {
					t.Errorf("close: %s %s", r.Outcome, r.ErrorCode)
				}
			})
		})
	}
}

// T041, R053: pipes that processes hand to each other do not collect in the supervisor.
func TestHeldPipesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		held := func(id string) int {
			s, err := b.registry.find(alice, id)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.pipes)
		}
		id := b.session()
		for range 10 {
			b.exec(id, "daemon")
		}
		if n := held(id); n != 0 {
			t.Errorf("%d pipes of commands of which nothing is left", n)
		}
		id = b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"background": "yes"} })
		for range 4 {
			if r := b.exec(id, "daemon"); r.Outcome != api.OutcomeOK {
				t.Fatal(r.ErrorCode)
			}
		}
		if r := b.exec(id, "daemon"); r.ErrorCode != api.CodeExecLimit || held(id) != 4 {
			t.Errorf("the fifth: %s, %d held", r.ErrorCode, held(id))
		}
	})
}

// R053, T127: artifacts are bounded in their sum, and what is beyond is said and not stored.
func TestArtifactsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		b.fake.artifact = map[string]string{"/work/a": strings.Repeat("a", 200<<10), "/work/b": strings.Repeat("b", 100<<10), "/work/c": "c"}
		r := b.execute(api.Exec{SessionID: b.session(), Argv: []string{"true"}, Outputs: []string{"/work/a", "/work/b", "/work/c"}})
		var got []api.Code
		for _, a := range r.Payload.Exec.Outputs {
			if (a.BlobRef == "") != (a.ErrorCode != "") {
				t.Errorf("%s: blob %q, code %q", a.Path, a.BlobRef, a.ErrorCode)
			}
			got = append(got, a.ErrorCode)
		}
		if want := []api.Code{"", api.CodeTooLarge, ""}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

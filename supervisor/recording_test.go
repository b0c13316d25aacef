package supervisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// cast is a recording as somebody asks for it.
func (b *bench) cast(exec string, input bool, who api.Principal) (string, *api.Receipt, error) {
	b.t.Helper()
	content, denial, err := b.OpenRecording(b.t.Context(), &api.Request{
		Op: api.OpShellRecording, Principal: who, Facade: "test", Read: &api.Read{ExecID: exec, Input: input},
	})
	if content == nil {
		return "", denial, err
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	if err != nil {
		b.t.Error(err)
	}
	return string(all), denial, nil
}

// events are those of one kind, and the text of all of them.
func events(t *testing.T, cast, kind string) (text string, n int) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSuffix(cast, "\n"), "\n")[1:] {
		var e [3]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e[1] == kind {
			text += e[2].(string)
			n++
		}
	}
	return text, n
}

// prompted opens a shell in a session, and waits for its prompt.
func (b *bench) prompted(session string) string {
	b.t.Helper()
	x := b.shell(session)
	b.idle(x)
	return x
}

// idle waits until a shell waits for its user.
func (b *bench) idle(x string) {
	b.t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if e := b.registry.execution(alice, api.ProcessRef{ExecID: x}); e == nil || e.shell.idle() {
			return
		}
		if time.Now().After(limit) {
			b.t.Fatal("the shell is not at its prompt")
		}
	}
}

// exits ends a shell and returns its receipt.
func (b *bench) exits(x string) *api.Receipt {
	b.t.Helper()
	b.types(x, "exit\n")
	return b.ends(x)
}

// R171: what a shell looked like is in its receipt by its digest, and is the same bytes for whoever asks. What was typed is for who asks
// for it, what is secret for nobody.
func TestRecordingReceipt(t *testing.T) {
	b := granting(t, map[string]string{`"exec": {`: `"record": {"bytes": 60000, "input": true},`})
	defer b.stop()
	x := b.prompted(b.session())
	b.types(x, "one\n")
	b.idle(x)
	b.do(api.Request{Op: api.OpShellInput, Keys: &api.ShellInput{
		ProcessRef: api.ProcessRef{ExecID: x}, Data: &api.Stdin{SecretText: &api.InlineText{Text: "hunter2\n"}},
	}})
	b.do(api.Request{Op: api.OpShellResize, Resize: &api.ShellResize{ProcessRef: api.ProcessRef{ExecID: x}, Cols: 100, Rows: 40}})
	live, _, err := b.cast(x, true, alice)
	if err != nil || live == "" {
		t.Fatal(err)
	}
	r := b.exits(x)
	rec := r.Payload.Exec.Recording
	if rec == nil || rec.Cast.InlineText == nil {
		t.Fatalf("%+v", r.Payload.Exec)
	}
	whole, _, err := b.cast(x, true, alice)
	sum := sha256.Sum256([]byte(whole))
	if err != nil || whole != rec.Cast.InlineText.Text || rec.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("%v: the receipt has %s %q, and it is %q", err, rec.Digest, rec.Cast.InlineText.Text, whole)
	}
	if rec.Truncated || !rec.Input || rec.Events != int64(strings.Count(whole, "\n")-1) {
		t.Errorf("%+v", rec)
	}
	out, _ := events(t, whole, "o")
	in, _ := events(t, whole, "i")
	sizes, _ := events(t, whole, "r")
	if in != "one\n[not recorded]exit\n" || sizes != "100x40" || !strings.Contains(out, "ran one\r\n") || strings.Contains(out, "]133;") {
		t.Errorf("%q %q %q", out, in, sizes)
	}
	if first, _ := events(t, live, "o"); !strings.HasPrefix(out, first) || first == "" {
		t.Errorf("while it lived it was %q", first)
	}
	without, _, err := b.cast(x, false, alice)
	if _, n := events(t, without, "i"); err != nil || n != 0 || len(without) >= len(whole) {
		t.Errorf("%v, %d", err, n)
	}
}

// What there is no room for is marked, in the recording and in its receipt: of the output, and of what is noted beside it.
func TestRecordingLimits(t *testing.T) {
	for _, row := range []struct {
		name, grant, marked string
		keys                string
		times               int
		input               bool
	}{
		{"output", `"record": {"bytes": 500},`, "bytes of output follow", "a\n", 20, false},
		{"input", `"record": {"bytes": 2000, "input": true},`, "sizes and input of here on were not recorded", "a", 100, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := granting(t, map[string]string{`"exec": {`: row.grant})
			defer b.stop()
			x := b.prompted(b.session())
			for range row.times {
				b.types(x, row.keys)
			}
			b.types(x, "\n")
			b.idle(x)
			r := b.exits(x)
			rec := r.Payload.Exec.Recording
			whole, _, err := b.cast(x, true, alice)
			marks, _ := events(t, whole, "m")
			typed, n := events(t, whole, "i")
			if err != nil || !rec.Truncated || !strings.Contains(marks, "truncated: ") || !strings.Contains(marks, row.marked) {
				t.Errorf("%v, %+v: %q", err, rec, marks)
			}
			if out, _ := events(t, whole, "o"); row.name == "output" && (len(out) == 0 || len(out) > 500) {
				t.Errorf("%d bytes of output", len(out))
			}
			if row.input != (n > 0) || n >= row.times || strings.Trim(typed, "a") != "" {
				t.Errorf("%d requests were recorded: %q", n, typed)
			}
		})
	}
}

// R129: what policy hides, what is another's, what is no shell and what was not recorded is not shown. What was recorded is shown when its
// session has ended, too.
func TestRecordingRefused(t *testing.T) {
	b := granting(t, map[string]string{`"exec": {`: `"record": {"bytes": 60000},`})
	defer b.stop()
	id := b.session()
	x := b.prompted(id)
	hidden, _, err := b.OpenShell(t.Context(), &api.Request{Op: api.OpShellOpen, Principal: alice, Facade: "test", Exec: &api.Exec{
		SessionID: id, Argv: []string{"bash"}, StdinOpen: true, Terminal: &api.Terminal{Cols: 80, Rows: 24}, Labels: map[string]string{"hidden": "yes"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	command := b.exec(id, "true").ExecID
	stranger := alice
	stranger.UID++
	for _, row := range []struct {
		name, exec string
		who        api.Principal
		code       api.Code // of an error; "" where it is denied
	}{
		{"hidden by policy", hidden.ExecID, alice, ""},
		{"another's", x, stranger, api.CodeExecNotFound},
		{"none", "x-none", alice, api.CodeExecNotFound},
		{"no shell", command, alice, errNoShell.Code},
	} {
		text, denial, err := b.cast(row.exec, true, row.who)
		if fault, _ := err.(*api.Error); text != "" || (row.code == "") != (denial != nil && denial.Outcome == api.OutcomeDenied) || row.code != "" && (fault == nil || fault.Code != row.code) {
			t.Errorf("%s: %q %+v %v", row.name, text, denial, err)
		}
	}
	b.close(id)
	if text, _, err := b.cast(x, true, alice); err != nil || !strings.Contains(text, `"o"`) {
		t.Errorf("after the end of its session: %q %v", text, err)
	}

	plain := start(t)
	defer plain.stop()
	y := plain.prompted(plain.session())
	for range 2 {
		if text, _, err := plain.cast(y, true, alice); err != errNotRecorded {
			t.Errorf("without a grant: %q %v", text, err)
		}
		if r := plain.exits(y); r != nil && r.Payload.Exec.Recording != nil {
			t.Errorf("%+v", r.Payload.Exec.Recording)
		}
	}
}

// R257: each line tells what it is about: the session, the execution and the intent, and of a shell the command.
func TestLogNamesWhatItIsAbout(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLog(&out, slog.LevelDebug, "json", &telemetry.Redactor{})
	if err != nil {
		t.Fatal(err)
	}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Log = log })
	opened := b.open()
	x := b.prompted(opened.SessionID)
	run := b.do(api.Request{Op: api.OpShellRun, Run: &api.ShellRun{ProcessRef: api.ProcessRef{ExecID: x}, Command: "one"}})
	shell := b.exits(x)
	command := b.exec(opened.SessionID, "false")
	denied := b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" })
	b.close(opened.SessionID)
	b.stop()

	type line struct {
		Msg       string      `json:"msg"`
		Session   string      `json:"session_id"`
		Exec      string      `json:"exec_id"`
		Intent    string      `json:"intent_id"`
		Command   string      `json:"command_id"`
		Status    string      `json:"status"`
		Op        api.Op      `json:"op"`
		Outcome   api.Outcome `json:"outcome"`
		ErrorCode api.Code    `json:"error_code"`
		UID       *uint32     `json:"uid"`
	}
	byIntent, commands := map[string][]line{}, map[string][]string{}
	for d := json.NewDecoder(&out); ; {
		var l line
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if l.Msg == "shell" {
			if l.Session != opened.SessionID || l.Exec != x || l.Intent != shell.IntentID {
				t.Errorf("%+v", l)
			}
			commands[l.Command] = append(commands[l.Command], l.Status)
			continue
		}
		if l.Op != "" {
			byIntent[l.Intent] = append(byIntent[l.Intent], l)
		}
	}
	if diff := cmp.Diff([]string{"BUSY", "IDLE"}, commands[run.Payload.Shell.CommandID]); diff != "" || run.Payload.Shell.CommandID == "" {
		t.Errorf("%q of %q: %s", run.Payload.Shell.CommandID, commands, diff)
	}
	for _, r := range []*api.Receipt{opened, run, shell, command, denied} {
		uid := alice.UID
		want := line{Session: r.SessionID, Exec: r.ExecID, Intent: r.IntentID, Op: r.Op, Outcome: r.Outcome, ErrorCode: r.ErrorCode, UID: &uid}
		got := byIntent[r.IntentID]
		if len(got) != 1 {
			t.Errorf("%s has %d lines", r.Op, len(got))
			continue
		}
		want.Msg, want.Status = got[0].Msg, got[0].Status
		if c := r.Payload.Shell; c != nil {
			want.Command = c.CommandID
		}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%s: %s", r.Op, diff)
		}
	}
}

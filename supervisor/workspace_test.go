package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// withOverlay mounts overlays at these paths inside.
func withOverlay(at ...string) func(*api.SessionOpen) {
	return func(o *api.SessionOpen) {
		for _, p := range at {
			o.Target.Local.Mounts = append(o.Target.Local.Mounts, api.Mount{HostPath: "/srv" + p, GuestPath: p, Mode: "overlay"})
		}
	}
}

func (b *bench) space(op api.Op, ask api.Workspace) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: op, Space: &ask})
}

func (b *bench) diff(ask api.Workspace) (*api.SpaceResult, *api.Receipt, error) {
	return b.Diff(context.Background(), &api.Request{Op: api.OpWorkspaceDiff, Principal: alice, Facade: "test", Space: &ask})
}

func (f *fake) change(paths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range paths {
		f.changes = append(f.changes, sandbox.Change{Path: p, Kind: "added", Type: "file", Mode: 0o644, Size: 1})
	}
}

// What an overlay has is read in pages, committed as a whole or by path, and discarded; each is one operation with one
// receipt, whoever asks for it again under its key.
func TestOverlay(t *testing.T) {
	b := start(t)
	defer b.stop()
	b.fake.change("a", "b", "c")
	id := b.session(withOverlay("/work"))
	var got []string
	for after, more := "", true; more; {
		page, denial, err := b.diff(api.Workspace{SessionID: id, After: after, Limit: 2})
		if denial != nil || err != nil || page.GuestPath != "/work" || page.Status != "ok" {
			t.Fatalf("%+v %+v %v", page, denial, err)
		}
		for _, c := range page.Changes {
			got = append(got, c.Kind+" "+c.Path)
			after = c.Path
		}
		more = page.More
	}
	if want := []string{"added a", "added b", "added c"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	commit := func(key string) *api.Receipt {
		return b.do(api.Request{Op: api.OpWorkspaceCommit, Key: key, Space: &api.Workspace{SessionID: id, Paths: []string{"a", "d"}}})
	}
	r := commit("once")
	want := &api.SpaceResult{Status: "committed", GuestPath: "/work", Applied: 3, Left: []string{"d"}}
	if diff := cmp.Diff(want, r.Payload.Space); r.Outcome != api.OutcomeOK || diff != "" {
		t.Errorf("%s %s %s", r.Outcome, r.ErrorMessage, diff)
	}
	if again := commit("once"); again.IntentID != r.IntentID || b.fake.called("commit") != 1 {
		t.Errorf("%s, %d commits", again.IntentID, b.fake.called("commit"))
	}
	if r := b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id, Paths: []string{"secret"}}); r.Outcome != api.OutcomeDenied || r.Payload.Space.Status != "error" {
		t.Errorf("%+v", r)
	}
	if r := b.space(api.OpWorkspaceDiscard, api.Workspace{SessionID: id, GuestPath: "/work"}); r.Payload.Space == nil || r.Payload.Space.Status != "discarded" {
		t.Errorf("%+v", r)
	}
	if page, _, err := b.diff(api.Workspace{SessionID: id}); err != nil || len(page.Changes) != 0 {
		t.Errorf("%+v %v", page, err)
	}
	b.close(id)
	if _, _, err := b.diff(api.Workspace{SessionID: id}); codeOf(err) != api.CodeSessionClosed {
		t.Errorf("%v", err)
	}
	if r := b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id}); r.ErrorCode != api.CodeSessionClosed || b.fake.called("commit") != 1 {
		t.Errorf("%+v", r)
	}
}

func codeOf(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

// The names of files are bytes that somebody inside has chosen: told, paged through, committed and judged as what they are.
func TestNamesAreBytes(t *testing.T) {
	b := start(t)
	defer b.stop()
	names := []string{"\x1b[2J", "a\nb", strings.Repeat("l", 255), "x\xfe", "x\xff", strings.Repeat("\xff", 255)}
	b.fake.change(names...)
	id := b.session(withOverlay("/work"))
	var got []string
	ask := api.Workspace{SessionID: id, Limit: 1}
	for more := true; more; {
		page, _, err := b.diff(ask)
		if err != nil || len(page.Changes) != 1 {
			t.Fatalf("%+v %v", page, err)
		}
		c := page.Changes[0]
		if _, err := api.Encode(page); err != nil {
			t.Errorf("%q: %v", c.Name(), err)
		}
		got, more = append(got, c.Name()), page.More
		ask.After, ask.AfterBytes = c.Path, c.PathBytes
	}
	if !slices.Equal(got, names) {
		t.Errorf("%q", got)
	}
	var space api.Workspace
	space.SessionID = id
	space.Paths, space.PathsBytes = api.SpellAll(append(names, "none\xff"))
	r := b.space(api.OpWorkspaceCommit, space)
	if s := r.Payload.Space; r.Outcome != api.OutcomeOK || s.Applied != int64(len(names)) || !slices.Equal(s.Left, []string{"none\uFFFD"}) {
		t.Errorf("%s %s %+v", r.Outcome, r.ErrorMessage, s)
	}
	// What policy reads is what is meant.
	space.Paths, space.PathsBytes = []string{"harmless"}, [][]byte{[]byte("secret")}
	if r := b.space(api.OpWorkspaceCommit, space); r.ErrorCode != api.CodeInvalidParams || b.fake.called("commit") != 1 {
		t.Errorf("%s %s", r.Outcome, r.ErrorCode)
	}
}

// Which overlay is meant is never guessed, and another principal's session is unknown.
func TestWhichOverlay(t *testing.T) {
	b := start(t)
	defer b.stop()
	one, two, none := b.session(withOverlay("/work")), b.session(withOverlay("/work", "/tmp/other")), b.session()
	for _, row := range []struct {
		session, path string
		code          api.Code
	}{
		{one, "", ""}, {one, "/work", ""}, {one, "/tmp", api.CodeNoOverlay},
		{two, "", api.CodeNoOverlay}, {two, "/tmp/other", ""},
		{none, "", api.CodeNoOverlay}, {none, "/work", api.CodeNoOverlay},
		{"s-unknown", "", api.CodeSessionNotFound},
	} {
		ask := api.Workspace{SessionID: row.session, GuestPath: row.path}
		if r := b.space(api.OpWorkspaceCommit, ask); r.ErrorCode != row.code {
			t.Errorf("commit %+v: %s %s", row, r.ErrorCode, r.ErrorMessage)
		}
		if _, _, err := b.diff(ask); codeOf(err) != row.code {
			t.Errorf("diff %+v: %v", row, err)
		}
	}
	stranger := api.Principal{UID: 1000, GID: 1000, Scope: api.Scope{AgentID: "b"}}
	if r := b.do(api.Request{Op: api.OpWorkspaceCommit, Principal: stranger, Space: &api.Workspace{SessionID: one}}); r.ErrorCode != api.CodeSessionNotFound {
		t.Errorf("%+v", r)
	}
	if _, _, err := b.Diff(t.Context(), &api.Request{Op: api.OpWorkspaceDiff, Principal: stranger, Space: &api.Workspace{SessionID: one}}); codeOf(err) != api.CodeSessionNotFound {
		t.Errorf("%v", err)
	}
}

// A commit that fails on its way says how much the source has.
func TestCommitFails(t *testing.T) {
	b := start(t)
	defer b.stop()
	id := b.session(withOverlay("/work"))
	for _, row := range []struct {
		err  error
		code api.Code
	}{
		{sandbox.Errorf(sandbox.CodeConflict, "a is a directory now"), api.CodeCommitConflict},
		{sandbox.Errorf(sandbox.CodeGone, "the connection to the runner is closed"), api.CodeRunnerUnavailable},
		{context.DeadlineExceeded, api.CodeRunnerFailed},
	} {
		b.fake.spaceErr = row.err
		r := b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id, Paths: []string{"a"}})
		if s := r.Payload.Space; r.Outcome != api.OutcomeFaulted || r.ErrorCode != row.code || s.Status != "partial" || s.Applied != 1 || s.ErrorCode != row.code {
			t.Errorf("%v: %s %s %s %+v", row.err, r.Outcome, r.ErrorCode, r.ErrorMessage, s)
		}
	}
}

// What was asked for and did not change is the caller's own words: a receipt holds the first of them, and no bytes that are
// not text.
func TestCommitLeavesMuch(t *testing.T) {
	left := slices.Repeat([]string{strings.Repeat("x", 4000) + "\xff"}, 4000)
	kept, dropped := some(left)
	if len(kept) != keptLeft || dropped != 4000-keptLeft || !strings.HasSuffix(kept[0], "\uFFFD") {
		t.Errorf("%d kept, %d dropped", len(kept), dropped)
	}
}

// An overlay is not taken from under a command. While one is committed nothing starts: what comes meanwhile starts
// afterwards, and the end of the session waits.
func TestNothingStartsDuringACommit(t *testing.T) {
	b := start(t)
	defer b.stop()
	id := b.session(withOverlay("/work"))
	x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
	if r := b.space(api.OpWorkspaceDiscard, api.Workspace{SessionID: id}); r.ErrorCode != api.CodeExecActive || b.fake.called("discard") != 0 {
		t.Errorf("%+v", r)
	}
	b.running(x.ExecID)
	committing, done := make(chan struct{}), make(chan struct{})
	b.fake.hook = func(call string) {
		if strings.HasPrefix(call, "commit") {
			close(committing)
			<-done
		}
	}
	var all sync.WaitGroup
	all.Go(func() { b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id}) })
	<-committing
	all.Go(func() {
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
	})
	time.Sleep(20 * time.Millisecond)
	if n := b.fake.called("start true"); n != 0 {
		t.Errorf("%d starts", n)
	}
	close(done)
	all.Wait()
	b.signal(id, "KILL")
}

// The end of a session gives a commit the grace that its commands have, and then cuts it short, which its receipt says.
func TestEndCutsCommit(t *testing.T) {
	b := start(t)
	defer b.stop()
	for _, row := range []struct {
		grace   time.Duration
		outcome api.Outcome
	}{{time.Minute, api.OutcomeOK}, {0, api.OutcomeFaulted}} {
		id := b.session(withOverlay("/work"))
		committing, done := make(chan struct{}), make(chan struct{})
		b.fake.slowly = func(ctx context.Context) error {
			close(committing)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-done:
				return nil
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			r := b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id})
			if r.Outcome != row.outcome || r.Outcome == api.OutcomeFaulted && (r.ErrorCode != api.CodeSessionClosed || r.Payload.Space.Status != "partial") {
				t.Errorf("grace %v: %s %s %+v", row.grace, r.Outcome, r.ErrorMessage, r.Payload.Space)
			}
		})
		<-committing
		all.Go(func() { b.signal(id, "TERM", row.grace) })
		if row.outcome == api.OutcomeOK {
			b.waitFor(func() bool { return b.inFlight() == 2 })
			close(done)
		}
		all.Wait()
	}
}

// running waits until the launcher has an execution.
func (b *bench) running(exec string) {
	b.t.Helper()
	for range 500 {
		if b.fake.process(exec) != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("%s does not start", exec)
}

// A policy that was written before there were overlays is asked nothing about them, and nothing is done.
func TestPolicyWithoutOverlays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := cloneWithout(testPolicy, "workspace.rego")
		b := startWith(t, old)
		defer b.stop()
		id := b.session(withOverlay("/work"))
		if r := b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: id}); r.Outcome != api.OutcomeDenied || r.ErrorCode != api.CodePolicyUndefined {
			t.Errorf("%s %s", r.Outcome, r.ErrorCode)
		}
	})
}

package supervisor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// shelf is where a test puts the policy.
type shelf struct {
	mu     sync.Mutex
	files  fstest.MapFS
	number int64
	tests  error // of the next ones
}

// put puts a policy there: the test policy, with other files.
func (s *shelf) put(number int64, other map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files, s.number = maps.Clone(testPolicy), number
	for name, text := range other {
		s.files[name] = &fstest.MapFile{Data: []byte(text)}
	}
}

func (s *shelf) policies() Policies {
	return Policies{
		Source: "/shelf",
		Open: func() (*bundle.Revision, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r, err := bundle.Of(s.files)
			if err == nil {
				r.Number, r.Source = s.number, "/shelf"
			}
			return r, err
		},
		Load: func(r *bundle.Revision) (Policy, error) { return rego.Load(r.FS, rego.Options{Deadline: time.Minute}) },
		Test: func(context.Context, *bundle.Revision) error { return s.tests },
	}
}

// startShelved starts on a policy that can be replaced.
func startShelved(t *testing.T) (*bench, *shelf) {
	t.Helper()
	s := &shelf{}
	s.put(1, nil)
	return startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Policies = s.policies() }), s
}

func (b *bench) activate(ask api.PolicyActivate) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: api.OpPolicyActivate, Activate: &ask})
}

func (b *bench) status() *api.PolicyStatus {
	b.t.Helper()
	s, denial, err := b.PolicyStatus(b.t.Context(), &api.Request{Op: api.OpPolicyStatus, Principal: alice, Read: &api.Read{}})
	if denial != nil || err != nil {
		b.t.Fatal(denial, err)
	}
	return s
}

// secondExec is the exec package of that policy: the test policy with a word more.
func secondExec() map[string]string {
	text := string(testPolicy["exec.rego"].Data)
	return map[string]string{"exec.rego": strings.Replace(text, `if not word in {"asblob",`, `if not word in {"second", "asblob",`, 1)}
}

// R110, C23: sessions are judged by the revision under which they were opened, also after a restart, and what is opened
// after an activation by the next. A revision that judges nothing is given up.
func TestSessionsKeepTheirRevision(t *testing.T) {
	b, s := startShelved(t)
	defer func() { b.stop() }()
	before := b.status().Active
	old := b.session()
	if r := b.exec(old, "echo", "second"); r.Outcome != api.OutcomeOK || r.Policy.Digest != before.Digest || r.Policy.Revision != 1 {
		t.Fatalf("%+v", r)
	}
	s.put(2, secondExec())
	r := b.activate(api.PolicyActivate{})
	if r.Outcome != api.OutcomeOK || r.Payload.Policy.Status != api.PolicyActivated || r.Payload.Policy.Previous != before.Digest || r.Policy.Digest != before.Digest {
		t.Fatalf("%+v %+v", r, r.Payload.Policy)
	}
	now := *r.Payload.Policy.Revision
	if now.Digest == before.Digest || now.Number != 2 || now.Contract != 1 || now.CapabilitiesDigest == "" || now.DataDigest == "" {
		t.Fatalf("%+v", now)
	}
	judged := func() {
		t.Helper()
		if r := b.exec(old, "echo", "second"); r.Outcome != api.OutcomeOK || r.Policy.Digest != before.Digest || r.Policy.Revision != 1 {
			t.Errorf("in the old session: %s %+v", r.Outcome, r.Policy)
		}
		id := b.session()
		if r := b.exec(id, "echo", "second"); r.Outcome != api.OutcomeDenied || r.Policy.Digest != now.Digest || r.Policy.Revision != 2 {
			t.Errorf("in a new one: %s %+v", r.Outcome, r.Policy)
		}
		if s := b.shown(id); s.PolicyDigest != now.Digest {
			t.Errorf("a new session says %s", s.PolicyDigest)
		}
		b.close(id)
		if st := b.status(); st.Active.Digest != now.Digest || len(st.Pinned) != 1 || st.Pinned[0].Digest != before.Digest || st.Pinned[0].Sessions != 1 || st.Highest != 2 {
			t.Errorf("%+v", st)
		}
	}
	judged()
	b = b.restart()
	judged()
	b.kill()
	b = startOn(t, b.fake, b.state, func(c *Config) { c.Policies = s.policies() })
	judged()
	b.close(old)
	if st := b.status(); len(st.Pinned) != 0 || len(b.policies.loaded) != 1 {
		t.Errorf("%+v, and %d are loaded", st, len(b.policies.loaded))
	}
	if r := b.activate(api.PolicyActivate{}); r.Payload.Policy.Status != api.PolicyUnchanged {
		t.Errorf("%+v", r.Payload.Policy)
	}
}

// What is not there any more cannot judge: the session ends, and nothing else does.
func TestARevisionIsLost(t *testing.T) {
	b, s := startShelved(t)
	old := b.session()
	digest := b.status().Active.Digest
	s.put(2, secondExec())
	b.activate(api.PolicyActivate{})
	kept := b.session()
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.state, "policy", strings.TrimPrefix(digest, "sha256:")+".zip")); err != nil {
		t.Fatal(err)
	}
	b = startOn(t, b.fake, b.state, func(c *Config) { c.Policies = s.policies() })
	defer b.stop()
	b.waitFor(func() bool { return b.shown(old).State == stateError })
	if s := b.shown(old); s.Reason != "policy_lost" {
		t.Errorf("%+v", s)
	}
	if r := b.exec(kept, "echo", "first"); r.Outcome != api.OutcomeOK {
		t.Errorf("%+v", r)
	}
}

// A candidate that is no policy changes nothing, and its fault is in the answer, the status and an event.
func TestRefusedCandidates(t *testing.T) {
	b, s := startShelved(t)
	defer func() { b.stop() }()
	s.put(5, nil)
	b.activate(api.PolicyActivate{})
	before := b.status().Active
	for name, row := range map[string]struct {
		put  func()
		ask  api.PolicyActivate
		want api.Code
		text string
	}{
		"does not parse": {func() { s.put(6, map[string]string{"x.rego": "package {"}) }, api.PolicyActivate{}, api.CodePolicyRefused, "x.rego:1"},
		"lacks a rule":   {func() { s.put(6, map[string]string{"read.rego": "package stockade.read"}) }, api.PolicyActivate{}, api.CodePolicyRefused, "data.stockade.read.decision"},
		"knows a future": {func() { s.put(6, map[string]string{"data.json": `{"stockade_contract": 99}`}) }, api.PolicyActivate{}, api.CodePolicyRefused, "contract 99"},
		"has no answer": {func() {
			s.put(6, map[string]string{"read.rego": "package stockade.read\n\ndecision := {\"allow\": true} if input.now_ns < 0"})
		}, api.PolicyActivate{}, api.CodePolicyRefused, "no answer"},
		"fails its tests":  {func() { s.put(6, secondExec()); s.tests = errors.New("test_x fails") }, api.PolicyActivate{}, api.CodePolicyRefused, "test_x fails"},
		"has other tests":  {func() { s.put(6, map[string]string{"x_test.rego": "package x"}); s.tests = errors.New("test_y fails") }, api.PolicyActivate{}, api.CodePolicyRefused, "test_y fails"},
		"is older":         {func() { s.put(4, secondExec()) }, api.PolicyActivate{}, api.CodePolicyRollback, "revision 4"},
		"has no number":    {func() { s.put(0, secondExec()) }, api.PolicyActivate{}, api.CodePolicyRollback, "no revision number"},
		"has a used one":   {func() { s.put(5, secondExec()) }, api.PolicyActivate{}, api.CodePolicyRollback, "another one"},
		"is not the meant": {func() { s.put(6, secondExec()) }, api.PolicyActivate{Digest: before.Digest}, api.CodePolicyChanged, "not the one"},
		"says nonsense":    {func() { s.put(6, map[string]string{"activation/data.json": `{"live": "freeze"}`}) }, api.PolicyActivate{}, api.CodePolicyRefused, "freeze"},
	} {
		s.tests = nil
		row.put()
		r := b.activate(row.ask)
		if r.Outcome != api.OutcomeFaulted || r.ErrorCode != row.want || !strings.Contains(r.ErrorMessage, row.text) || r.Payload.Policy.Status != api.PolicyRefused {
			t.Errorf("%s: %s %s %+v", name, r.ErrorCode, r.ErrorMessage, r.Payload.Policy)
		}
		st := b.status()
		if st.Active != before || st.Refused == nil || st.Refused.Code != row.want || len(b.policies.loaded) != 1 {
			t.Errorf("%s: %+v, %d loaded", name, st, len(b.policies.loaded))
		}
		if r := b.open(); r.Outcome != api.OutcomeOK || r.Policy.Digest != before.Digest {
			t.Errorf("%s: then an open is %s by %+v", name, r.Outcome, r.Policy)
		} else {
			b.close(r.SessionID)
		}
		if _, _, err := b.PolicyPreview(t.Context(), &api.Request{Op: api.OpPolicyPreview, Principal: alice, Activate: &row.ask}); code(err) != row.want {
			t.Errorf("%s: preview: %v", name, err)
		}
	}
	events := func(who api.Principal) (n int) {
		list, _, err := b.Events(t.Context(), &api.Request{Op: api.OpEvents, Principal: who, Read: &api.Read{Limit: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Events {
			if e.Kind == api.NoticePolicy && e.State == "refused" {
				n++
			}
		}
		return n
	}
	if n := events(alice); n != 11 {
		t.Errorf("%d refusals are told of", n)
	}
	// A directory that is being changed says the same again and again; once is enough. A signal is somebody's.
	s.tests = nil
	s.put(6, map[string]string{"x.rego": "package }"})
	was := events(ownPrincipal())
	for range 3 {
		b.Reload(t.Context(), TriggerFile)
	}
	if n := events(ownPrincipal()) - was; n != 1 {
		t.Errorf("%d of a file", n)
	}
	b.Reload(t.Context(), TriggerSignal)
	if n := events(ownPrincipal()) - was; n != 2 {
		t.Errorf("%d with a signal", n)
	}
	// What went away for good, a supervisor that is killed goes on without; one that ended in order does not start so.
	b.kill()
	b = startOn(t, b.fake, b.state, func(c *Config) { c.Policies = s.policies() })
	if st := b.status(); st.Active.Digest != before.Digest || st.Refused == nil || st.Refused.Trigger != "start" {
		t.Errorf("%+v", st)
	}
	b.stop()
	if _, err := New(t.Context(), Config{State: b.state, Launcher: b.fake, Policies: s.policies(), Log: testLog(t)}); err == nil || !strings.Contains(err.Error(), "x.rego:1") {
		t.Errorf("a start on what is no policy: %v", err)
	}
	s.put(6, nil)
	b = startOn(t, newFake(), b.state, func(c *Config) { c.Policies = s.policies() })
}

// R134, R135: activated strictly, a policy waits for no open intent, and the answer says whose they are.
func TestStrictActivation(t *testing.T) {
	b, s := startShelved(t)
	defer b.stop()
	id := b.session()
	run := b.launch(api.Exec{SessionID: id, Argv: []string{"stubborn"}})
	s.put(2, secondExec())
	before := b.status().Active.Digest
	r := b.activate(api.PolicyActivate{Strict: true})
	q := r.Payload.Policy.Blocking
	if r.ErrorCode != api.CodePolicyBlocked || r.Payload.Policy.Status != api.PolicyBlocked || q == nil || len(q.Intents) != 1 {
		t.Fatalf("%+v %+v", r, r.Payload.Policy)
	}
	if in := q.Intents[0]; in.IntentID != run.IntentID || in.Op != api.OpExec || in.Principal.UID != alice.UID || in.AgeNS <= 0 || in.ExecID != run.ExecID {
		t.Errorf("%+v", in)
	}
	if st := b.status(); st.Active.Digest != before || st.Highest != 1 {
		t.Errorf("%+v", st)
	}
	if p, _, err := b.PolicyPreview(t.Context(), &api.Request{Op: api.OpPolicyPreview, Principal: alice, Activate: &api.PolicyActivate{Strict: true}}); err != nil || p.Blocking == nil || len(p.Blocking.Intents) != 1 {
		t.Errorf("%+v %v", p, err)
	}
	b.cancelling(run.ExecID, 0)
	if r := b.activate(api.PolicyActivate{Strict: true}); r.Outcome != api.OutcomeOK || r.Payload.Policy.Status != api.PolicyActivated {
		t.Errorf("%+v %+v", r, r.Payload.Policy)
	}
	// Whatever begins at the same time: either it is there before and blocks, or it is judged by the new one.
	var blocked, done int
	for i := range 30 {
		s.put(int64(3+i), map[string]string{"data.json": fmt.Sprintf(`{"n": %d}`, i)})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" }) })
		}
		r := b.activate(api.PolicyActivate{Strict: true})
		wg.Wait()
		switch r.ErrorCode {
		case "":
			done++
		case api.CodePolicyBlocked:
			blocked++
		default:
			t.Errorf("%+v", r)
		}
	}
	t.Logf("%d were activated, %d blocked", done, blocked)
	if done == 0 {
		t.Error("strict activation is starved")
	}
}

// What becomes of sessions that would get less is the request's to say, else the operator's, else the policy's, for each profile.
// What can be taken from a live session is taken; of what cannot, the session ends.
func TestLiveSessions(t *testing.T) {
	lesser := func(change string, data string) map[string]string {
		text := string(testPolicy["open.rego"].Data)
		switch change {
		case "network":
			text = strings.Replace(text, `"allow": object.get(input.request.open.target.local, "egress", []),`,
				`"allow": [d | some d in object.get(input.request.open.target.local, "egress", []); d.name == "a.example"],`, 1)
		case "pids":
			text = strings.Replace(text, `"pids": 32`, `"pids": 16`, 1)
		case "more pids":
			text = strings.Replace(text, `"pids": 32`, `"pids": 64`, 1)
		case "denied":
			text = strings.Replace(text, `!= "forbidden"`, `== "another"`, 1)
		}
		return map[string]string{"open.rego": text, "activation/data.json": data}
	}
	for _, row := range []struct {
		change, data, flag, ask string
		verdict, action, status string
		state                   string
	}{
		{"network", `{}`, "", "", api.VerdictNarrower, "keep", "", stateReady},
		{"network", `{"live": "narrow"}`, "", "", api.VerdictNarrower, "narrow", "narrowed", stateReady},
		{"network", `{"live": "keep", "profiles": {"test": "terminate"}}`, "", "", api.VerdictNarrower, "terminate", "terminated", stateClosed},
		{"network", `{"live": "terminate"}`, "narrow", "", api.VerdictNarrower, "narrow", "narrowed", stateReady},
		{"network", `{"live": "terminate"}`, "terminate", "keep", api.VerdictNarrower, "keep", "", stateReady},
		{"pids", `{"live": "narrow"}`, "", "", api.VerdictNarrower, "terminate", "terminated", stateClosed},
		{"denied", `{}`, "", "narrow", api.VerdictDenied, "terminate", "terminated", stateClosed},
		{"denied", `{}`, "", "", api.VerdictDenied, "keep", "", stateReady},
		{"more pids", `{}`, "", "terminate", api.VerdictWider, "keep", "", stateReady},
		{"", `{}`, "", "terminate", api.VerdictSame, "keep", "", stateReady},
	} {
		t.Run(fmt.Sprint(row.change, row.data, row.flag, row.ask), func(t *testing.T) {
			s := &shelf{}
			s.put(1, nil)
			b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
				c.Policies = s.policies()
				c.Policies.Live = row.flag
			})
			defer b.stop()
			id := b.session(func(o *api.SessionOpen) {
				o.Target.Local.NetworkMode = "egress"
				o.Target.Local.Egress = []api.Destination{{Name: "a.example"}, {Name: "b.example"}}
			})
			s.put(2, lesser(row.change, row.data))
			ask := api.PolicyActivate{Live: row.ask}
			p, _, err := b.PolicyPreview(t.Context(), &api.Request{Op: api.OpPolicyPreview, Principal: alice, Activate: &ask})
			if err != nil || len(p.Sessions) != 1 || p.Sessions[0].Verdict != row.verdict || p.Sessions[0].Action != row.action {
				t.Fatalf("preview: %+v %v", p, err)
			}
			if row.verdict == api.VerdictNarrower && len(p.Sessions[0].Changes) == 0 || row.verdict == api.VerdictDenied && len(p.Sessions[0].Deny) == 0 {
				t.Errorf("preview says not why: %+v", p.Sessions[0])
			}
			if got := b.shown(id); got.State != stateReady || got.Narrowed != 0 {
				t.Fatalf("a preview did something: %+v", got)
			}
			r := b.activate(ask)
			if row.status == "" != (len(r.Payload.Policy.Sessions) == 0) || row.status != "" && r.Payload.Policy.Sessions[0].Status != row.status {
				t.Errorf("activate: %+v", r.Payload.Policy)
			}
			got := b.shown(id)
			if got.State != row.state || row.state == stateClosed && got.Reason != "policy" {
				t.Errorf("%+v", got)
			}
			want := 2
			if row.status == "narrowed" {
				want = 1
			}
			if n := len(got.Grant.Network.Allow); row.state == stateReady && n != want {
				t.Errorf("it reaches %+v", got.Grant.Network)
			}
		})
	}
}

// A session that is being opened while another policy becomes active is no way around what that says of sessions.
func TestOpenedMeanwhile(t *testing.T) {
	b, s := startShelved(t)
	defer b.stop()
	s.put(2, map[string]string{"open.rego": strings.Replace(string(testPolicy["open.rego"].Data), `"pids": 32`, `"pids": 16`, 1)})
	b.fake.mu.Lock()
	b.fake.hook = func(call string) {
		if call == "open" {
			b.fake.mu.Lock()
			b.fake.hook = nil
			b.fake.mu.Unlock()
			if r, err := b.Reload(context.Background(), TriggerSignal); err != nil || r.Status != api.PolicyActivated {
				t.Errorf("%+v %v", r, err)
			}
		}
	}
	b.fake.mu.Unlock()
	b.policies.from.Live = api.LiveTerminate
	id := b.session()
	b.waitFor(func() bool { return b.shown(id).State == stateClosed })
	if got := b.shown(id); got.Reason != "policy" {
		t.Errorf("%+v", got)
	}
}

// Issue 5: decisions under continuous hot reload. A writer replaces a signed directory file by file, without any care for who
// reads it, and has it read at any moment. Each receipt names one digest, of a revision that was whole; its reasons, which two
// files and the data say together, are all of that revision; and nothing is ever allowed, which the files would do without the last.
// Sessions that were opened before are judged by theirs throughout. 100,000 decisions with STOCKADE_SOAK=1.
func TestHotReload(t *testing.T) {
	decisions := 5_000
	if os.Getenv("STOCKADE_SOAK") != "" {
		decisions = 100_000
	}
	private, public, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := bundle.ParseKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "policy")
	var whole sync.Map // digest to name of the revision
	revisionOf := func(n int64) map[string][]byte {
		files := maps.Clone(testPolicy)
		name := fmt.Sprintf("r%d", n)
		files["open.rego"] = &fstest.MapFile{Data: []byte(`package stockade.open

decision := {"allow": true, "deny": [], "grant": {"root": "host", "mounts": [], "scratch": [], "identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 67108864, "cpu_millis": 1000, "pids": 32, "files": 256, "executions": 4, "output_bytes": 4096},
	"seccomp": "default", "network": {"mode": "none"}, "env": {}, "exec": {"max_timeout_ns": 60000000000, "default_timeout_ns": 60000000000},
	"workdir": "/tmp", "hostname": "", "profile": data.revision.name}} if not denied

decision := {"allow": false, "deny": [{"code": "` + name + `", "subject": data.revision.name, "message": data.stockade.reason.name}]} if denied

denied if data.stockade.reason.name

denied if input.request.open.labels.denied
`)}
		files["reason.rego"] = &fstest.MapFile{Data: []byte("package stockade.reason\n\nname := \"" + name + "\" if input.request.open.labels.denied")}
		files["revision/data.json"] = &fstest.MapFile{Data: []byte(`{"name": "` + name + `"}`)}
		tarball, _, err := bundle.Sign(files, n, private)
		if err != nil {
			t.Fatal(err)
		}
		r, err := bundle.Of(files)
		if err != nil {
			t.Fatal(err)
		}
		whole.Store(r.Digest, name)
		return untar(t, tarball)
	}
	write := func(files map[string][]byte) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			to := filepath.Join(dir, name)
			os.MkdirAll(filepath.Dir(to), 0o755)
			if err := os.WriteFile(to, files[name], 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	write(revisionOf(1))
	trust := bundle.Trust{Keys: []bundle.Key{key}, Owner: uint32(os.Getuid())}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
		c.Policies = Policies{
			Source: dir,
			Open:   func() (*bundle.Revision, error) { return bundle.Open(dir, trust) },
			Load:   func(r *bundle.Revision) (Policy, error) { return rego.Load(r.FS, rego.Options{Deadline: time.Minute}) },
		}
		c.Log = slog.New(slog.DiscardHandler)
	})
	defer b.stop()
	pinned := b.session()
	home := b.shown(pinned).PolicyDigest

	var taken, refused int
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := int64(2); ctx.Err() == nil; n++ {
			files := revisionOf(n)
			var reader sync.WaitGroup
			reader.Go(func() { // in the middle of it
				if _, err := b.Reload(context.Background(), TriggerFile); err != nil {
					refused++
				}
			})
			write(files)
			reader.Wait()
			if r, err := b.Reload(context.Background(), TriggerFile); err != nil {
				t.Errorf("revision %d: %v", n, err)
			} else if r.Status == api.PolicyActivated {
				taken++
			}
		}
	})
	var made, seen atomic.Int64
	var digests sync.Map
	var askers sync.WaitGroup
	for i := range 16 {
		askers.Go(func() {
			for made.Add(1) <= int64(decisions) {
				if i == 0 {
					if r := b.exec(pinned, "true"); r.Outcome != api.OutcomeOK || r.Policy.Digest != home {
						t.Errorf("in the session of before: %s by %s", r.Outcome, r.Policy.Digest)
					}
					continue
				}
				r := b.open(func(o *api.SessionOpen) { o.Labels = map[string]string{"denied": "yes"} })
				name, ok := whole.Load(r.Policy.Digest)
				if !ok || r.Outcome != api.OutcomeDenied || len(r.Deny) != 1 {
					t.Errorf("%s by %s (%v): %+v", r.Outcome, r.Policy.Digest, name, r.Deny)
					continue
				}
				if d := r.Deny[0]; string(d.Code) != name || d.Subject != name || d.Message != name || fmt.Sprint("r", r.Policy.Revision) != name {
					t.Errorf("%v says %+v, revision %d", name, d, r.Policy.Revision)
				}
				if _, again := digests.LoadOrStore(r.Policy.Digest, true); !again {
					seen.Add(1)
				}
			}
		})
	}
	askers.Wait()
	stop()
	writer.Wait()
	if seen.Load() < 3 || taken < 3 || refused == 0 {
		t.Errorf("%d revisions decided, %d were taken, %d half ones refused: that is no test", seen.Load(), taken, refused)
	}
	t.Logf("%d decisions by %d revisions; %d were activated, %d that were half there refused", decisions, seen.Load(), taken, refused)
	if n := len(b.policies.loaded); n > 2 {
		t.Errorf("%d revisions are loaded", n)
	}
	if err := b.policies.collect(); err != nil {
		t.Error(err)
	}
	if kept, err := b.policies.store.List(); err != nil || len(kept) > keptRevisions+2 {
		t.Errorf("%d are kept: %v", len(kept), err)
	}
	b.settledOnce()
}

func untar(t *testing.T, tarball []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// A policy that fixes itself cannot be replaced, and says so.
func TestFixedPolicy(t *testing.T) {
	b := start(t)
	defer b.stop()
	if r := b.activate(api.PolicyActivate{}); r.ErrorCode != api.CodePolicyFixed {
		t.Errorf("%+v", r)
	}
	if st := b.status(); st.Active.Digest != b.policies.digest() || st.Refused == nil {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(b.state, "policy")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

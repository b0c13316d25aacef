package supervisor

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// idling opens a session that ends after a minute without activity: 30 s after the warning.
func (b *bench) idling() string {
	return b.session(func(o *api.SessionOpen) {
		o.Labels = map[string]string{"idle": strconv.FormatInt(int64(time.Minute), 10)}
	})
}

// shown is a session without looking at it, which would be activity.
func (b *bench) shown(id string) api.Session {
	for _, ses := range b.registry.all() {
		if ses.id == id {
			return ses.document()
		}
	}
	return api.Session{}
}

// R021, R022, R023: without activity there is a warning, and after the grace the end.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.idling()
		opened := time.Now()
		ends := func() time.Duration { return time.Unix(0, b.shown(id).IdleAtNS).Sub(opened) }
		if got := ends(); got != 90*time.Second {
			t.Errorf("ends after %v", got)
		}
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if got := b.notices(id); len(got) != 1 {
			t.Errorf("early: %v", got)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if d := b.shown(id); d.State != stateReady {
			t.Errorf("early: %+v", d)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		d := b.shown(id)
		if d.State != stateClosed || d.Reason != "idle" || d.IdleAtNS != 0 || time.Unix(0, d.EndedAtNS).Sub(opened) != 90*time.Second {
			t.Errorf("%+v", d)
		}
		want := []string{"SESSION_STATE ready", "IDLE_WARNING", "IDLE_TIMEOUT", "SESSION_STATE closed"}
		if diff := cmp.Diff(want, b.notices(id)); diff != "" {
			t.Error(diff)
		}
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeSessionClosed {
			t.Errorf("%s", r.ErrorCode)
		}
		if b.fake.called("close") != 1 {
			t.Error("the sandbox was not closed once")
		}
	})
}

// R021: what counts as activity, before the warning and in the grace; and what does not.
func TestActivity(t *testing.T) {
	for _, tt := range []struct {
		name   string
		do     func(b *bench, id, ended string)
		active bool
	}{
		{"exec", func(b *bench, id, _ string) { b.exec(id, "true") }, true},
		{"an exec that is denied", func(b *bench, id, _ string) { b.exec(id, "true", "forbidden") }, true},
		{"get", func(b *bench, id, _ string) {
			b.Session(b.t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
		}, true},
		{"events", func(b *bench, id, _ string) {
			b.Events(b.t.Context(), &api.Request{Op: api.OpSessionEvents, Principal: alice, Read: &api.Read{SessionID: id}})
		}, true},
		{"get of an execution that has ended", func(b *bench, _, ended string) {
			b.Process(b.t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: &api.Read{ExecID: ended}})
		}, true},
		{"its output", func(b *bench, _, ended string) { b.outputOf(ended, cursor{}) }, true},
		{"control of it", func(b *bench, _, ended string) { b.control(api.OpProcessCancel, ended) }, true},
		{"nothing", func(*bench, string, string) {}, false},
		{"a list", func(b *bench, _, _ string) {
			b.Sessions(b.t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}})
		}, false},
		{"another session", func(b *bench, _, _ string) { b.exec(b.session(), "true") }, false},
		{"somebody else", func(b *bench, id, _ string) {
			b.do(api.Request{Op: api.OpExec, Principal: api.Principal{UID: 7}, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}}})
		}, false},
	} {
		for _, after := range []time.Duration{45 * time.Second, 75 * time.Second} { // before the warning, after it
			t.Run(tt.name+" after "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := start(t)
					defer b.stop()
					id := b.idling()
					ended := b.exec(id, "true").ExecID
					began := time.Now()
					time.Sleep(after)
					tt.do(b, id, ended)
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					want := 90 * time.Second
					if tt.active {
						want += after
					}
					if got := time.Unix(0, b.shown(id).EndedAtNS).Sub(began); got != want {
						t.Errorf("it ended after %v, not %v: %v", got, want, b.notices(id))
					}
				})
			})
		}
	}
}

// R021, R079: a running execution is activity, and frozen time is none; then the clock starts anew.
func TestBusyAndFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.idling()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"for", "50s"}})
		time.Sleep(time.Second)
		if d := b.shown(id); d.IdleAtNS != 0 {
			t.Errorf("%+v", d)
		}
		b.ends(x.ExecID)
		for range 3 {
			r := b.execute(api.Exec{SessionID: id, Argv: []string{"for", "55s"}, TimeoutNS: int64(time.Minute)})
			if r.Outcome != api.OutcomeOK || r.ErrorCode != "" {
				t.Fatalf("%+v", r)
			}
		}
		frozen := func(op api.Op) { b.do(api.Request{Op: op, Session: &api.SessionTarget{SessionID: id}}) }
		frozen(api.OpSessionPause)
		time.Sleep(30 * time.Minute)
		if d := b.shown(id); d.State != stateQuiesced || d.IdleAtNS != 0 {
			t.Errorf("%+v", d)
		}
		frozen(api.OpSessionResume)
		began := time.Now()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := time.Unix(0, b.shown(id).EndedAtNS).Sub(began); got != 90*time.Second {
			t.Errorf("%v", got)
		}
		if slices.Contains(b.notices(id)[:3], "IDLE_WARNING") {
			t.Errorf("%v", b.notices(id))
		}
	})
}

// After a restart the clock starts anew: nobody could be active while nobody served.
func TestIdleAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.idling()
		time.Sleep(50 * time.Second)
		b = b.restart()
		defer b.stop()
		began := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := time.Unix(0, b.shown(id).EndedAtNS).Sub(began); got != 90*time.Second {
			t.Errorf("%v", got)
		}
	})
}

// The grace can be set, and the end of a session by its owner comes before the one by idleness.
func TestIdleGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.IdleGrace = 5 * time.Second })
		defer b.stop()
		one, two := b.idling(), b.idling()
		began := time.Now()
		time.Sleep(62 * time.Second)
		b.close(two)
		time.Sleep(5 * time.Minute)
		if got := time.Unix(0, b.shown(one).EndedAtNS).Sub(began); got != 65*time.Second {
			t.Errorf("%v", got)
		}
		if d := b.shown(two); d.Reason != "closed" {
			t.Errorf("%+v", d)
		}
	})
}

// R173, R256: each ceiling that a session can come near says so, and what stands still is not looked at.
func TestThresholdOfEach(t *testing.T) {
	near := func(l *sandbox.Load, of string) {
		switch of {
		case "cpu_time":
			l.CPUNS = 96
		case "disk_bytes":
			l.DiskBytes = sandbox.Fill{Target: "/tmp", Used: 96, Limit: 100}
		case "disk_inodes":
			l.DiskInodes = sandbox.Fill{Target: "/tmp", Used: 96, Limit: 100}
		}
	}
	for _, of := range []string{"cpu_time", "disk_bytes", "disk_inodes"} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			defer b.stop()
			id := b.session()
			ses, _ := b.registry.find(alice, id)
			ses.mu.Lock()
			ses.grant.Ceilings.CPUTimeNS = 100
			ses.mu.Unlock()
			b.fake.mu.Lock()
			near(&b.fake.load, of)
			b.fake.mu.Unlock()
			x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
			ses.mu.Lock()
			ses.paused = true
			ses.mu.Unlock()
			time.Sleep(20 * time.Second)
			if n := b.fake.called("load"); n > 0 {
				t.Errorf("%d looks at a session that stands still", n)
			}
			ses.mu.Lock()
			ses.paused = false
			ses.mu.Unlock()
			time.Sleep(20 * time.Second)
			b.control(api.OpProcessCancel, x.ExecID)
			if diff := cmp.Diff([]string{"SESSION_STATE ready", "RESOURCE_THRESHOLD " + of}, only(b.notices(id))); diff != "" {
				t.Errorf("%s: %s", of, diff)
			}
			b.scraped(`stockade_resource_threshold_total{level="95",resource="` + of + `"} 1`)
		})
	}
}

// R173: likewise the output of an execution, and what was killed and does not end.
func TestThresholdOfExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sip", "9"}, StdinOpen: true, Stdin: &api.Stdin{InlineText: &api.InlineText{Text: "123456789"}}, TimeoutNS: int64(time.Minute)})
		synctest.Wait()
		b.registry.execution(alice, api.ProcessRef{ExecID: x.ExecID}).plan.output = 10
		time.Sleep(20 * time.Second)
		b.control(api.OpProcessCancel, x.ExecID)
		if diff := cmp.Diff([]string{"SESSION_STATE ready", "RESOURCE_THRESHOLD output_bytes"}, only(b.notices(id))); diff != "" {
			t.Error(diff)
		}
		b.execute(api.Exec{SessionID: id, Argv: []string{"undead"}, TimeoutNS: int64(time.Second)})
		synctest.Wait() // it is accounted behind the receipt
		if !slices.Contains(b.notices(id), "RESOURCE_THRESHOLD orphans") {
			t.Errorf("%v", b.notices(id))
		}
		b.scraped(`stockade_alerts_total{condition="orphans"} 1`)
		b.fake.lose()
	})
}

// A session near a ceiling says so once, again after it was far from it, and only while something runs.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		load := func(memory, pids int64) {
			b.fake.mu.Lock()
			b.fake.load.MemoryBytes, b.fake.load.PIDs = memory*67108864/100, pids*32/100
			b.fake.mu.Unlock()
			time.Sleep(6 * time.Second)
		}
		load(95, 95)
		if n := b.fake.called("load"); n != 0 {
			t.Errorf("%d looks at a session in which nothing runs", n)
		}
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
		b.do(api.Request{Op: api.OpProcessModify, Modify: &api.ProcessModify{ProcessRef: api.ProcessRef{ExecID: x.ExecID}, TimeoutNS: int64(time.Minute)}})
		time.Sleep(time.Second)
		for _, at := range [][2]int64{{50, 50}, {82, 50}, {96, 100}, {90, 100}, {96, 85}, {82, 50}, {96, 50}, {50, 50}} {
			load(at[0], at[1])
		}
		b.control(api.OpProcessCancel, x.ExecID)
		x = b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
		load(91, 0)
		b.fake.mu.Lock()
		b.fake.load.NetworkLost = true
		b.fake.mu.Unlock()
		load(91, 0)
		b.control(api.OpProcessCancel, x.ExecID)
		looks := b.fake.called("load")
		time.Sleep(time.Minute)
		if n := b.fake.called("load"); n > looks+1 {
			t.Errorf("%d looks after the end", n-looks)
		}
		want := []string{"SESSION_STATE ready", "RESOURCE_THRESHOLD memory", // 82
			"RESOURCE_THRESHOLD memory", "RESOURCE_THRESHOLD pids", // 96 and 100
			"RESOURCE_THRESHOLD memory", // 96 again, after 82
			"RESOURCE_THRESHOLD memory", // of the second
			"NETWORK_LOST network_failed"}
		if diff := cmp.Diff(want, b.notices(id)); diff != "" {
			t.Error(diff)
		}
		b.chronicle.read(func(s *ledger.State) {
			list, _, _ := s.Notices(ledger.OwnerOf(alice), id, 0, 1000)
			for _, n := range list {
				if n.Kind == api.NoticeThreshold && n.Detail == "" {
					t.Errorf("%+v", n)
				}
			}
		})
	})
}

package supervisor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// ended is how a fake command ends, with all that the layers say.
func ended(r sandbox.Result) func(*process) exit {
	return func(p *process) exit { p.says = &r; return exit{code: r.ExitCode, signal: r.Signal, oom: r.OOM} }
}

func init() {
	memory := sandbox.Hit{Ceiling: sandbox.HitMemory, Scope: "execution", Limit: 32 << 20, Peak: 32 << 20, Count: 1}
	shared := memory
	shared.Scope, shared.Limit = "session", 64<<20
	commands["bomb"] = ended(sandbox.Result{Signal: 9, OOM: true, Hits: []sandbox.Hit{memory}})
	commands["shbomb"] = ended(sandbox.Result{ExitCode: 137, OOM: true, Hits: []sandbox.Hit{memory}})
	commands["shchild"] = ended(sandbox.Result{ExitCode: 137, Hits: []sandbox.Hit{memory}})
	commands["shother"] = ended(sandbox.Result{ExitCode: 1, Hits: []sandbox.Hit{memory}})
	commands["neighbour"] = ended(sandbox.Result{ExitCode: 137, Hits: []sandbox.Hit{shared}})
	commands["burn"] = ended(sandbox.Result{Signal: 9, Hits: []sandbox.Hit{{Ceiling: sandbox.HitCPUTime, Scope: "execution", Limit: 1e9, Peak: 1e9 + 5}}})
	commands["fork"] = ended(sandbox.Result{ExitCode: 2, Hits: []sandbox.Hit{{Ceiling: sandbox.HitPIDs, Scope: "session", Limit: 32, Peak: 32, Count: 700}}})
	commands["forkwell"] = ended(sandbox.Result{Hits: []sandbox.Hit{{Ceiling: sandbox.HitPIDs, Scope: "session", Limit: 32, Peak: 32, Count: 700}}})
	commands["fill"] = ended(sandbox.Result{ExitCode: 1, Hits: []sandbox.Hit{
		{Ceiling: sandbox.HitDiskBytes, Scope: "session", Object: "/tmp", Limit: 1 << 20},
		{Ceiling: sandbox.HitDiskInodes, Scope: "session", Object: "/work", Limit: 1000},
	}})
	commands["cutoff"] = ended(sandbox.Result{ExitCode: 1, Denials: []sandbox.Denial{{Layer: "network", Rule: sandbox.RuleNetworkLost, Errno: "ECONNREFUSED", Count: 1}}})
	commands["reach"] = ended(sandbox.Result{ExitCode: 1, Dropped: 3, Network: sandbox.Traffic{Refused: 1, Sent: 7}, Denials: append(
		[]sandbox.Denial{{Layer: "network", Rule: "not granted", Object: "evil\xff\x1b[2J.example:443", Errno: "ECONNREFUSED", Grant: strings.Repeat("g", 4000), Count: 2, At: time.Unix(5, 0)}},
		make([]sandbox.Denial, 2*sandbox.MaxDenials)...)})
}

// R054, R113: which ceiling a command reached, what it was, how far the command came, and what would raise it. A ceiling that
// ended it is its error; one that did not leaves its end as it is, and no 137 without a word.
func TestLimitsHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(withOverlay("/work"))
		type seen struct {
			Status  string
			Exit    int
			Code    api.Code
			Message string // the beginning of it
			Hits    []string
		}
		open := " of the open asks for more; policy's grant (ceilings."
		for _, row := range []struct {
			argv []string
			want seen
		}{
			{[]string{"bomb"}, seen{"signaled", -1, api.CodeOOMKilled, "the execution reached its ceiling of memory, 33554432 bytes; limits.memory_bytes of the exec asks for more, up to the session's",
				[]string{"memory oom_killed execution 33554432 33554432 1"}}},
			{[]string{"shbomb"}, seen{"ok", 137, api.CodeOOMKilled, "the execution reached its ceiling of memory", []string{"memory oom_killed execution 33554432 33554432 1"}}},
			{[]string{"shchild"}, seen{"ok", 137, api.CodeOOMKilled, "the execution reached its ceiling of memory", []string{"memory oom_killed execution 33554432 33554432 1"}}},
			{[]string{"shother"}, seen{"ok", 1, "", "the execution reached its ceiling of memory", []string{"memory oom_killed execution 33554432 33554432 1"}}},
			{[]string{"neighbour"}, seen{"ok", 137, "", "the session reached its ceiling of memory, 67108864 bytes; limits.memory_bytes" + open + "memory_bytes) and the operator's ceiling (memory_bytes) bound it",
				[]string{"memory oom_killed session 67108864 33554432 1"}}},
			{[]string{"burn"}, seen{"signaled", -1, api.CodeCPUTimeExceeded, "the execution reached its ceiling of processor time, 1s; limits.cpu_time_ns of the exec",
				[]string{"cpu_time cpu_time_exceeded execution 1000000000 1000000005 0"}}},
			{[]string{"fork"}, seen{"ok", 2, "", "the session reached its ceiling of processes, 32; limits.pids" + open, []string{"pids pids_exceeded session 32 32 700"}}},
			{[]string{"forkwell"}, seen{"ok", 0, "", "", []string{"pids pids_exceeded session 32 32 700"}}},
			{[]string{"fill"}, seen{"ok", 1, "", "the session reached its ceiling of room, 1048576 bytes at /tmp; policy's grant says it (scratch/0/bytes)",
				[]string{"disk_bytes disk_exceeded session 1048576 0 0", "disk_inodes disk_exceeded session 1000 0 0"}}},
			{[]string{"flood", "300000"}, seen{"ok", 0, "", "", []string{"output_bytes output_exceeded execution 262144 300000 0"}}},
			{[]string{"false"}, seen{"ok", 1, "", "", nil}},
		} {
			r := b.execute(api.Exec{SessionID: id, Argv: row.argv})
			x := r.Payload.Exec
			got := seen{x.Status, x.ExitCode, x.ErrorCode, x.ErrorMessage, nil}
			for _, h := range x.LimitsHit {
				got.Hits = append(got.Hits, strings.Join([]string{h.Ceiling, string(h.Code), h.Scope, plain(h.Limit), plain(h.Peak), plain(h.Count)}, " "))
				if h.Hint == "" {
					t.Errorf("%v: no hint for %s", row.argv, h.Ceiling)
				}
			}
			if row.want.Message != "" && strings.HasPrefix(got.Message, row.want.Message) {
				got.Message = row.want.Message
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%v: %s", row.argv, diff)
			}
			if r.Outcome != api.OutcomeOK || r.ErrorCode != x.ErrorCode || r.ErrorMessage != x.ErrorMessage {
				t.Errorf("%v: the receipt says %s %s %q", row.argv, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
		}
		if x := b.execute(api.Exec{SessionID: id, Argv: []string{"fill"}}).Payload.Exec; x.LimitsHit[1].Hint != "inodes of the mount asks for more; policy's grant (mounts/0/inodes) bounds it" {
			t.Errorf("%+v", x.LimitsHit[1])
		}
		x := b.execute(api.Exec{SessionID: id, Argv: []string{"stubborn"}, TimeoutNS: 1e9}).Payload.Exec
		if h := find(x.LimitsHit, api.CodeTimeout); h == nil || h.Limit != 1e9 || h.Peak < 1e9 || !strings.HasPrefix(x.ErrorMessage, "the execution reached its ceiling of time, 1s; timeout_ns of the exec asks for more") {
			t.Errorf("%+v", x)
		}
	})
}

// What was refused at run time is in the receipt, bounded and as text, and of a command that failed also which layers could
// not have said so. One that did well is told nothing of them.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		b.fake.reports = map[string]string{"seccomp": "notification", "network": "relay", "mounts": "", "landlock": ""}
		b.fake.degraded = []string{"landlock"}
		id := b.session(withNetwork("egress", example))
		r := b.exec(id, "reach")
		x := r.Payload.Exec
		want := api.Denial{Layer: "network", Rule: "not granted", Object: "evil\uFFFD\x1b[2J.example:443", Errno: "ECONNREFUSED",
			Grant: strings.Repeat("g", keptObject) + "…", Count: 2, AtNS: 5e9, At: "1970-01-01T00:00:05Z"}
		if len(x.Denials) != sandbox.MaxDenials || x.Dropped != 3+1+sandbox.MaxDenials {
			t.Errorf("%d denials, %d dropped", len(x.Denials), x.Dropped)
		}
		if diff := cmp.Diff(want, x.Denials[0]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"landlock", "mounts"}, x.Silent); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(&api.Traffic{Refused: 1, Sent: 7}, x.Network); diff != "" {
			t.Error(diff)
		}
		b = b.restart()
		defer b.stop()
		if x := b.exec(id, "false").Payload.Exec; len(x.Silent) != 2 || x.Network == nil || len(x.Denials) != 0 {
			t.Errorf("after the restart: %+v", x)
		}
		if x := b.exec(id, "true").Payload.Exec; x.Silent != nil {
			t.Errorf("%+v", x)
		}
		d, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
		if err != nil || d.Network == nil || d.Network.Sent != 7 || len(d.Degraded) != 1 || len(d.Silent) != 2 || d.Events == 0 {
			t.Errorf("%+v %v", d, err)
		}
		list, _, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}})
		if err != nil || len(list.Sessions) != 1 || !cmp.Equal(list.Sessions[0], *d, cmpopts.IgnoreFields(api.Session{}, "IdleAtNS")) {
			t.Errorf("%+v %v", list, err)
		}
	})
}

// A session whose relay has died says so once, also when nobody had looked before its commands ended; it is no policy that refused
// them.
func TestNetworkLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(withNetwork("egress", example))
		for range 2 {
			if x := b.exec(id, "cutoff").Payload.Exec; len(x.Denials) != 1 || x.Denials[0].Rule != sandbox.RuleNetworkLost {
				t.Errorf("%+v", x)
			}
		}
		if diff := cmp.Diff([]string{"SESSION_STATE ready", "NETWORK_LOST network_failed"}, b.notices(id)); diff != "" {
			t.Error(diff)
		}
	})
}

// T037: what the kernel said at the open is in its receipt, what it goes without included.
func TestEvidence(t *testing.T) {
	e := sandbox.Enforced{
		Capabilities: 1 << 10, Landlock: 6, UserNS: 0, Devices: "bpf", Filter: "sha256:f", Network: []string{"link lo up"},
		Ceilings: []sandbox.CgroupFile{{Controller: "pids", File: "pids.max", Value: "48"}},
		Canaries: []sandbox.Canary{{Name: "connect out", Want: "ENETUNREACH", Got: "ENETUNREACH"}},
		Degraded: []string{"landlock"}, Reports: map[string]string{"mounts": ""}, Rlimits: map[string]uint64{"NOFILE": 9},
	}
	got := evidence(e)
	want := &api.Enforced{
		Capabilities: "400", Landlock: 6, Devices: "bpf", Filter: "sha256:f", Network: []string{"link lo up"},
		Ceilings: []api.CgroupFile{{Controller: "pids", File: "pids.max", Value: "48"}},
		Canaries: []api.Canary{{Name: "connect out", Want: "ENETUNREACH", Got: "ENETUNREACH"}},
		Degraded: []string{"landlock"}, Reports: map[string]string{"mounts": ""}, Rlimits: map[string]uint64{"NOFILE": 9},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

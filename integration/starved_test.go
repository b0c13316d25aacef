package integration

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// onlyInMachine leaves out what would harm a machine that is not ours alone.
func onlyInMachine(t *testing.T, harm string) {
	t.Helper()
	if os.Getenv("STOCKADE_MACHINE") == "" {
		t.Skip(harm + ": those of scripts/test-v2 are there for it, and fail without it")
	}
}

// T072: a session may have more memory than the machine, and takes it. The kernel, which has to end something, ends
// what takes it; supervisor, runner and the other sessions go on.
func TestStarvedMachine(t *testing.T) {
	onlyInMachine(t, "takes all the memory of the machine")
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		t.Fatal(err)
	}
	const most = 4 << 30 // of the profile's
	if machine.Totalram > most/2 {
		t.Fatalf("a machine with %d bytes is not starved by %d", machine.Totalram, most)
	}
	d := start(t)
	c := d.Client()
	other := opened(t, c, nil).SessionID
	daemon, runner := d.PID(), d.Runner()
	probes := shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	greedy := opened(t, c, func(o *api.SessionOpen) {
		o.Limits.MemoryBytes = most
		o.Target.Local.Mounts = []api.Mount{{HostPath: probes, GuestPath: "/mnt/probe", Mode: "ro"}}
	}).SessionID
	r, err := c.Exec(t.Context(), api.Exec{SessionID: greedy, Argv: []string{"/mnt/probe/probe", "memory-bomb", "16384"}})
	x := settled(t, r, err).Payload.Exec
	t.Logf("%s %s %s, peak %d bytes, of %d", x.Status, x.Signal, x.ErrorCode, x.Usage.PeakMemoryBytes, machine.Totalram)
	if x.Signal != "KILL" || hit(r, "memory") {
		t.Errorf("%+v", x)
	}
	for _, session := range []string{other, greedy} {
		x, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"echo", "alive"}})
		if got := printed(settled(t, x, err)); got != "alive" {
			t.Error(got)
		}
	}
	if d.PID() != daemon || d.Runner() != runner {
		t.Errorf("daemon %d and runner %d, before %d and %d", d.PID(), d.Runner(), daemon, runner)
	}
}

// stocked is more than the runner has ready of namespaces that were made beforehand.
const stocked = 20

// T075: the machine has room for no further namespace of a kind, or mount. An open is refused, leaves nothing, and works when there is room again.
// Control: that it does so before and after each.
func TestStarvedNamespaces(t *testing.T) {
	onlyInMachine(t, "changes what the kernel allows everybody")
	d := start(t)
	c := d.Client()
	open := func() *api.Receipt {
		r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == api.OutcomeOK {
			r, err := c.Close(t.Context(), api.SessionClose{SessionID: r.SessionID})
			settled(t, r, err)
		}
		return r
	}
	for setting, low := range map[string]string{
		"user/max_cgroup_namespaces": "0", "user/max_ipc_namespaces": "0", "user/max_mnt_namespaces": "0", "user/max_net_namespaces": "0", "user/max_pid_namespaces": "0",
		"user/max_time_namespaces": "0", "user/max_user_namespaces": "0", "user/max_uts_namespaces": "0", "fs/mount-max": "5",
	} {
		t.Run(setting, func(t *testing.T) {
			settled(t, open(), nil)
			path := filepath.Join("/proc/sys", setting)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			restore := func() {
				if err := os.WriteFile(path, before, 0o644); err != nil {
					t.Error(err)
				}
			}
			t.Cleanup(restore)
			if err := os.WriteFile(path, []byte(low), 0o644); err != nil {
				t.Fatal(err)
			}
			r := open()
			for n := 0; n < stocked && r.Outcome == api.OutcomeOK; n++ {
				r = open()
			}
			restore()
			if r.Outcome == api.OutcomeOK || r.ErrorCode == "" {
				t.Errorf("%s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
			t.Logf("%s %s: %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
			settled(t, open(), nil)
		})
	}
}

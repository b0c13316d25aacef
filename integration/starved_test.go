package integration

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// T072: a session may have more memory than the machine, and takes it. The kernel, which has to end something, ends
// what takes it; supervisor, runner and the other sessions go on.
func TestStarvedMachine(t *testing.T) {
	if os.Getenv("STOCKADE_MACHINE") == "" {
		t.Skip("takes all the memory of the machine: those of scripts/test-v2 are there for it, and fail without it")
	}
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

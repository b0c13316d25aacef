package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestNeighbours: while a session, or another user, floods, a session beside it works, and the daemon answers and stays small
// (T059 to T070). How long each takes is measured by make bench, where nothing else runs; the bounds here only tell slow from stuck.
func TestNeighbours(t *testing.T) {
	const (
		rounds   = 20
		patience = 10 * time.Second
		most     = 256 << 20
	)
	d, _ := startOutside(t)
	chmod(t, d.Socket, 0o666) // for the other user
	c := d.Client()
	n := neighbour{d, shared(t)}
	build(t, filepath.Join(n.probes, "probe"), "./probe")
	quiet := opened(t, c, nil).SessionID
	for _, flood := range []struct{ name, script string }{
		{"processes", "f() { while :; do sh -c : & done; wait; }; f"},
		{"memory", "while :; do head -c 2G /dev/zero | tail >/dev/null; done"},
		{"disk", "while :; do dd if=/dev/zero of=/tmp/fill bs=1M; rm -f /tmp/fill; done 2>/dev/null"},
		{"overlay", "while :; do dd if=/dev/zero of=/work/fill bs=1M; rm -f /work/fill; done 2>/dev/null"},
		{"output", "while :; do head -c 64M /dev/zero; done"},
		{"connections", "while :; do /mnt/probe/probe echo 10.2.0.1:7; /mnt/probe/probe echo 11.0.0.9:7; done >/dev/null"},
		{"refusals", "while :; do unshare -U true; done 2>/dev/null"},
		{"callers", ""},
	} {
		t.Run(flood.name, func(t *testing.T) {
			begin := n.callers
			if flood.script != "" {
				begin = func(t *testing.T) func() { return n.session(t, flood.script) }
			}
			defer begin(t)()
			time.Sleep(300 * time.Millisecond) // until it flows
			ctx, cancel := context.WithTimeout(t.Context(), rounds*patience)
			defer cancel()
			var pings, execs sample
			for range rounds {
				begin := time.Now()
				if _, err := c.Version(ctx); err != nil {
					t.Fatal(err)
				}
				pings.add(time.Since(begin))
				begin = time.Now()
				r, err := c.Exec(ctx, api.Exec{SessionID: quiet, Argv: []string{"echo", "here"}})
				if x := settled(t, r, err).Payload.Exec; x.ExitCode != 0 || text(x.Stdout) != "here\n" {
					t.Fatalf("%+v", x)
				}
				execs.add(time.Since(begin))
			}
			t.Logf("ping p50 %v, at most %v; exec p50 %v, at most %v", pings.at(0.5), pings.at(1), execs.at(0.5), execs.at(1))
			if pings.at(1) > patience || execs.at(1) > patience {
				t.Error("somebody waited for a neighbour")
			}
			if held, err := d.Memory(); err != nil || held > most {
				t.Errorf("the daemon has held %d MiB, %v", held>>20, err)
			}
		})
	}
}

// A neighbour is a bad one.
type neighbour struct {
	d      *testbox.Daemon
	probes string
}

// session runs a script in a session with small ceilings until it is stopped.
func (n neighbour) session(t *testing.T, script string) (stop func()) {
	c := n.d.Client()
	id := opened(t, c, func(o *api.SessionOpen) {
		o.Limits = api.Limits{CPUMillis: 500, MemoryBytes: 256 << 20, PIDs: 64}
		o.Target.Local.NetworkMode = "egress"
		o.Target.Local.Mounts = []api.Mount{
			{HostPath: n.probes, GuestPath: "/mnt/probe", Mode: "ro"}, {HostPath: shared(t), GuestPath: "/work", Mode: "overlay", Bytes: 64 << 20},
		}
	}).SessionID
	begun(t, c, api.Exec{SessionID: id, TimeoutNS: int64(time.Minute)}, script)
	return func() {
		r, err := c.Close(t.Context(), api.SessionClose{SessionID: id, Mode: "force"})
		settled(t, r, err)
	}
}

// callers are connections of another user's, which say nothing.
func (n neighbour) callers(t *testing.T) (stop func()) {
	cmd := exec.Command(filepath.Join(n.probes, "probe"), "flood-connections", n.d.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

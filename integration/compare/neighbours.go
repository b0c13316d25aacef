package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// floods are what a session, or a caller, may do to be a bad neighbour. A script runs, while the neighbour is
// measured, in a session with the default ceilings but for half a processor; one has all of them.
var floods = []struct {
	name, script string
	millis       int
}{
	{"processes", "f() { while :; do sh -c : & done; wait; }; f", 500},
	{"processor time", "for i in $(seq $(nproc)); do while :; do :; done & done; wait", 1000 * runtime.NumCPU()},
	{"memory", "while :; do head -c 2G /dev/zero | tail >/dev/null; done", 500},
	{"disk", "while :; do dd if=/dev/zero of=/tmp/fill bs=1M 2>/dev/null; rm -f /tmp/fill; done", 500},
	{"output", "while :; do cat /dev/zero | head -c 64M; done", 500},
	{"connections", "", 0},
}

// neighbours measures an execution in a quiet session, and the daemon's answer to a ping, beside each flood in turn.
func (b *bench) neighbours(d *testbox.Daemon) error {
	quiet, err := b.open()
	if err != nil {
		return err
	}
	measure := func(name, baseline string) error {
		for _, f := range []struct {
			name     string
			baseline string
			do       func() error
		}{
			{"neighbour's exec, " + name, baseline, func() error { return b.exec(quiet) }},
			{"ping, " + name, "", b.ping},
		} {
			took, err := b.repeat(b.n, f.do)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			b.figures = append(b.figures, summarize(f.name, f.baseline, took))
		}
		return nil
	}
	const idle = "neighbour's exec, idle"
	if err := measure("idle", ""); err != nil {
		return err
	}
	for _, flood := range floods {
		stop, err := b.nuisance(flood.script, flood.millis)
		if err != nil {
			return fmt.Errorf("flood of %s: %w", flood.name, err)
		}
		time.Sleep(500 * time.Millisecond) // until it flows
		err = measure("flood of "+flood.name, idle)
		stop()
		if err != nil {
			return err
		}
		held, err := d.Memory()
		if err != nil {
			return err
		}
		b.figures = append(b.figures, Figure{Name: "daemon after the flood of " + flood.name, N: 1, Bytes: held})
	}
	// The bar is of p99 to p99.
	for i := range b.figures {
		if b.figures[i].Baseline == idle {
			b.figures[i].P99s = true
		}
	}
	return nil
}

// ping asks on a connection of its own.
func (b *bench) ping() error {
	c := client.New(b.socket)
	defer c.CloseIdle()
	_, err := c.Version(b.ctx)
	return err
}

// repeat times n calls.
func (b *bench) repeat(n int, do func() error) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		begin := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// nuisance begins a flood, of connections where there is no script.
func (b *bench) nuisance(script string, millis int) (stop func(), err error) {
	ctx, cancel := context.WithCancel(b.ctx)
	if script == "" {
		// Of another user: each has connections of his own.
		if err := os.Chmod(b.socket, 0o666); err != nil {
			cancel()
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "-connect", b.socket)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
		if err := cmd.Start(); err != nil {
			cancel()
			return nil, err
		}
		return func() { cancel(); _ = cmd.Wait() }, nil
	}
	r, err := b.client.Open(b.ctx, api.SessionOpen{
		Profile: "workspace", Target: api.Target{Local: &api.Local{}}, Limits: api.Limits{CPUMillis: int64(millis), MemoryBytes: 256 << 20, PIDs: 64},
	})
	if err := settled(r, err); err != nil {
		cancel()
		return nil, err
	}
	session := r.SessionID
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := b.client.Exec(ctx, api.Exec{SessionID: session, Argv: []string{"sh", "-c", script}, TimeoutNS: int64(time.Minute)})
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Println("flood:", err)
		}
	}()
	return func() {
		_, _ = b.client.Close(b.ctx, api.SessionClose{SessionID: session, Mode: "force"})
		cancel()
		<-done
	}, nil
}

// connect floods a socket with connections, for ever.
func connect(socket string) {
	var held [64]net.Conn
	for i := 0; ; i++ {
		c, err := net.Dial("unix", socket)
		if err != nil {
			continue
		}
		if old := held[i%len(held)]; old != nil {
			old.Close()
		}
		held[i%len(held)] = c
	}
}

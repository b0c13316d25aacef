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

// floods are what a session may do to be a bad neighbour: its script runs, while the neighbour is
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
	{"connections", "for i in {1..40}; do while :; do : </dev/tcp/10.2.0.1/7; done & done 2>/dev/null; wait", 500},
}

// A stranger is another user who connects as fast as he can: to nothing of ours, which is what his own use of the processors
// costs his neighbours, and to the supervisor.
const (
	strangerElsewhere = "a stranger's connections elsewhere"
	strangerHere      = "a stranger's connections to us"
)

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
	before := len(b.figures)
	const idle = "neighbour's exec, idle"
	if err := measure("idle", ""); err != nil {
		return err
	}
	beside := func(name, baseline string, begin func() (stop func(), err error)) error {
		stop, err := begin()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		time.Sleep(500 * time.Millisecond) // until it flows
		err = measure(name, baseline)
		stop()
		if err != nil {
			return err
		}
		held, err := d.Memory()
		if err != nil {
			return err
		}
		b.figures = append(b.figures, Figure{Name: "daemon after " + name, N: 1, Bytes: held})
		return nil
	}
	for _, f := range floods {
		if err := beside("flood of "+f.name, idle, func() (func(), error) { return b.nuisance(f.script, f.millis) }); err != nil {
			return err
		}
	}
	if err := beside(strangerElsewhere, idle, func() (func(), error) { return b.stranger("@stockade-compare") }); err != nil {
		return err
	}
	if err := beside(strangerHere, "neighbour's exec, "+strangerElsewhere, func() (func(), error) { return b.stranger(b.socket) }); err != nil {
		return err
	}
	// The bar is of p99 to p99.
	for i := before; i < len(b.figures); i++ {
		if b.figures[i].Baseline != "" {
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

// nuisance begins a flood in a session of its own.
func (b *bench) nuisance(script string, millis int) (stop func(), err error) {
	r, err := b.client.Open(b.ctx, api.SessionOpen{
		Profile: "workspace", Target: api.Target{Local: &api.Local{NetworkMode: "egress"}},
		Limits: api.Limits{CPUMillis: int64(millis), MemoryBytes: 256 << 20, PIDs: 64},
	})
	if err := settled(r, err); err != nil {
		return nil, err
	}
	session := r.SessionID
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := b.client.Exec(ctx, api.Exec{SessionID: session, Argv: []string{"bash", "-c", script}, TimeoutNS: int64(time.Minute)})
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

// stranger begins a flood of connections by another user: each has connections of his own.
func (b *bench) stranger(socket string) (stop func(), err error) {
	if err := os.Chmod(b.socket, 0o666); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, "/proc/self/exe", "-connect", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}

// connect floods a socket with connections, for ever. An abstract one it answers itself, as the supervisor answers
// a flood: it turns everybody away, on a thread that yields.
func connect(socket string) {
	if socket[0] == '@' {
		ln, err := net.Listen("unix", socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(1)
		}
		go turnAway(ln)
	}
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

// turnAway closes whatever connects.
func turnAway(ln net.Listener) {
	runtime.LockOSThread()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10)
	for {
		if c, err := ln.Accept(); err == nil {
			c.Close()
		}
	}
}

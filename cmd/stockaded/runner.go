package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/sandbox/launch"
)

// runtimeDir holds what a started runner needs while it lives: one directory per
// instance. It is not below the state directory, which nobody else may enter, because
// the roots of sessions are entered by their own users.
const runtimeDir = "/run/stockade"

// startLimit is how long a runner may take to answer: to probe the host, sweep what an
// earlier one left, and listen.
const startLimit = 30 * time.Second

// runner is the connection to stockade-run and, if we started it, its process.
type runner struct {
	*launch.Runner
	child *child // nil when it is not ours
}

// child is a process whose end is known.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done is closed
}

// connect reaches the runner that the flags name, or starts one.
func (c *config) connect(ctx context.Context, state string, stderr io.Writer) (*runner, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if c.runner != "" {
		r, err := launch.Dial(ctx, c.runner)
		if err != nil {
			return nil, fmt.Errorf("runner %s: %w", c.runner, err)
		}
		return &runner{Runner: r}, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a runner takes root; start stockade-run as root and say --runner SOCKET")
	}
	socket, child, err := c.start(state, stderr)
	if err != nil {
		return nil, fmt.Errorf("start the runner: %w", err)
	}
	r, err := child.dial(ctx, socket)
	if err != nil {
		child.end()
		return nil, fmt.Errorf("runner: %w", err)
	}
	return &runner{Runner: r, child: child}, nil
}

// start starts stockade-run for this state directory and nobody else.
func (c *config) start(state string, stderr io.Writer) (socket string, _ *child, err error) {
	program, err := find(c.runnerBinary, "stockade-run")
	if err != nil {
		return "", nil, err
	}
	initProgram, err := find(c.initBinary, "stockade-init")
	if err != nil {
		return "", nil, err
	}
	name := instance(state)
	dir := filepath.Join(runtimeDir, name)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", nil, err
	}
	// A name of this start's own: an earlier runner may still be clearing up behind its.
	socket = filepath.Join(dir, "runner-"+strconv.Itoa(os.Getpid())+".sock")
	args := []string{"--socket", socket, "--uid", strconv.Itoa(os.Geteuid()), "--state", dir,
		"--instance", name, "--init", initProgram, "--follow", "--hold", "0"}
	if c.ceiling != "" {
		args = append(args, "--ceiling", c.ceiling)
	}
	if c.cgroupParent != "" {
		args = append(args, "--cgroup-parent", c.cgroupParent)
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	// A group of its own: a terminal's Ctrl-C is for us, who end it in order. There is no
	// Pdeathsig, which follows the thread; --follow ends it with our connection.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	p := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		os.Remove(socket) // a runner that was killed has left it
		close(p.done)
	}()
	return socket, p, nil
}

// dial connects as soon as the runner listens.
func (p *child) dial(ctx context.Context, socket string) (*launch.Runner, error) {
	for {
		r, err := launch.Dial(ctx, socket)
		if err == nil {
			return r, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("it ended at once: %v", p.err)
		case <-ctx.Done():
			return nil, fmt.Errorf("it does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// close ends the connection, and with it every session and a runner of ours.
func (r *runner) close() {
	r.Disconnect()
	if r.child != nil {
		r.child.end()
	}
}

// end waits for the runner, which sees the end of the connection; it is asked, and
// then told, when it does not.
func (p *child) end() {
	for _, last := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{0, 5 * time.Second}, {syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, time.Minute}} {
		if last.signal != 0 {
			p.cmd.Process.Signal(last.signal)
		}
		select {
		case <-p.done:
			return
		case <-time.After(last.patience):
		}
	}
}

// instance names what belongs to a state directory: cgroups, directories. Two
// supervisors on one host have two.
func instance(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:6])
}

// find returns the program that a flag names, or the one beside this program, or the
// one in PATH. What was built together belongs together.
func find(flag, name string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside stockaded nor in PATH", name)
	}
	return filepath.Abs(path)
}

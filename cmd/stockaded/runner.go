package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/launch"
)

// runtimeDir holds what a started runner needs while it lives: one directory per
// instance. It is not below the state directory, which nobody else may enter, because
// the roots of sessions are entered by their own users.
const runtimeDir = "/run/stockade"

// startLimit is how long a runner may take to answer: to probe the host, sweep what an
// earlier one left, and listen.
const startLimit = 30 * time.Second

// runner is the connection to stockade-run.
type runner struct {
	*launch.Runner
	ours *os.File // pidfd of one that follows us; nil for one that is the operator's
}

// connect reaches the runner that the flags name, or the one that an earlier daemon of this
// state directory left with its sessions, or starts one.
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
	dir := filepath.Join(runtimeDir, instance(state))
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("start the runner: %w", err)
	}
	r, err := c.own(ctx, dir, stderr)
	if err != nil {
		_ = os.Remove(dir) // where no runner has put anything
		return nil, err
	}
	return r, nil
}

// own reaches the runner of a directory of ours, or starts it.
func (c *config) own(ctx context.Context, dir string, stderr io.Writer) (*runner, error) {
	socket := filepath.Join(dir, "runner.sock")
	// An earlier one may be there and serve us, or be there and on its way out: then it neither
	// answers nor lets another begin, for a moment.
	for {
		r, err := follow(ctx, socket)
		if err == nil {
			return r, nil
		}
		alone := unused(dir)
		started, err := c.start(socket, dir, stderr)
		if err != nil {
			return nil, fmt.Errorf("start the runner: %w", err)
		}
		r, err = started.dial(ctx, socket)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil || alone { // what ended it would end the next one too
			started.cmd.Process.Kill()
			return nil, fmt.Errorf("runner: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// unused reports whether no runner has a directory: each holds a lock on its own as long as it is there.
func unused(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// follow connects to a runner that ends when we leave it nothing.
func follow(ctx context.Context, socket string) (*runner, error) {
	r, err := launch.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(r.PID(), 0)
	if err != nil {
		r.Disconnect()
		return nil, fmt.Errorf("pidfd of the runner: %w", err)
	}
	ours := os.NewFile(uintptr(pidfd), "runner")
	// Had it ended meanwhile, its number could be another's, whom we would kill one day. It answers: it has not.
	if _, err := r.Sessions(ctx); err != nil {
		ours.Close()
		r.Disconnect()
		return nil, err
	}
	return &runner{Runner: r, ours: ours}, nil
}

// makeDir makes the directory in which our runner listens, and refuses one in which somebody else could have put
// a socket of his own.
func makeDir(dir string) error {
	for _, dir := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		if !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s (%v) is not a directory that only this user can write", dir, info.Mode())
		}
	}
	return nil
}

// child is a runner that we have started and that has not answered yet.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done is closed
}

// start starts stockade-run for this state directory and nobody else.
func (c *config) start(socket, dir string, stderr io.Writer) (*child, error) {
	program, err := find(c.runnerBinary, "stockade-run")
	if err != nil {
		return nil, err
	}
	initProgram, err := find(c.initBinary, "stockade-init")
	if err != nil {
		return nil, err
	}
	args := []string{"--socket", socket, "--uid", strconv.Itoa(os.Geteuid()), "--state", dir,
		"--instance", filepath.Base(dir), "--init", initProgram, "--follow", "--hold", c.hold.String()}
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
	// Pdeathsig: it follows the thread, and the runner is to outlive us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// dial connects as soon as the runner listens.
func (p *child) dial(ctx context.Context, socket string) (*runner, error) {
	for {
		r, err := follow(ctx, socket)
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

// close ends the connection. A runner that follows us ends when it holds nothing, which is
// waited for; it is asked, and then told, when it does not.
func (r *runner) close() {
	r.Disconnect()
	if r.ours == nil {
		return
	}
	defer r.ours.Close()
	for _, last := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{0, 5 * time.Second}, {unix.SIGTERM, 5 * time.Second}, {unix.SIGKILL, time.Minute}} {
		if last.signal != 0 {
			_ = unix.PidfdSendSignal(int(r.ours.Fd()), last.signal, nil, 0)
		}
		if exited(r.ours, last.patience) {
			return
		}
	}
}

// exited waits for the end of a process.
func exited(pidfd *os.File, patience time.Duration) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	deadline := time.Now().Add(patience)
	for {
		n, err := unix.Poll(poll, int(max(0, time.Until(deadline).Milliseconds())))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// instance names what belongs to a state directory: cgroups, directories. Two
// supervisors on one host have two.
func instance(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:6])
}

// places are where the other programs are, seen from this one: beside it, or installed.
var places = []string{".", "../libexec/stockade"}

// find returns the program that a flag names, or the one that was built or installed with this program, or the
// one in PATH. What was built together belongs together.
func find(flag, name string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	if self, err := os.Executable(); err == nil {
		for _, place := range places {
			path := filepath.Join(filepath.Dir(self), place, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside stockaded, nor in ../libexec/stockade, nor in PATH", name)
	}
	return filepath.Abs(path)
}

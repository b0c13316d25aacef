package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/server"
)

// The socket comes from whoever started us, if it says so: a service manager
// (sd_listen_fds(3)), or this program before it executed its successor. Nobody who connects in
// between is refused: the kernel has them wait.
const (
	firstFD   = 3 // SD_LISTEN_FDS_START
	envCount  = "LISTEN_FDS"
	envTarget = "LISTEN_PID"
	envNames  = "LISTEN_FDNAMES"
	ourName   = "stockaded.self"
)

// listen returns the socket that we were given, or makes one.
func (c *config) listen() (net.Listener, error) {
	if os.Getenv(envTarget) != strconv.Itoa(os.Getpid()) {
		return server.Listen(c.socket)
	}
	if n := os.Getenv(envCount); n != "1" {
		return nil, fmt.Errorf("%s is %q: one socket is served", envCount, n)
	}
	ours := os.Getenv(envNames) == ourName
	for _, name := range []string{envTarget, envCount, envNames} {
		os.Unsetenv(name)
	}
	unix.CloseOnExec(firstFD)
	return server.Inherit(os.NewFile(firstFD, "socket"), c.socket, ours)
}

// program is what SIGHUP executes: the name by which we were started, found before another
// file had it.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return path
}

// readyLimit is how long looking may take: the tests of a policy from elsewhere are run.
const readyLimit = time.Minute

// ready asks the program that is going to succeed us whether it can run at all, and looks at what it is going to read.
func (c *config) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := c.understands(ctx); err != nil {
		return err
	}
	if err := c.reread(ctx); err != nil {
		return fmt.Errorf("read again: %w", err)
	}
	return nil
}

// formats are the versions of what this program exchanges with others that live on when it is replaced. The runner's --check has the same name for it.
type formats struct {
	Launch int // of the messages with the runner
}

// printFormats says them.
func printFormats(w io.Writer) error {
	out, err := json.Marshal(formats{launch.Version})
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", out)
	}
	return err
}

// understands asks our successor whether it speaks as the runner does that we are connected with, and so as we do: it would be refused
// there, and every session would end.
func (c *config) understands(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.program, "--formats").Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			out = ended.Stderr
		}
		return fmt.Errorf("%s --formats: %w: %.200s", c.program, err, out)
	}
	var next formats
	if err := json.Unmarshal(out, &next); err != nil {
		return fmt.Errorf("%s --formats: %w: %.200q", c.program, err, out)
	}
	if next.Launch != launch.Version {
		return fmt.Errorf("%s speaks version %d with the runner, which speaks %d: SIGUSR2 has this program leave its sessions to the runner, and docs/upgrade.md says what follows", c.program, next.Launch, launch.Version)
	}
	return nil
}

// succeed leaves everything that lives to the runner, and executes the program that now is where
// this one was started from, in this process. It returns if that fails, or if somebody has it leave meanwhile.
func (c *config) succeed(ctx context.Context, said *orders, srv *server.Server, sup *supervisor.Supervisor, ln net.Listener, runner *runner) error {
	socket, err := server.Keep(ln)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.drain)
		defer cancel()
		return errors.Join(err, sup.Close(ctx))
	}
	if err := c.leave(srv, sup, runner); err != nil {
		return err
	}
	if said.toLeave() {
		return nil
	}
	if err := pass(socket, ourName); err != nil {
		return err
	}
	said.handOver(ctx)
	err = unix.Exec(c.program, os.Args, os.Environ())
	return fmt.Errorf("execute %s: %w", c.program, err)
}

// leave leaves everything that lives to the runner, which holds it for a while.
func (c *config) leave(srv *server.Server, sup *supervisor.Supervisor, runner *runner) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.drain)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Shutdown(ctx) }()
	err := errors.Join(sup.Leave(ctx), <-stopped)
	runner.Disconnect()
	return err
}

// pass has the program that this process executes next take the socket over.
func pass(socket *os.File, name string) error {
	if err := place(socket); err != nil {
		return fmt.Errorf("keep the socket: %w", err)
	}
	os.Setenv(envCount, "1")
	os.Setenv(envTarget, strconv.Itoa(os.Getpid()))
	os.Setenv(envNames, name)
	return nil
}

// place puts the socket where its successor looks for it. Where that is taken, it is by something that
// ends with this program, or by the socket itself.
func place(socket *os.File) error {
	fd := int(socket.Fd())
	if fd != firstFD {
		return unix.Dup3(fd, firstFD, 0)
	}
	_, err := unix.FcntlInt(socket.Fd(), unix.F_SETFD, 0)
	return err
}

// monotonic is the clock that a service manager compares with, in microseconds.
func monotonic() string {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return strconv.FormatInt(t.Nano()/1000, 10)
}

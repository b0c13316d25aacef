package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/internal/reexec"
	"github.com/stockade-dev/stockade/sandbox/host"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/sandbox/runc"
)

// Bounds of an upgrade. Within the first the new program has to say that it could take over; within
// the second, in which nobody is served, calls in progress have to end.
const (
	checkWithin = 10 * time.Second
	pauseWithin = 10 * time.Second
)

// upgrade serves, and at SIGHUP lets another program take over.
//
//	the new program, sealed, says what it can take over     refused: nothing has happened
//	no call is read any more, and those in progress end      refused: it goes on
//	runner and sockets are saved                             refused: it goes on
//	execve                                                   failed: it goes on
//	the new program resumes them                             failed: the sessions are lost, and it serves
type upgrade struct {
	listener *launch.Listener
	runner   *runc.Runner
	hangup   chan os.Signal
	ready    chan *successor // follows Suspend
}

// successor is a program that could take over.
type successor struct {
	exe    *os.File
	format runc.Format
}

// serve serves until ctx ends or there is nobody left to serve.
func (u *upgrade) serve(ctx context.Context, o launch.Succession) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { u.watch(watching) })
	defer watcher.Wait()
	defer stop()
	for {
		err := u.listener.Serve(ctx, u.runner, o)
		if !errors.Is(err, launch.ErrSuspended) {
			return err
		}
		next := <-u.ready
		say("not replaced: %v", u.replace(ctx, next))
		next.exe.Close()
	}
}

// watch prepares for a replacement at each SIGHUP, while everybody is served.
func (u *upgrade) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.hangup:
		}
		next, err := findSuccessor(ctx)
		if err == nil {
			pause, cancel := context.WithTimeout(ctx, pauseWithin)
			if err = u.listener.Suspend(pause); err == nil {
				u.ready <- next
			} else {
				next.exe.Close()
			}
			cancel()
		}
		if err != nil {
			say("not replaced: %v", err)
		}
	}
}

// findSuccessor looks for the program that is to take over, and asks it whether it can.
func findSuccessor(ctx context.Context) (_ *successor, err error) {
	exe, err := runc.Successor()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			exe.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	// The path is looked up in the child, which still has the descriptor then.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/"+strconv.Itoa(int(exe.Fd())))
	cmd.Args = append(slices.Clone(os.Args), "--check")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the new program refuses: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	s := &successor{exe: exe}
	if err := json.Unmarshal(out.Bytes(), &s.format); err != nil {
		return nil, fmt.Errorf("the new program says %q: %w", out.String(), err)
	}
	ours := runc.CurrentFormat()
	if s.format.State != ours.State || s.format.Guest != ours.Guest || s.format.Relay != ours.Relay {
		return nil, fmt.Errorf("the new program cannot go on with these sessions: it reads %+v, not %+v; close them, and start it anew", s.format, ours)
	}
	return s, nil
}

// checked is what a program says that is asked whether it could take over.
func (c *config) checked() error {
	if err := c.settle(); err != nil {
		return err
	}
	// A bounding set lasts as long as the process, and may be that of an older unit.
	if err := host.Capable(); err != nil {
		return fmt.Errorf("sessions could not be opened: the runner %w", err)
	}
	for what, path := range map[string]string{"init": c.Init, "relay": c.Relay} {
		if path == "" {
			continue
		}
		if _, err := os.ReadFile(path); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	out, err := json.Marshal(runc.CurrentFormat(), json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", out)
	return err
}

// handed is what one program hands to the next. The first files are the listener's, the rest
// the runner's.
type handed struct {
	Since    time.Time // when the last call was read
	Sockets  int
	Listener launch.State
	Runner   jsontext.Value
}

// replace executes the successor. It returns only if that was not possible, and then the
// listener can be served again.
func (u *upgrade) replace(ctx context.Context, next *successor) error {
	since := time.Now()
	pause, cancel := context.WithTimeout(ctx, pauseWithin)
	defer cancel()
	state, files, err := u.runner.Save(pause)
	if err != nil {
		return err
	}
	defer u.runner.Continue()
	failpoint.Hit("runner.saved")
	listener, sockets, err := u.listener.Save()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range sockets {
			f.Close()
		}
	}()
	if listener.Connected && next.format.Launch != launch.Version {
		return fmt.Errorf("the supervisor that is connected speaks version %d, and the new program %d: have the supervisor leave first (SIGUSR2), which ends no session as a stop would", launch.Version, next.format.Launch)
	}
	all, err := json.Marshal(handed{since, len(sockets), listener, state})
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the end is more urgent
		return err
	}
	// One that arrives before the new program expects it would end that.
	signal.Ignore(syscall.SIGHUP)
	defer signal.Notify(u.hangup, syscall.SIGHUP)
	return reexec.Exec(next.exe, os.Args, os.Environ(), all, append(sockets, files...))
}

// inheritance is what a program before left to this one.
type inheritance struct {
	state []byte
	files []*os.File
	err   error // why it is not whole
}

// inherited returns nil in a program that replaces none.
func inherited() *inheritance {
	state, files, ok, err := reexec.Inherited()
	if !ok {
		return nil
	}
	failpoint.Hit("runner.replaced")
	return &inheritance{state, files, err}
}

// understood takes the inheritance apart.
func (i *inheritance) understood() (in handed, sockets, files []*os.File, err error) {
	if err = i.err; err == nil {
		err = json.Unmarshal(i.state, &in, json.RejectUnknownMembers(true))
	}
	if err == nil && (in.Sockets < 1 || in.Sockets > len(i.files)) {
		err = fmt.Errorf("%d sockets of %d files", in.Sockets, len(i.files))
	}
	if err != nil {
		return handed{}, nil, i.files, err
	}
	return in, i.files[:in.Sockets], i.files[in.Sockets:], nil
}

// resume goes on where the program before stopped. If that cannot be done its sessions are
// lost, which is said, and the runner begins anew: there is no half of a state.
func (c *config) resume(before *inheritance) (*runc.Runner, *launch.Listener, error) {
	in, sockets, files, misunderstood := before.understood()
	runner, lost, err := runc.Resume(c.Options, in.Runner, files) // and if it was not understood, ends what the files hold together
	if lost != nil {
		say("every session is lost: %v", cmp.Or(misunderstood, lost))
	}
	if err != nil {
		return nil, nil, err
	}
	if lost != nil {
		// Who is connected has to learn of it; who connects now may.
		for _, s := range sockets[min(1, len(sockets)):] {
			s.Close()
		}
		in, sockets = handed{}, sockets[:min(1, len(sockets))]
	}
	listener, err := launch.Resume(in.Listener, sockets, c.uid, runner)
	if err != nil {
		say("the supervisor's connection is lost: %v", err)
		runner.Disconnected()
		if listener, err = launch.Listen(c.socket, c.uid); err != nil {
			return nil, nil, errors.Join(err, runner.Shutdown())
		}
	}
	if !in.Since.IsZero() {
		say("replaced, with %d sessions; calls waited for %v", len(runner.Sessions()), time.Since(in.Since).Round(100*time.Microsecond))
	}
	return runner, listener, nil
}

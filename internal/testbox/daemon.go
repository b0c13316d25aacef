package testbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stockade-dev/stockade/supervisor/client"
)

// Bounds of what a daemon may take.
var (
	readyWithin = Patience(30 * time.Second)
	stopWithin  = Patience(30 * time.Second)
)

// SettleWithin is how long tear-down may go on behind the reply that announced it.
const SettleWithin = 5 * time.Second

// Patience is how long to wait, on this machine, for what is bound to happen within d. One of scripts/test-v2, which is emulated, has
// thrice as long: a daemon takes 15 seconds and more to start there.
func Patience(d time.Duration) time.Duration {
	if os.Getenv("STOCKADE_MACHINE") != "" {
		return 3 * d
	}
	return d
}

// Build builds the five commands into dir, with build tags if there are any.
func Build(dir string, tags ...string) error {
	for cgo, commands := range map[string][]string{
		"0": {"stockade", "stockaded", "stockade-init", "stockade-relay"},
		"1": {"stockade-run"},
	} {
		args := []string{"build", "-trimpath", "-tags", strings.Join(tags, ","), "-o", dir + "/"}
		for _, c := range commands {
			args = append(args, "github.com/stockade-dev/stockade/cmd/"+c)
		}
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// Options of a daemon.
type Options struct {
	Args []string // flags of stockaded beyond --state, --socket and what is in STOCKADE_ARGS, which a machine may need
	Env  []string // added to a small environment of its own

	Files  []*os.File                     // it inherits these, open across an exec, as from a parent that was careless
	Within func(start func() error) error // calls what starts the daemon where it is to run; nil is here. See [Internet.Within]
}

// Daemon is a running supervisor, with the runner that it started.
type Daemon struct {
	Bin    string // where the commands are
	Dir    string // the socket, the state and nothing else
	Socket string
	State  string

	Args   []string                       // of the next start
	Env    []string                       // likewise; the runner that the daemon starts has none of it
	Files  []*os.File                     // as in Options
	Within func(start func() error) error // likewise
	client *client.Client
	starts int
	cmd    *exec.Cmd
	ready  chan bool
	done   chan struct{}
	log    *os.File
}

// Start starts a supervisor on a directory and returns once it serves.
func Start(bin, dir string, o Options) (*Daemon, error) {
	d := &Daemon{Bin: bin, Dir: dir, Socket: filepath.Join(dir, "stockade.sock"), State: filepath.Join(dir, "state"), Args: o.Args, Env: o.Env, Files: o.Files, Within: o.Within}
	return d, d.Start()
}

// Start starts the supervisor again on the same directory, and returns once it serves.
func (d *Daemon) Start() error {
	if err := d.Launch(); err != nil {
		return err
	}
	return d.Ready()
}

// Launch starts the supervisor and returns at once.
func (d *Daemon) Launch() error {
	args := append([]string{"--state", d.State, "--socket", d.Socket}, strings.Fields(os.Getenv("STOCKADE_ARGS"))...)
	args = append(args, d.Args...)
	d.cmd = exec.Command(filepath.Join(d.Bin, "stockaded"), args...)
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, d.Env...)
	if d.log == nil {
		var err error
		if d.log, err = newLog(); err != nil {
			return err
		}
	}
	d.cmd.Stderr = d.log
	d.cmd.ExtraFiles = d.Files
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begin := d.cmd.Start
	if d.Within != nil {
		begin = func() error { return d.Within(d.cmd.Start) }
	}
	if err := begin(); err != nil {
		return fmt.Errorf("start stockaded: %w", err)
	}
	d.starts++
	cmd, done, ready := d.cmd, make(chan struct{}), make(chan bool, 1)
	d.done, d.ready = done, ready
	go func() {
		defer close(done)
		line := make([]byte, len("ready\n"))
		n, _ := out.Read(line)
		ready <- string(line[:n]) == "ready\n"
		cmd.Wait()
	}()
	return nil
}

// Ready waits until a supervisor that was launched serves. It is asked once.
func (d *Daemon) Ready() error {
	select {
	case ok := <-d.ready:
		if ok {
			return nil
		}
	case <-time.After(readyWithin):
		d.cmd.Process.Kill()
	}
	<-d.done
	return fmt.Errorf("stockaded did not become ready: %v\n%s", d.cmd.ProcessState, d.Log())
}

// Log is what the daemon and its runner wrote to stderr so far.
func (d *Daemon) Log() string {
	if d.log == nil {
		return ""
	}
	info, err := d.log.Stat()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(d.log, 0, info.Size()))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// newLog makes a file without a name. It is no pipe: the runner writes to it, too, and outlives a
// daemon that is killed, whose end would not be seen before the end of the pipe.
func newLog() (*os.File, error) {
	f, err := os.CreateTemp("", "stockade-log-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	return os.OpenFile(f.Name(), os.O_RDWR|os.O_APPEND, 0) // two processes write
}

// Client returns the one client of the daemon: the leak check closes its idle
// connections, which would be descriptors of the daemon.
func (d *Daemon) Client() *client.Client {
	if d.client == nil {
		d.client = client.New(d.Socket)
	}
	return d.client
}

// Stop asks the daemon to stop, as a service manager would, and waits until it has.
func (d *Daemon) Stop() error {
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(stopWithin):
		d.Kill()
		return fmt.Errorf("stockaded did not stop within %v of SIGTERM:\n%s", stopWithin, d.Log())
	}
	if !d.cmd.ProcessState.Success() {
		return fmt.Errorf("stockaded ended with %v:\n%s", d.cmd.ProcessState, d.Log())
	}
	return nil
}

// Kill kills the daemon, as a crash would. Its runner keeps what it holds for the next one, for
// a time.
func (d *Daemon) Kill() {
	d.cmd.Process.Kill()
	<-d.done
}

// Hangup asks the daemon to give way to the program that now is where it was started from.
func (d *Daemon) Hangup() error { return d.cmd.Process.Signal(syscall.SIGHUP) }

// Goroutines ends the daemon as a fault in it would, and returns how many goroutines it had by
// its own word.
func (d *Daemon) Goroutines() (int, error) {
	before := len(d.Log())
	if err := d.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return 0, err
	}
	if !d.Ended(stopWithin) {
		return 0, errors.New("stockaded goes on after SIGQUIT")
	}
	n := strings.Count(d.Log()[before:], "\ngoroutine ")
	if n == 0 {
		return 0, fmt.Errorf("stockaded ended with %v and named no goroutine", d.cmd.ProcessState)
	}
	return n, nil
}

// Memory is the most that the daemon had in memory so far, in bytes.
func (d *Daemon) Memory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		return 0, err
	}
	var kib int64
	_, text, _ := strings.Cut(string(status), "\nVmHWM:")
	if _, err := fmt.Sscan(text, &kib); err != nil {
		return 0, fmt.Errorf("VmHWM of %d: %w", d.PID(), err)
	}
	return kib << 10, nil
}

// Ended says whether the daemon ends within that time by itself.
func (d *Daemon) Ended(within time.Duration) bool {
	select {
	case <-d.done:
		return true
	case <-time.After(within):
		return false
	}
}

// Killed says whether the daemon has ended as by Kill, whoever did it.
func (d *Daemon) Killed() bool {
	if d.Running() {
		return false
	}
	status, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// Running says whether the daemon has not ended.
func (d *Daemon) Running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// Instance names what belongs to the daemon's state directory: the promise of
// supervisor/DESIGN.md on which the leak check rests.
func (d *Daemon) Instance() string {
	sum := sha256.Sum256([]byte(d.State))
	return hex.EncodeToString(sum[:6])
}

// Restarted says whether the daemon was started more than once: what an earlier one held
// is no measure for it.
func (d *Daemon) Restarted() bool { return d.starts > 1 }

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Runner is the process of the runner that serves the daemon, or 0: one that the daemon started, or an
// earlier one of the same state directory left.
func (d *Daemon) Runner() int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil && comm(pid) == "stockade-run" && state(pid) != "Z" &&
			strings.Contains(commandLine(pid), "--instance "+d.Instance()+" ") {
			return pid
		}
	}
	return 0
}

// Scope is what belongs to the daemon while it runs: between two requests it holds no
// more than it held when it became ready.
func (d *Daemon) Scope() Scope {
	s := d.Remains()
	s.Grows = nil
	for _, kept := range []string{"journal", "blobs", "spool", "snapshots"} {
		s.Grows = append(s.Grows, filepath.Join(d.State, kept))
	}
	s.PIDs = []int{d.PID()}
	if runner := d.Runner(); runner != 0 {
		s.PIDs = append(s.PIDs, runner)
	}
	return s
}

// Remains is what belongs to the daemon once it has ended: its state, which is meant to
// stay, and nothing else.
func (d *Daemon) Remains() Scope {
	return Scope{
		Instance: d.Instance(),
		Dirs:     []string{d.Dir, d.runtime()},
		Grows:    []string{d.State},
		Bin:      d.Bin,
	}
}

// Left names what is left of a daemon that has ended, beyond its state.
func (d *Daemon) Left() ([]string, error) {
	left, err := d.Remains().Settle(nil, SettleWithin)
	if _, statErr := os.Lstat(d.runtime()); statErr == nil {
		left = append(left, "directory "+d.runtime())
		os.RemoveAll(d.runtime()) // the next test has another
	}
	return left, err
}

// runtime is the directory of the runner that the daemon starts.
func (d *Daemon) runtime() string { return filepath.Join("/run/stockade", d.Instance()) }

// Used makes the daemon do once what it does for the first time only (pages, pollers,
// connections), so that what it holds then is what it holds ever after.
func (d *Daemon) Used(ctx context.Context, use func(context.Context) error) (Residue, error) {
	if err := use(ctx); err != nil {
		return nil, err
	}
	d.Client().CloseIdle()
	var last Residue
	for same, i := 0, 0; i < 100; i++ {
		now, err := d.Scope().Take()
		if err != nil {
			return nil, err
		}
		if same++; !maps.Equal(now, last) {
			same = 0
		}
		if same == 3 {
			return now, nil
		}
		last = now
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.New("leak check: the daemon does not come to rest")
}

// Init is PID 1 of a session, as the host sees it: the session is named by its pid
// namespace, which the receipt of its open has.
func Init(pidns uint64) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid"))
		if err != nil || ns != fmt.Sprintf("pid:[%d]", pidns) {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		var pid, inside int
		if _, ids, _ := strings.Cut(string(status), "\nNSpid:"); err != nil {
			continue
		} else if n, _ := fmt.Sscan(ids, &pid, &inside); n == 2 && inside == 1 {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("pid namespace %d: no init", pidns)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// program is what is run: its own start-up is the floor for everybody.
const program = "/bin/true"

// parallel is how many callers there are at once in the figures that say so.
var parallel = []int{1, 4, 16}

// floodBytes is how much a flood writes: less than the output ceiling of the profile.
const floodBytes = 60 << 20

type bench struct {
	ctx     context.Context
	client  *client.Client
	socket  string
	dir     string
	n       int
	figures []Figure
}

// contender is one way of doing the same thing.
type contender struct {
	name, baseline string
	do             func() error
	missing        string // why it cannot take part
}

func (b *bench) all() error {
	session, err := b.open()
	if err != nil {
		return err
	}
	runc := newRunc(b.dir)
	defer runc.remove()
	fork := func() error { return exec.Command(program).Run() }
	for _, group := range [][]contender{
		{
			{name: "fork+exec", do: fork},
			{name: "stockade exec", baseline: "fork+exec", do: func() error { return b.exec(session) }},
			{name: "runc exec", baseline: "fork+exec", do: runc.exec, missing: runc.missing},
		},
		{
			{name: "bwrap --unshare-all", baseline: "fork+exec", do: bwrap, missing: lack("bwrap")},
			{name: "runc run", baseline: "fork+exec", do: runc.run, missing: runc.missing},
			{name: "stockade one-shot (open, exec, close)", baseline: "runc run", do: b.oneShot},
		},
	} {
		if err := b.compare(group); err != nil {
			return err
		}
	}
	if err := b.openAndClose(); err != nil {
		return err
	}
	if err := b.crowd(session); err != nil {
		return err
	}
	if err := b.events(session); err != nil {
		return err
	}
	if err := b.cancel(session); err != nil {
		return err
	}
	if err := b.flood(session); err != nil {
		return err
	}
	return b.close(session)
}

// compare lets the contenders take turns, so that a disturbance of the machine falls on
// all of them.
func (b *bench) compare(group []contender) error {
	took := make([][]time.Duration, len(group))
	for i := range b.n + b.n/10 {
		for k, c := range group {
			if c.missing != "" {
				continue
			}
			begin := time.Now()
			if err := c.do(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if i >= b.n/10 { // the first tenth warms up
				took[k] = append(took[k], time.Since(begin))
			}
		}
	}
	for k, c := range group {
		if c.missing != "" {
			b.figures = append(b.figures, Figure{Name: c.name, Skipped: c.missing})
			continue
		}
		b.figures = append(b.figures, summarize(c.name, c.baseline, took[k]))
	}
	return nil
}

// openAndClose measures the two ends of a session apart.
func (b *bench) openAndClose() error {
	var opens, closes []time.Duration
	for range b.n {
		begin := time.Now()
		id, err := b.open()
		if err != nil {
			return err
		}
		opens = append(opens, time.Since(begin))
		begin = time.Now()
		if err := b.close(id); err != nil {
			return err
		}
		closes = append(closes, time.Since(begin))
	}
	b.figures = append(b.figures,
		summarize("stockade open", "bwrap --unshare-all", opens),
		summarize("stockade open beside runc run", "runc run", opens),
		summarize("stockade close", "", closes))
	return nil
}

// crowd measures exec with few and many callers at once: how many receipts they get in a second, and what
// one of many waits, against one alone.
func (b *bench) crowd(session string) error {
	for _, callers := range parallel {
		var (
			all  sync.WaitGroup
			mu   sync.Mutex
			took []time.Duration
			bad  error
		)
		begin := time.Now()
		for range callers {
			all.Go(func() {
				for range b.n {
					begin := time.Now()
					err := b.exec(session)
					mu.Lock()
					took = append(took, time.Since(begin))
					bad = errors.Join(bad, err)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if bad != nil {
			return bad
		}
		b.figures = append(b.figures, Figure{Name: fmt.Sprintf("receipts of executions, %d at once", callers), N: len(took),
			PerSecond: float64(len(took)) / time.Since(begin).Seconds()})
		if callers == slices.Max(parallel) {
			crowd := summarize(fmt.Sprintf("stockade exec, %d callers at once (p99 to p50 alone)", callers), "stockade exec", took)
			crowd.OfP99 = true
			b.figures = append(b.figures, crowd)
		}
	}
	return nil
}

// events measures from the moment at which a record is made, and not yet durable, to that at which a second
// client has the event in its hands.
func (b *bench) events(session string) error {
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var took []time.Duration
	begun := make(chan struct{})
	ended := make(chan error, 1)
	reader := client.New(b.socket)
	defer reader.CloseIdle()
	go func() {
		ended <- reader.FollowEvents(ctx, session, 0, func(n api.Notice) error {
			if n.ExecID == "" {
				return nil
			}
			select {
			case <-begun:
				took = append(took, time.Since(time.Unix(0, n.AtNS)))
			default: // of before
			}
			return nil
		})
	}()
	time.Sleep(200 * time.Millisecond) // for the past to go by
	close(begun)
	for range b.n {
		if err := b.exec(session); err != nil {
			return err
		}
	}
	time.Sleep(200 * time.Millisecond)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("events: %w", err)
	}
	if len(took) < b.n {
		return fmt.Errorf("events: %d of %d executions", len(took), b.n)
	}
	b.figures = append(b.figures, summarize("event, from its record to a second client", "", took))
	return nil
}

// grace is what a command gets that is canceled.
const grace = 20 * time.Millisecond

// cancel measures how long a cancel takes beyond the grace, of a command that ignores the TERM.
func (b *bench) cancel(session string) error {
	var took []time.Duration
	for range b.n {
		p, r, err := b.client.Start(b.ctx, api.Exec{SessionID: session, Argv: []string{"sh", "-c", "trap '' TERM; echo; sleep 1000 & wait; wait"}})
		if p == nil {
			return fmt.Errorf("cancel: %+v, %w", r, err)
		}
		if _, err := b.client.Output(b.ctx, p.ExecID, api.Read{WaitMS: 10_000}); err != nil {
			return err
		}
		ns := int64(grace)
		begin := time.Now()
		if err := settled(b.client.Cancel(b.ctx, api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: p.ExecID}, GraceNS: &ns})); err != nil {
			return err
		}
		took = append(took, time.Since(begin)-grace)
	}
	b.figures = append(b.figures, summarize("cancel, beyond its grace", "", took))
	return nil
}

// flood measures how fast output moves: cmd > file, and the same bytes through the
// supervisor, spooled and hashed.
func (b *bench) flood(session string) error {
	argv := []string{"head", "-c", fmt.Sprint(floodBytes), "/dev/zero"}
	file, err := os.Create(filepath.Join(b.dir, "flood"))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout = file
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	bare := rate(time.Since(begin))
	begin = time.Now()
	r, err := b.client.Exec(b.ctx, api.Exec{SessionID: session, Argv: argv})
	if err := settled(r, err); err != nil {
		return err
	}
	b.figures = append(b.figures,
		Figure{Name: "flood: cmd > file", N: 1, MBps: bare},
		Figure{Name: "flood: stockade exec", N: 1, MBps: rate(time.Since(begin)), Baseline: "flood: cmd > file"})
	return nil
}

func rate(d time.Duration) float64 { return floodBytes / 1e6 / d.Seconds() }

func (b *bench) open() (string, error) {
	r, err := b.client.Open(b.ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
	if err := settled(r, err); err != nil {
		return "", err
	}
	return r.SessionID, nil
}

func (b *bench) exec(session string) error {
	r, err := b.client.Exec(b.ctx, api.Exec{SessionID: session, Argv: []string{program}})
	if err := settled(r, err); err != nil {
		return err
	}
	if r.Payload.Exec.ExitCode != 0 {
		return fmt.Errorf("status %d", r.Payload.Exec.ExitCode)
	}
	return nil
}

func (b *bench) close(session string) error {
	return settled(b.client.Close(b.ctx, api.SessionClose{SessionID: session, Mode: "force"}))
}

func (b *bench) oneShot() error {
	id, err := b.open()
	if err != nil {
		return err
	}
	if err := b.exec(id); err != nil {
		return err
	}
	return b.close(id)
}

func settled(r *api.Receipt, err error) error {
	if err != nil {
		return err
	}
	if r.Outcome != api.OutcomeOK {
		return fmt.Errorf("%s: %s %s %s %v", r.Op, r.Outcome, r.ErrorCode, r.ErrorMessage, r.Deny)
	}
	return nil
}

func bwrap() error {
	return exec.Command("bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--ro-bind", "/lib", "/lib",
		"--ro-bind-try", "/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", program).Run()
}

// lack says why a peer cannot take part.
func lack(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not installed (apt-get install bubblewrap runc)"
	}
	return ""
}

// runcPeer is Debian's runc on a bundle that resembles a session: all namespaces, the host's
// system directories read-only, a memory and a pids ceiling.
type runcPeer struct {
	bundle  string
	missing string
	serial  int
	live    string // container for exec
}

func newRunc(dir string) *runcPeer {
	r := &runcPeer{bundle: filepath.Join(dir, "bundle"), missing: lack("runc")}
	if r.missing == "" {
		if err := r.prepare(); err != nil {
			r.missing = err.Error()
		}
	}
	return r
}

func (r *runcPeer) prepare() error {
	if err := os.MkdirAll(filepath.Join(r.bundle, "rootfs"), 0o755); err != nil {
		return err
	}
	type object = map[string]any
	bind := func(path string) object {
		return object{"destination": path, "type": "bind", "source": path, "options": []string{"rbind", "ro"}}
	}
	config := func(args ...string) error {
		doc, err := json.Marshal(object{
			"ociVersion": "1.0.2",
			"process":    object{"user": object{"uid": 0, "gid": 0}, "args": args, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "noNewPrivileges": true},
			"root":       object{"path": "rootfs"},
			"hostname":   "bench",
			"mounts": []object{bind("/usr"), bind("/lib"), bind("/lib64"), bind("/bin"),
				{"destination": "/proc", "type": "proc", "source": "proc"},
				{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}},
			"linux": object{
				"namespaces": []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
				"resources":  object{"memory": object{"limit": 1 << 30}, "pids": object{"limit": 128}},
			},
		})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(r.bundle, "config.json"), doc, 0o644)
	}
	if err := config("/bin/sleep", "100000"); err != nil {
		return err
	}
	r.live = fmt.Sprintf("stockade-compare-%d", os.Getpid())
	// Without pipes of ours: what is detached would keep them open.
	if err := r.command("run", "--detach", r.live).Run(); err != nil {
		return fmt.Errorf("runc run: %w", err)
	}
	return config(program)
}

func (r *runcPeer) command(args ...string) *exec.Cmd {
	cmd := exec.Command("runc", append([]string{"--root", filepath.Join(r.bundle, "state")}, args...)...)
	cmd.Dir = r.bundle
	cmd.Stdin = nil
	return cmd
}

func (r *runcPeer) run() error {
	r.serial++
	return r.command("run", fmt.Sprintf("%s-%d", r.live, r.serial)).Run()
}

func (r *runcPeer) exec() error { return r.command("exec", r.live, program).Run() }

func (r *runcPeer) remove() {
	if r.missing == "" {
		cmd := r.command("delete", "--force", r.live)
		cmd.Stderr = io.Discard
		cmd.Run()
	}
}

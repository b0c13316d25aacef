package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Options of a Pool. Those of the engine hold: a deadline is wall time, from when a worker has the question.
type Options struct {
	rego.Options
	CPU     time.Duration // processor time that one evaluation may take; 0 means DefaultCPU
	Memory  int64         // bytes that a worker may have beyond an idle process; 0 means 256 MiB
	Size    int           // evaluations at a time, each in a process that is started when it is needed; 0 means as many as there are processors, but no more than 8
	Program []string      // that is a worker, and its arguments; nil is this one, with "policy-worker"
}

// DefaultCPU is a hundred times what an honest evaluation takes.
const DefaultCPU = 250 * time.Millisecond

const (
	defaultMemory = 256 << 20
	maxSize       = 8 // each decides 20,000 times a second, and has 40 MB
)

// startWithin bounds each step of a worker's start: compiling a policy takes a tenth of a second of a processor that
// may have other things to do.
const startWithin = 30 * time.Second

// Argument is what makes of this program a worker: its main calls [Main] when this is its first argument.
const Argument = "policy-worker"

func (o Options) withDefaults() Options {
	o.Options = o.Options.WithDefaults()
	o.CPU = cmp.Or(o.CPU, DefaultCPU)
	o.Memory = cmp.Or(o.Memory, int64(defaultMemory))
	o.Size = cmp.Or(o.Size, min(runtime.GOMAXPROCS(0), maxSize))
	if o.Program == nil {
		// The file that was executed, whatever is in its place by now.
		o.Program = []string{"/proc/self/exe", Argument}
	}
	return o
}

// Pool answers for one revision of a policy, in processes. It is safe for concurrent use.
type Pool struct {
	options  Options
	digest   string
	revision []byte
	breaker  rego.Breaker
	defines  []string // set before first is closed

	lost chan struct{} // a process is missing
	quit chan struct{}
	done chan struct{} // everything has ended
	all  sync.WaitGroup

	mu       sync.Mutex
	ready    []*process // the last one to come is the first to go: its memory is warm
	waiting  []turn     // in order
	culprits map[uint32]time.Time
	live     map[*process]struct{}
	closed   bool
	slots    int // processes that there are, or are about to be
	target   int // and that there may be
	replaced int64
	trouble  error // of the last start, if it failed
}

// Load gives the policy tree in fsys to workers. It returns when one of them serves; a tree that does not load, and a host
// on which workers cannot be confined, are errors.
func Load(fsys fs.FS, o Options) (*Pool, error) {
	data, err := rego.ReadData(fsys) // modules are not parsed in this process
	if err != nil {
		return nil, err
	}
	revision, err := pack(fsys)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	p := &Pool{
		options: o, digest: data.Digest, revision: revision, breaker: rego.Breaker{Limit: o.MaxOverruns},
		lost: make(chan struct{}, o.Size+1), quit: make(chan struct{}), done: make(chan struct{}),
		live: map[*process]struct{}{}, culprits: map[uint32]time.Time{},
		slots: 1, target: o.Size + 1, // one is the spare
	}
	first := make(chan error, 1)
	go p.keep(first)
	if err := <-first; err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Test runs the tests that the policy tree in fsys brings along, in a worker of their own: they are its author's
// programs as its rules are. It fails when one of them does, and when they take longer than half a minute.
func Test(ctx context.Context, fsys fs.FS, o Options) error {
	revision, err := pack(fsys)
	if err != nil {
		return err
	}
	o = o.withDefaults()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the worker follows the thread that starts it
		done <- test(ctx, revision, o)
	}()
	return <-done
}

func test(ctx context.Context, revision []byte, o Options) error {
	w, err := spawn(o.Program)
	if err != nil {
		return fmt.Errorf("policy worker: %w", err)
	}
	go w.wait()
	defer w.close()
	_, err = w.prepare(ctx, o.Memory, true, revision)
	w.kill()
	<-w.ended
	var no refusal
	switch {
	case errors.As(err, &no):
		return no
	case errors.Is(err, errLate):
		return fmt.Errorf("its tests take longer than %v", startWithin)
	case err != nil:
		return fmt.Errorf("its tests: %w: %v", err, w.state)
	}
	return nil
}

// keep starts the workers, and others in their places. It has a thread, which ends with it: that is what workers
// follow, and threads of the runtime come and go.
func (p *Pool) keep(first chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	defer p.all.Wait()
	if err := p.start(); err != nil {
		first <- err
		return
	}
	first <- nil
	for {
		select {
		case <-p.quit:
			return
		case <-p.lost:
		}
		w, err := p.spawn()
		if err != nil {
			p.later(err)
			continue
		}
		p.all.Go(func() {
			if err := p.prepare(w); err != nil {
				p.later(err)
			}
		})
	}
}

// start has the first worker serve, and learns from it what the revision defines.
func (p *Pool) start() error {
	w, err := p.spawn()
	if err != nil {
		return err
	}
	return p.prepare(w)
}

// spawn starts a process and sees to its end.
func (p *Pool) spawn() (*process, error) {
	w, err := spawn(p.options.Program)
	if err != nil {
		return nil, fmt.Errorf("policy worker: %w", err)
	}
	p.mu.Lock()
	p.live[w] = struct{}{}
	if p.closed {
		w.kill()
	}
	p.mu.Unlock()
	p.all.Go(func() {
		w.wait()
		p.mu.Lock()
		delete(p.live, w)
		if i := slices.Index(p.ready, w); i >= 0 { // it ended while nobody had it
			p.ready = slices.Delete(p.ready, i, i+1)
			w.close()
			p.miss()
		}
		p.mu.Unlock()
	})
	return w, nil
}

// miss has a process replaced.
func (p *Pool) miss() {
	p.replaced++
	if p.slots > p.target {
		p.slots--
		return
	}
	p.lost <- struct{}{} // there is room for all that there can be
}

// Current says whether the revision is the one that is asked about whatever is new. Another one, which is asked only in sessions that
// were opened under it, has no more processes than at rest.
func (p *Pool) Current(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = min(atRest, p.options.Size+1)
	if is {
		p.target = p.options.Size + 1
	}
	p.grow()
	for ; p.slots > p.target && len(p.ready) > 1; p.slots-- {
		p.ready[0].kill()
		p.ready[0].close()
		p.ready = slices.Delete(p.ready, 0, 1)
	}
}

// prepare makes of a process a worker that waits.
func (p *Pool) prepare(w *process) error {
	r, err := w.prepare(context.Background(), p.options.Memory, false, p.revision)
	if err == nil && r.Digest != p.digest {
		err = fmt.Errorf("%w: it has read %q", errProtocol, r.Digest)
	}
	if err != nil {
		err = p.ended(w, err)
		w.close()
		var no refusal
		if errors.As(err, &no) {
			return no
		}
		return fmt.Errorf("policy worker: %w", err)
	}
	p.mu.Lock()
	p.trouble = nil
	if p.defines == nil {
		p.defines = append([]string{}, r.Defines...)
	}
	p.mu.Unlock()
	p.give(w)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow()
	return nil
}

// atRest is how many processes there are before more are asked for: one that answers, and its spare.
const atRest = 2

// grow starts one process more if there may be more, and either there are less than at rest or none waits: a process costs
// a fifth of a second of a processor and 40 MB, and most supervisors are never asked two things at once. The caller holds mu.
func (p *Pool) grow() {
	if p.slots < p.target && !p.closed && (p.slots < atRest || len(p.ready) == 0) {
		p.slots++
		p.lost <- struct{}{}
	}
}

// ended kills a process that is of no use, and adds to an error how it ended.
func (p *Pool) ended(w *process, err error) error {
	w.kill()
	<-w.ended
	if errors.Is(err, errEnded) || errors.Is(err, errUnheard) {
		return fmt.Errorf("%w: %v", err, w.state)
	}
	return err
}

// retryAfter is how long a start that failed is not tried again.
const retryAfter = time.Second

// later tries another start some time from now.
func (p *Pool) later(err error) {
	p.mu.Lock()
	p.trouble = err
	p.mu.Unlock()
	p.all.Go(func() {
		select {
		case <-p.quit:
		case <-time.After(retryAfter):
			p.lost <- struct{}{}
		}
	})
}

// Digest names the revision.
func (p *Pool) Digest() string { return p.digest }

// Defines reports whether the policy has an entry point.
func (p *Pool) Defines(ref string) bool { return slices.Contains(p.defines, ref) }

// Quarantined reports whether the revision was late, or ended its worker, so often that it is not asked any more.
func (p *Pool) Quarantined() bool { return p.breaker.Open() }

// State is what there is of a pool.
type State struct {
	Ready    int   // workers that wait
	PIDs     []int // of all
	Replaced int64 // workers that were killed, or ended
	Trouble  error // why the last start failed; nil since one succeeded
}

// State returns what there is now.
func (p *Pool) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Ready: len(p.ready), Replaced: p.replaced, Trouble: p.trouble}
	for w := range p.live {
		s.PIDs = append(s.PIDs, w.os.Pid)
	}
	slices.Sort(s.PIDs)
	return s
}

// patience is how long a question waits for a worker, beside the deadline of its evaluation: who asks must not be denied
// because others had workers killed and the machine is slow to start new ones.
const patience = 2 * time.Second

// Workers says for people what there is now, and what holds it.
func (p *Pool) Workers() api.PolicyWorkers {
	s := p.State()
	w := api.PolicyWorkers{Processes: int64(len(s.PIDs)), Replaced: s.Replaced, MemoryBytes: p.options.Memory, CPUTimeNS: int64(p.options.CPU), Walls: walls[:shared]}
	if isRoot() {
		w.Walls = walls
	}
	if s.Trouble != nil {
		w.Trouble = s.Trouble.Error()
	}
	return w
}

// walls are what confined has looked at in every worker; the first are everybody's, the others take root.
var walls = []string{"seccomp", "no_new_privs", "no capabilities", "resource limits", "empty root", "own namespaces", "own uid", "no descriptors"}

const shared = 4

// Decide asks the policy. It returns within the deadline of the entry point and, when no worker is free, a while.
func (p *Pool) Decide(ctx context.Context, ref string, in rego.Input) rego.Decision {
	return rego.Decide(ref, p.digest, p.options.MaxInput, in, func(canonical []byte) rego.Answer {
		if !p.Defines(ref) {
			return rego.Undefined(ref)
		}
		if p.breaker.Open() {
			return p.breaker.Refusal(p.digest)
		}
		return p.ask(ctx, ref, canonical, in)
	})
}

// ask finds a worker and has it answer. Nothing is asked twice that may have been heard: what ended one worker would end the next.
func (p *Pool) ask(ctx context.Context, ref string, canonical []byte, in rego.Input) rego.Answer {
	within := bounds{wall: p.options.DeadlineOf(ref), cpu: p.options.CPU}
	var caller uint32
	if in.Request != nil {
		caller = in.Request.Principal.UID
	}
	for {
		w, err := p.take(ctx, caller, patience)
		if err != nil {
			return rego.Failed(api.CodePolicyWorker, "%v", err)
		}
		a, err := w.ask(ctx, ref, canonical, in.NowNS, within)
		if err == nil {
			p.breaker.Punctual()
			p.give(w)
			return a
		}
		p.drop(w)
		switch {
		case errors.Is(err, errUnheard): // it had ended while it waited
			continue
		case ctx.Err() != nil:
			return rego.Failed(api.CodePolicyError, "%v", context.Cause(ctx))
		}
		p.breaker.Late()
		p.blame(caller)
		if errors.Is(err, errLate) {
			return rego.Failed(api.CodePolicyTimeout, "%v", err)
		}
		return rego.Failed(api.CodePolicyWorker, "the worker was given up: %v", err)
	}
}

// drop ends a worker that is nobody's any more.
func (p *Pool) drop(w *process) {
	w.kill()
	w.close()
	p.mu.Lock()
	p.miss()
	p.mu.Unlock()
}

var errClosed = errors.New("the pool is closed")

// blameFor is how long a uid that had a worker end does not get the last that waits: asking for what ends workers, faster than
// they can be started, must not leave others without.
const blameFor = 10 * time.Second

func (p *Pool) blame(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.culprits, func(_ uint32, since time.Time) bool { return now.Sub(since) > blameFor })
	p.culprits[uid] = now
}

// turn is somebody who waits for a worker.
type turn struct {
	given   chan *process // nil of a pool that is closed
	culprit bool
}

// may reports whether it has its turn: there is a worker, and not the last one for a culprit.
func (p *Pool) may(culprit bool) bool { return len(p.ready) > 1 || len(p.ready) == 1 && !culprit }

func (p *Pool) pop() *process {
	last := len(p.ready) - 1
	w := p.ready[last]
	p.ready = p.ready[:last]
	return w
}

// take returns a worker that waits, or the next that does.
func (p *Pool) take(ctx context.Context, uid uint32, within time.Duration) (*process, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	since, blamed := p.culprits[uid]
	t := turn{culprit: blamed && time.Since(since) < blameFor}
	if p.may(t.culprit) {
		defer p.mu.Unlock()
		w := p.pop()
		p.grow()
		return w, nil
	}
	p.grow()
	t.given = make(chan *process, 1)
	p.waiting = append(p.waiting, t)
	p.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	var err error
	select {
	case w := <-t.given:
		return taken(w)
	case <-timer.C:
		err = fmt.Errorf("no worker was free within %v", within)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, t); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		if p.trouble != nil {
			err = fmt.Errorf("%w; none can be started: %v", err, p.trouble)
		}
		return nil, err
	}
	return taken(<-t.given) // it came at the last moment
}

func taken(w *process) (*process, error) {
	if w == nil {
		return nil, errClosed
	}
	return w, nil
}

// give hands a worker to who has waited longest, or has it wait.
func (p *Pool) give(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ended:
		w.close()
		p.miss()
		return
	default:
	}
	if p.slots > p.target {
		p.slots--
		w.kill()
		w.close()
		return
	}
	p.ready = append(p.ready, w)
	if i := slices.IndexFunc(p.waiting, func(t turn) bool { return p.may(t.culprit) }); i >= 0 {
		p.waiting[i].given <- p.pop()
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

// Close ends the workers and returns when they have ended. Whoever still waits for a decision is denied.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.quit)
		for w := range p.live {
			w.kill()
		}
		for _, t := range p.waiting {
			t.given <- nil
		}
		p.waiting = nil
	}
	p.mu.Unlock()
	<-p.done
}

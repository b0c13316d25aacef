package rego

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The entry points that every policy has.
const (
	Open   = "data.stockade.open.decision"
	Exec   = "data.stockade.exec.decision"
	Signal = "data.stockade.signal.decision"
	Blob   = "data.stockade.blob.decision"
	Read   = "data.stockade.read.decision"

	Workspace = "data.stockade.workspace.decision"
	Approval  = "data.stockade.approval.decision"
	FS        = "data.stockade.fs.decision"
)

// entrypoint is one question, what its answer may hold, and how long it may take. The
// deadlines are wall time, and a hundred times what the shipped library needs: on a machine
// that builds twenty sandboxes at once, a goroutine can wait 100 ms for its turn, and
// a denial because of that would be wrong.
type entrypoint struct {
	ref      string
	grants   bool     // the answer holds a grant
	limits   bool     // the answer may hold limits and obligations
	waits    bool     // the answer may require an approval: then nothing is done before it is given
	since    int      // version of the contract that asks for it: see contract.go
	about    []string // what the input holds beside request, ceiling and now_ns
	deadline time.Duration
}

var entrypoints = []entrypoint{
	{ref: Open, since: 1, about: []string{"facts"}, grants: true, waits: true, deadline: 500 * time.Millisecond},
	{ref: Exec, since: 1, about: []string{"session"}, limits: true, waits: true, deadline: 250 * time.Millisecond},
	{ref: Signal, since: 1, about: []string{"session", "process"}, waits: true, deadline: 250 * time.Millisecond},
	{ref: Blob, since: 1, deadline: 250 * time.Millisecond},
	{ref: Read, since: 1, about: []string{"session", "process"}, deadline: 250 * time.Millisecond},
	{ref: Workspace, since: 2, about: []string{"session"}, waits: true, deadline: 250 * time.Millisecond},
	{ref: Approval, since: 2, about: []string{"approval"}, deadline: 250 * time.Millisecond},
	{ref: FS, since: 3, about: []string{"session", "file"}, waits: true, deadline: 250 * time.Millisecond},
}

func entrypointOf(ref string) (entrypoint, bool) {
	i := slices.IndexFunc(entrypoints, func(e entrypoint) bool { return e.ref == ref })
	if i < 0 {
		return entrypoint{}, false
	}
	return entrypoints[i], true
}

// pkg is the package that holds the entry point.
func (e entrypoint) pkg() ast.Ref {
	ref := dotted(e.ref)
	return ref[:len(ref)-1]
}

// dotted is the reference to a document below data whose name is words and dots. OPA's parser takes a hundred times as
// long, and compiling asks for each entry point of each module.
func dotted(name string) ast.Ref {
	words := strings.Split(name, ".")
	ref := make(ast.Ref, 0, len(words))
	ref = append(ref, ast.DefaultRootDocument)
	for _, word := range words[1:] {
		ref = append(ref, ast.InternedTerm(word))
	}
	return ref
}

// ops says which question an operation asks.
var ops = map[api.Op]string{
	api.OpSessionOpen: Open,
	api.OpExec:        Exec,
	api.OpShellOpen:   Exec,

	api.OpSessionSignal: Signal,
	api.OpSessionPause:  Signal,
	api.OpSessionResume: Signal,
	api.OpSessionClose:  Signal,
	api.OpSessionNarrow: Signal,
	api.OpProcessInput:  Signal,
	api.OpProcessSignal: Signal,
	api.OpProcessModify: Signal,
	api.OpProcessPause:  Signal,
	api.OpProcessResume: Signal,
	api.OpProcessCancel: Signal,
	api.OpProcessDelete: Signal,
	api.OpProcessStop:   Signal,
	api.OpShellInput:    Signal,
	api.OpShellResize:   Signal,
	api.OpShellClose:    Signal,
	api.OpShellAttach:   Signal,
	api.OpShellRun:      Signal,

	api.OpSessionForward: Signal,

	api.OpDrain:    Signal,
	api.OpLogLevel: Signal,

	api.OpPolicyActivate: Signal,

	api.OpWorkspaceCommit:  Workspace,
	api.OpWorkspaceDiscard: Workspace,

	api.OpFileRead:   FS,
	api.OpFileWrite:  FS,
	api.OpFileEdit:   FS,
	api.OpFilePatch:  FS,
	api.OpFileGrep:   FS,
	api.OpFileGlob:   FS,
	api.OpFileStat:   FS,
	api.OpFileExists: FS,
	api.OpFileList:   FS,
	api.OpFileMkdir:  FS,
	api.OpFileMove:   FS,
	api.OpFileRemove: FS,

	api.OpApprovalList: Approval,
	api.OpApprovalGet:  Approval,
	api.OpApprove:      Approval,
	api.OpDeny:         Approval,

	api.OpBlobPut: Blob,
	api.OpBlobGet: Blob,

	api.OpSessionGet:     Read,
	api.OpSessionList:    Read,
	api.OpSessionEvents:  Read,
	api.OpWorkspaceDiff:  Read,
	api.OpProcessGet:     Read,
	api.OpProcessList:    Read,
	api.OpProcessWait:    Read,
	api.OpProcessWatch:   Read,
	api.OpOutput:         Read,
	api.OpShellGet:       Read,
	api.OpShellOutput:    Read,
	api.OpShellRecording: Read,
	api.OpEvents:         Read,
	api.OpIntentGet:      Read,
	api.OpIntentList:     Read,
	api.OpIntentFrames:   Read,
	api.OpReceiptGet:     Read,
	api.OpReceiptList:    Read,
	api.OpCheckpoint:     Read,
	api.OpHostInfo:       Read,
	api.OpCapabilities:   Read,
	api.OpDecide:         Read,
	api.OpQuiescence:     Read,
	api.OpSnapshot:       Read,
	api.OpAudit:          Read,
	api.OpSettings:       Read,

	api.OpPolicyStatus:  Read,
	api.OpPolicyPreview: Read,
}

// Entrypoint returns the entry point that decides op; ok is false for an operation
// that no policy is asked about.
func Entrypoint(op api.Op) (ref string, ok bool) {
	ref, ok = ops[op.Canonical()]
	return ref, ok
}

// Options tune an Engine.
type Options struct {
	Search      time.Duration // for one kind of change that [Engine.Least] looks for; 0 means 20 seconds
	Deadline    time.Duration // of every entry point; 0 means 500 ms for an open, 250 ms for the rest
	MaxInput    int           // bytes of the canonical input; 0 means 1 MiB
	MaxOverruns int           // late evaluations in a row, or running on behind our back, before quarantine; 0 means 8
}

const (
	defaultMaxInput    = 1 << 20
	defaultMaxOverruns = 8
)

// WithDefaults has what the zeros of o stand for, but for the deadlines, which are the entry points' own.
func (o Options) WithDefaults() Options {
	o.MaxInput = cmp.Or(o.MaxInput, defaultMaxInput)
	o.MaxOverruns = cmp.Or(o.MaxOverruns, defaultMaxOverruns)
	return o
}

// DeadlineOf is how long an entry point may take.
func (o Options) DeadlineOf(ref string) time.Duration {
	e, _ := entrypointOf(ref)
	return cmp.Or(o.Deadline, e.deadline)
}

// Engine answers for one revision of a policy. It is immutable but for its count of
// overruns, and safe for concurrent use.
type Engine struct {
	opts     Options
	digest   string
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction // never ended: nothing is ever written, so it blocks nobody
	queries  map[string]query
	titles   map[string]string            // of METADATA, by name of the rule
	accepted map[string]map[string]string // of METADATA: what an audit finds and its author has accepted, by rule and field
	values   memo
	base     base
	fixed    *constants
	idle     chan chan<- job

	breaker Breaker
	orphans atomic.Int64 // evaluations that run on although nobody waits for them
}

// Load reads, compiles and prepares the policy tree in fsys. A tree that does not
// parse, calls a builtin that is not available, or lacks what its contract asks for does not load. Its tests are
// left alone: they decide nothing, and are almost half of a well kept tree ([Bundle.Test] reads and runs them).
func Load(fsys fs.FS, opts Options) (*Engine, error) {
	b, err := readBundle(fsys, parts{rules: true})
	if err != nil {
		return nil, err
	}
	compiler, store, err := b.Compile()
	if err != nil {
		return nil, err
	}
	if err := b.keeps(compiler); err != nil {
		return nil, err
	}
	labels, err := b.labels()
	if err != nil {
		return nil, err
	}
	opts = opts.WithDefaults()
	txn, err := store.NewTransaction(context.Background())
	if err != nil {
		return nil, fmt.Errorf("policy data: %w", err)
	}
	if err := faultless(compiler, store, txn); err != nil {
		return nil, err
	}
	e := &Engine{opts: opts, digest: b.Digest, compiler: compiler, store: store, txn: txn, titles: b.titles(), accepted: b.accepted(), queries: map[string]query{}, base: base{b.Data}, fixed: constantsOf(compiler), idle: make(chan chan<- job, runtime.GOMAXPROCS(0)), breaker: Breaker{Limit: opts.MaxOverruns}}
	var errs []error
	for _, ep := range entrypoints {
		if len(compiler.GetRulesExact(dotted(ep.ref))) == 0 {
			continue // an earlier contract than the one that asks for it
		}
		if opts.Deadline != 0 {
			ep.deadline = opts.Deadline
		}
		q, err := prepare(ep, compiler, store, labels)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.queries[ep.ref] = q
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return e, nil
}

// Digest names the revision: sha256:<hex> of the files that decide.
func (e *Engine) Digest() string { return e.digest }

// Quarantined reports whether the revision was late so often that it is not asked any more.
func (e *Engine) Quarantined() bool {
	return e.breaker.Open() || e.orphans.Load() >= int64(e.opts.MaxOverruns)
}

// Defines reports whether the policy has an entry point. One of before a question was there loads without it.
func (e *Engine) Defines(ref string) bool {
	_, ok := e.queries[ref]
	return ok
}

// Decide asks the policy. It returns within the deadline of the entry point,
// whether OPA stops then or not.
func (e *Engine) Decide(ctx context.Context, ref string, in Input) Decision {
	return Decide(ref, e.digest, e.opts.MaxInput, in, func(canonical []byte) Answer {
		q, ok := e.queries[ref]
		if !ok {
			return Undefined(ref)
		}
		if e.Quarantined() {
			return e.breaker.Refusal(e.digest)
		}
		value, err := e.values.parse(canonical)
		if err != nil {
			return Failed(api.CodePolicyInput, "%v", err)
		}
		return e.evaluate(ctx, q, value, in.NowNS)
	})
}

// Evaluate asks the policy about the canonical bytes of an input, on this goroutine and without a deadline: for
// who bounds it from outside, and judges the answer with [Decide].
func (e *Engine) Evaluate(ref string, canonical []byte, nowNS int64) Answer {
	q, ok := e.queries[ref]
	if !ok {
		return Undefined(ref)
	}
	value, err := e.values.parse(canonical)
	if err != nil {
		return Failed(api.CodePolicyInput, "%v", err)
	}
	return e.job(q, value, nowNS).run()
}

// evaluate has a worker run the query and waits no longer than the deadline, because
// OPA looks at its cancellation between expressions only: one builtin on a large
// argument can run on for seconds after it. Such a worker is left behind; e.orphans
// says how many there are, and the quarantine bounds them.
//
// What is counted is a row of overruns, not their sum: a machine under load delays a
// good policy now and then, and a quarantine denies everything until the next revision.
func (e *Engine) evaluate(ctx context.Context, q query, input ast.Value, nowNS int64) Answer {
	j := e.job(q, input, nowNS)
	j.done = make(chan Answer, 1)
	w := e.worker()
	w <- j
	timer := time.NewTimer(q.deadline)
	defer timer.Stop()
	select {
	case a := <-j.done:
		e.breaker.Punctual()
		e.rest(w)
		return a
	case <-timer.C:
		select {
		case a := <-j.done: // both were ready: it is late only for who looks late
			e.rest(w)
			return a
		default:
		}
		e.leave(w, j)
		e.breaker.Late()
		return Failed(api.CodePolicyTimeout, "no answer within %v", q.deadline)
	case <-ctx.Done():
		e.leave(w, j)
		return Failed(api.CodePolicyError, "%v", context.Cause(ctx))
	}
}

// job is one evaluation.
type job struct {
	query
	evaluation
	fixed *constants
	done  chan Answer
}

func (e *Engine) job(q query, input ast.Value, nowNS int64) job {
	return job{query: q, evaluation: evaluation{txn: e.txn, input: input, nowNS: nowNS, cancel: topdown.NewCancel(), base: e.base}, fixed: e.fixed}
}

// worker takes a goroutine that rests, or starts one. They are kept for their stacks:
// growing a new one to the depth of an evaluation costs half as much as the evaluation.
func (e *Engine) worker() chan<- job {
	select {
	case w := <-e.idle:
		return w
	default:
	}
	w := make(chan job, 1)
	go func() {
		for j := range w {
			j.done <- j.run()
		}
	}()
	return w
}

// rest keeps a worker for the next evaluation, or ends it when enough are kept.
func (e *Engine) rest(w chan<- job) {
	select {
	case e.idle <- w:
	default:
		close(w)
	}
}

// leave gives up on a worker: it ends when its evaluation does.
func (e *Engine) leave(w chan<- job, j job) {
	j.cancel.Cancel()
	close(w)
	e.orphans.Add(1)
	go func() {
		<-j.done
		e.orphans.Add(-1)
	}()
}

// Close ends the workers that rest. An Engine that is replaced is closed when its last
// decision has been given.
func (e *Engine) Close() {
	for {
		select {
		case w := <-e.idle:
			close(w)
		default:
			return
		}
	}
}

func (j job) run() (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			a = Failed(api.CodePolicyError, "evaluation panicked: %v", p)
		}
	}()
	results := takeResults(j.fixed)
	defer results.rest()
	var tracker topdown.EvaluatedRuleTracker
	j.results, j.rules = results, &tracker
	value, failed, err := j.ask(j.evaluation)
	switch {
	case err != nil && (isConflict(err) || errors.Is(err, errNotOne)):
		a = Failed(api.CodePolicyNotOneResult, "%v", err)
	case err != nil:
		a = Failed(api.CodePolicyError, "%v", err)
	case len(failed) > 0:
		a = Failed(api.CodePolicyBuiltinError, "%v", failed[0].Error())
	case value == nil:
		a = Failed(api.CodePolicyUndefined, "%s is undefined", j.ref)
	default:
		j.fixed.learn(results)
		if a.Result, err = appendJSON(nil, value); err != nil {
			a = Failed(api.CodePolicyResult, "%v", err)
		}
	}
	a.Rules = ruleNames(tracker.Labels)
	a.Labels = labelsOf(a.Rules, j.labels)
	return a
}

func isConflict(err error) bool {
	var e *topdown.Error
	return errors.As(err, &e) && e.Code == topdown.ConflictErr
}

func ruleNames(labels []map[string]any) []string {
	names := make([]string, 0, len(labels))
	for _, l := range labels {
		if name, ok := l[ruleLabel].(string); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// labelsOf are the labels of rules, each once.
func labelsOf(rules []string, labels map[string][]string) []string {
	var all []string
	for _, name := range rules {
		all = append(all, labels[name]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

package supervisor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// Config is what a Supervisor works with.
type Config struct {
	State    string          // directory of the journal, the blobs and the salt; made if need be, mode 0700
	Policies Policies        // where the policy comes from that decides, and what comes after it
	Policy   Policy          // decides instead, and never changes
	Ceiling  sandbox.Ceiling // the operator's bound on whatever policy grants
	Launcher Launcher        // builds
	Defaults Defaults        // where neither policy nor the caller says anything
	Version  string          // of this build, for records and host.info
	Ripgrep  *os.File        // the program that file workers may have search, as filetool/ripgrep.Program gives it; nil is none. It stays the caller's

	Log      *slog.Logger   // nil means slog.Default
	LogLevel *slog.LevelVar // of Log; nil: it does not change
	Settings api.Settings   // how all this was set up, to be told to whoever may ask

	Secrets *telemetry.Redactor // of the log: it is told what is in use
	Metrics *telemetry.Metrics  // nil counts where nobody looks
	Traces  *telemetry.Traces   // nil makes no spans
	Now     func() time.Time    // nil means time.Now
}

// Defaults hold where nobody said anything. They are not policy.
type Defaults struct {
	Timeout      time.Duration // of an execution; 0 means 10 minutes
	Grace        time.Duration // from TERM to KILL; 0 means 2 s
	OutputBytes  int64         // kept of each stream of an execution; 0 means 64 MiB
	InlineBytes  int64         // largest inline output; 0 means 16 KiB
	PreviewBytes int64         // of a blob that the receipt shows; 0 means 512
	Progress     time.Duration // between two progress frames of an execution; 0 means 10 s
	Queue        int64         // executions of one session that may wait for their turn; 0 means 64
	Approvals    int64         // operations of one user that may wait for leave; 0 means 16
	IdleGrace    time.Duration // from the warning that a session is idle to its end; 0 means 30 s, and at most half of its idle time
	LoadInterval time.Duration // between two looks at what a session uses while something runs in it; 0 means 5 s
	LongRunning  time.Duration // after which an execution is said to run for long, where the grant does not say; 0 means 10 minutes

	ApprovalsPerMinute int64 // how often one user may ask for leave, in the long run and at once; 0 means 60

	History          ledger.Limits // what of the past stays in view; zeros mean the ledger's defaults
	HistoryAge       time.Duration // after which what is over leaves the view; 0 means 7 days
	OutputPerSession int64         // bytes of the output of ended executions that are kept beside their receipts; 0 means 64 MiB
	BlobGrace        time.Duration // how long content stays that no record names; 0 means 1 hour
	JournalAge       time.Duration // after which records may be trimmed; 0 means never
	JournalBytes     int64         // size from which on records are trimmed; 0 means none
	SegmentBytes     int64         // of a file of the journal, which is trimmed by whole files; 0 means 64 MiB
	SnapshotEvery    int64         // records from one snapshot to the next; 0 means 20,000
	RetainEvery      time.Duration // between two rounds of retention; 0 means 10 minutes
}

func (d Defaults) filled() Defaults {
	return Defaults{
		Timeout:      cmp.Or(d.Timeout, 10*time.Minute),
		Grace:        cmp.Or(d.Grace, 2*time.Second),
		OutputBytes:  cmp.Or(d.OutputBytes, 64<<20),
		InlineBytes:  cmp.Or(d.InlineBytes, 16<<10),
		PreviewBytes: cmp.Or(d.PreviewBytes, 512),
		Progress:     cmp.Or(d.Progress, 10*time.Second),
		Queue:        cmp.Or(d.Queue, 64),
		Approvals:    cmp.Or(d.Approvals, 16),
		IdleGrace:    d.IdleGrace,
		LoadInterval: cmp.Or(d.LoadInterval, 5*time.Second),
		LongRunning:  cmp.Or(d.LongRunning, 10*time.Minute),

		ApprovalsPerMinute: cmp.Or(d.ApprovalsPerMinute, 60),

		History:          d.History,
		HistoryAge:       cmp.Or(d.HistoryAge, 7*24*time.Hour),
		OutputPerSession: cmp.Or(d.OutputPerSession, 64<<20),
		BlobGrace:        cmp.Or(d.BlobGrace, time.Hour),
		JournalAge:       d.JournalAge,
		JournalBytes:     d.JournalBytes,
		SegmentBytes:     d.SegmentBytes,
		SnapshotEvery:    cmp.Or(d.SnapshotEvery, 20_000),
		RetainEvery:      cmp.Or(d.RetainEvery, 10*time.Minute),
	}
}

// Supervisor holds the sessions of one state directory. Its methods may be called at
// the same time.
type Supervisor struct {
	policies revisions
	ceiling  sandbox.Ceiling
	launcher Launcher
	defaults Defaults
	version  string
	ripgrep  *os.File
	log      *slog.Logger
	level    *slog.LevelVar
	settings api.Settings
	secrets  *telemetry.Redactor
	metrics  *telemetry.Metrics
	traces   *telemetry.Traces
	now      func() time.Time

	host          sandbox.Host
	ceilingDigest string
	salt          []byte
	journal       *journal.Journal
	chronicle     *chronicle
	bookmarks     bookmarks
	declared      atomic.Int64 // record that says what our decisions rest on
	taken         taken
	spilled       spill
	blobs         *blob.Store
	spool         *spool.Store
	stdins        budget // of memory for stdin
	registry      *registry
	draining      atomic.Bool

	lanes        sync.Map        // of intents: the lanes that are open
	closing      context.Context // ends when Close or Leave begins: nobody waits for what need not come
	beginClosing func()

	left       chan struct{}   // closed by Leave: what lives is the successor's
	ctx        context.Context // of everything that no caller can cancel
	cancel     context.CancelCauseFunc
	admission  gate
	background sync.WaitGroup // pipes that are being drained, the watch over the runner
	undo       cleanup.Stack  // of New, and of Close
}

// New opens the state directory, settles what an earlier supervisor left unsettled,
// and checks that every operation can be served. The caller ends it with Close. ctx
// bounds New only.
func New(ctx context.Context, cfg Config) (*Supervisor, error) {
	s := &Supervisor{
		ceiling:  cfg.Ceiling,
		launcher: cfg.Launcher,
		defaults: cfg.Defaults.filled(),
		version:  cfg.Version,
		ripgrep:  cfg.Ripgrep,
		log:      cmp.Or(cfg.Log, slog.Default()),
		level:    cfg.LogLevel,
		settings: cfg.Settings,
		secrets:  cfg.Secrets,
		metrics:  cfg.Metrics,
		traces:   cfg.Traces,
		now:      cfg.Now,
		left:     make(chan struct{}),
		spilled:  spill{due: make(chan struct{}, 1)},
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.metrics == nil {
		s.metrics = telemetry.New()
	}
	s.registry = newRegistry(cmp.Or(s.defaults.History.Sessions, 2000), s.now)
	s.closing, s.beginClosing = context.WithCancel(context.Background())
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	var undo cleanup.Stack
	defer undo.Run()

	// The lock first: nothing below may happen twice at once.
	lock, err := claim(cfg.State)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { lock.Close() })
	if s.salt, err = loadSalt(filepath.Join(cfg.State, "salt")); err != nil {
		return nil, err
	}
	if s.blobs, err = blob.Open(filepath.Join(cfg.State, "blobs")); err != nil {
		return nil, err
	}
	undo.Add(func() { s.blobs.Close() })
	if s.spool, err = spool.Open(filepath.Join(cfg.State, "spool")); err != nil {
		return nil, err
	}
	undo.Add(func() { s.spool.Close() })
	undo.Add(func() {
		if s.journal != nil {
			s.journal.Close()
		}
	})
	if err := s.openJournal(cfg.State); err != nil {
		return nil, err
	}
	s.host = s.launcher.Host()
	for _, layer := range s.host.Missing() {
		s.log.Warn("this host lacks a required layer; sessions are refused", "layer", layer.Name, "detail", layer.Detail, "remedy", layer.Remedy)
	}
	undo.Add(s.policies.close)
	if err := s.openPolicy(ctx, cfg); err != nil {
		return nil, err
	}
	// The proof that the journal can be written; nothing has been touched before it.
	if err := s.declare(ctx); err != nil {
		return nil, err
	}
	if why := s.policies.refused; why != nil {
		s.recordRefusal(ctx, why, ownPrincipal())
	}
	if err := s.reconcile(ctx); err != nil {
		return nil, err
	}
	s.metrics.Watch(s.state)
	s.background.Go(s.watchRunner)
	s.background.Go(s.retention)
	s.undo, undo = undo, cleanup.Stack{}
	return s, nil
}

// claim makes the state directory, if need be, and holds it against a second supervisor.
func claim(state string) (*os.File, error) {
	if err := durable.PrivateDir(state); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := durable.Lock(state)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", state, err)
	}
	return lock, nil
}

// Available reports why no supervisor can have the state directory now. Who is going to touch what belongs
// to its supervisor, such as its runner, asks first.
func Available(state string) error {
	lock, err := claim(state)
	if err != nil {
		return err
	}
	return lock.Close()
}

// loadSalt reads the key of secret digests, or makes it. It never leaves the state
// directory: without it a digest in a record cannot be compared with a guess.
func loadSalt(file string) ([]byte, error) {
	salt, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		salt = make([]byte, saltBytes)
		rand.Read(salt)
		err = durable.Create(file, salt, 0o600)
	}
	if err == nil && len(salt) != saltBytes {
		err = fmt.Errorf("%d bytes, not %d", len(salt), saltBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("salt %s: %w", file, err)
	}
	return salt, nil
}

const saltBytes = 32

// preflight asks every entry point of every operation that is served, with a request
// that says nothing. Policy may deny it, and it must have an answer.
func preflight(policy Policy, served []api.Op) error {
	for _, op := range served {
		entrypoint, ok := rego.Entrypoint(op)
		if !ok {
			return fmt.Errorf("bug: operation %s has no entry point", op)
		}
		if !policy.Defines(entrypoint) {
			continue // it is of before there was the question, or it would not have been loaded; it denies what it would be asked
		}
		in := rego.Input{Request: &api.Request{Op: op}}
		d := policy.Decide(context.Background(), entrypoint, in)
		for _, deny := range d.Deny {
			if deny.Code == api.CodePolicyUndefined || deny.Code == api.CodePolicyNotOneResult {
				return fmt.Errorf("policy: %s has no answer for %s: %s", entrypoint, op, deny.Message)
			}
		}
	}
	return nil
}

// declare records what the decisions of this run rest on.
func (s *Supervisor) declare(ctx context.Context) error {
	ceiling, err := api.Encode(s.ceiling)
	if err != nil {
		return err
	}
	s.ceilingDigest = ledger.Digest(ceiling)
	// From the reserve: on a disk that is full, what lives is to be gone on with.
	seq, err := s.record(ctx, s.journal.Settle, append([]ledger.Record{&ledger.Start{
		Header:        ledger.At(s.now()),
		Version:       s.version,
		PolicyDigest:  s.policies.digest(),
		Ceiling:       s.ceiling,
		CeilingDigest: s.ceilingDigest,
		Limits:        s.defaults.History,
	}}, s.declaredPolicies()...)...)
	if err != nil {
		return err
	}
	s.declared.Store(seq)
	// What an earlier run left unsigned is signed now, and a journal that has records and no
	// signature was not left by us.
	if _, err = s.journal.Checkpoint(); errors.Is(err, journal.ErrFull) {
		s.log.Warn("no checkpoint yet: the disk is full", "error", err)
		return nil
	}
	return err
}

// Close refuses new work, ends every session, lets what is in flight settle, and closes
// the journal. When ctx ends first, executions lose their grace.
func (s *Supervisor) Close(ctx context.Context) error {
	idle, first := s.admission.close()
	if !first {
		<-idle
		return nil
	}
	s.beginClosing()
	var ends sync.WaitGroup
	endAll := func(grace time.Duration) {
		for _, ses := range s.registry.all() {
			ends.Go(func() { s.endSession(ses, endShutdown, grace) })
		}
	}
	endAll(s.defaults.Grace)
	select {
	case <-idle:
	case <-ctx.Done():
		endAll(0)
		<-idle
	}
	ends.Wait()
	endAll(0) // what was still being opened
	ends.Wait()
	s.cancel(errors.New("the supervisor has closed"))
	s.background.Wait()
	s.takeLast()
	if err := s.policies.finish(); err != nil {
		s.log.Warn("policy", "error", err)
	}
	s.undo.Run()
	return nil
}

// Leave ends the supervisor and leaves what lives to its successor: it refuses new work, lets
// what is not an execution settle, and closes the journal. Sessions and executions stay with the
// runner.
func (s *Supervisor) Leave(ctx context.Context) error {
	idle, first := s.admission.close()
	if !first {
		<-idle
		return nil
	}
	s.beginClosing()
	s.registry.quiet(ctx) // opens and closes are not to be cut off
	close(s.left)
	<-idle
	s.registry.leave()
	s.cancel(errors.New("the supervisor has left"))
	s.background.Wait()
	s.takeLast()
	s.undo.Run()
	return nil
}

// gate counts operations in flight and closes once.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	idle   chan struct{} // closed when the gate is and nothing is inside
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.closed && g.inside == 0 {
		close(g.idle)
	}
}

func (g *gate) close() (idle <-chan struct{}, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first = !g.closed; first {
		g.closed, g.idle = true, make(chan struct{})
		if g.inside == 0 {
			close(g.idle)
		}
	}
	return g.idle, first
}

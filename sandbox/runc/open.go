package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/oci"
	"github.com/stockade-dev/stockade/sandbox/seccomp"
)

// Open builds a session and returns what the kernel says is in force. A failure,
// wherever it falls, leaves nothing behind.
func (r *Runner) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	o := &opening{r: r, ctx: ctx, spec: spec, session: r.newSession(spec)}
	o.undo.Add(o.session.die)
	defer r.stock.refill() // once the session stands: both need the processors
	defer o.undo.Run()
	defer o.done.Run()
	var timings []sandbox.Timing
	for _, step := range steps {
		begin := time.Now()
		if err := step.do(o); err != nil {
			if errors.Is(err, errEnded) { // there has been no session yet
				err = sandbox.Errorf(sandbox.CodeInternal, "%s: init has ended", step.name)
			}
			return sandbox.Enforced{}, err
		}
		timings = append(timings, sandbox.Timing{Step: step.name, Took: time.Since(begin)})
		if r.meddle != nil {
			if err := r.meddle(step.name, o); err != nil {
				return sandbox.Enforced{}, err
			}
		}
	}
	o.enforced.Timings = timings
	o.undo.Release()
	r.mu.Lock()
	r.sessions[spec.Session] = o.session
	r.mu.Unlock()
	return o.enforced, nil
}

// opening is a session that is being built.
type opening struct {
	r       *Runner
	ctx     context.Context
	spec    sandbox.Spec
	session *session

	undo cleanup.Stack // each step adds how it is undone
	done cleanup.Stack // and what it needs no longer when Open returns, either way

	filter   []byte
	degraded []string // layers that this host lacks, and the caller does without
	slot     *slot
	files    layout
	inputs   *digests
	config   *specs.Spec // of the container
	become   guest.Setup // of init
	landlock int         // ABI that init has taken
	socket   *os.File    // our end of init's
	enforced sandbox.Enforced
}

// steps are the order of construction. Each says at its function why it stands where
// it does; a test makes Open fail after every one.
var steps = []struct {
	name string
	do   func(*opening) error
}{
	{"check", (*opening).check},
	{"reserve", (*opening).reserve},
	{"slot", (*opening).claim},
	{"files", (*opening).gather},
	{"bound", (*opening).bound},
	{"start", (*opening).start},
	{"join", (*opening).join},
	{"network", (*opening).connect},
	{"release", (*opening).release},
	{"setup", (*opening).setup},
	{"evidence", (*opening).evidence},
	{"canaries", (*opening).canaries},
}

// check comes first, and judges again whatever the daemon has judged: it parses
// callers' bytes and other people's policies, and is not to be trusted with more than
// its operator allows. What the host cannot do is said here, never left out.
func (o *opening) check() (err error) {
	if err := o.spec.Validate(); err != nil {
		return err
	}
	if err := o.r.options.Ceiling.Check(o.spec); err != nil {
		return err
	}
	if o.degraded, err = lacking(o.r.options.Host, o.spec.Degraded); err != nil {
		return err
	}
	if o.filter, err = seccomp.Compile(o.spec.Seccomp, o.has(sandbox.LayerNotify)); err != nil {
		return sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err)
	}
	return nil
}

// has reports whether the session is built with a layer that some do without.
func (o *opening) has(layer string) bool { return !slices.Contains(o.degraded, layer) }

// lacking are the layers that a host lacks and a caller does without. Any other that it lacks is
// an error: a second wall is there, or somebody has said that it need not be.
func lacking(host sandbox.Host, without []string) (degraded []string, err error) {
	var names []string
	for _, l := range host.Missing(sandbox.Degradable...) {
		names = append(names, l.Name)
	}
	for _, layer := range sandbox.Degradable {
		switch {
		case host.Has(layer):
		case slices.Contains(without, layer):
			degraded = append(degraded, layer)
		default:
			names = append(names, layer)
		}
	}
	if names != nil {
		return nil, sandbox.Errorf(sandbox.CodeUnsupported, "missing on this host: %s", strings.Join(names, ", "))
	}
	return degraded, nil
}

// reserve takes the name and counts the session, before anything is built for it. What
// the kernel needs for join begins here.
func (o *opening) reserve() (err error) {
	if err := o.r.reserve(o.spec.Session); err != nil {
		return err
	}
	o.undo.Add(func() { o.r.unreserve(o.spec.Session) })
	expected := make(chan struct{})
	go func() {
		defer close(expected)
		o.r.tree.Expect()
	}()
	o.done.Add(func() { <-expected })
	return nil
}

// claim takes a slot from the stock, or makes one.
func (o *opening) claim() (err error) {
	if o.slot = o.r.stock.claim(); o.slot == nil {
		if o.slot, err = o.r.prepare(o.ctx); err != nil {
			return err
		}
	}
	o.undo.Add(func() { o.r.discard(o.slot) })
	o.done.Add(o.slot.namespaces.close)
	o.session.base, o.session.groups = o.slot.base, o.slot.groups
	return nil
}

// gather resolves every host path and holds it by descriptor, before there is a tree
// in which a path could be mistaken for another. Declared inputs are digested while the
// rest is built.
func (o *opening) gather() (err error) {
	if o.files, err = o.r.gather(o.spec, o.session.base); err != nil {
		return err
	}
	o.done.Add(o.files.close)
	o.session.spaces = o.files.spaces
	o.undo.Add(func() {
		o.session.closeSpaces()
		_ = o.r.placeholders.Release(o.spec.Session)
	})
	o.files.group = o.session.groups.Paths()[""] + "/x"
	o.inputs = o.r.digest(o.ctx, o.spec)
	o.done.Add(o.inputs.stop)
	return nil
}

// bound puts the ceilings up before the first process of the session, so that there is
// none without, and after the files, because it is their disks that are bounded.
func (o *opening) bound() error {
	if err := o.session.groups.Bound(o.spec.Limits); err != nil || o.spec.Limits.IOBytesPerSecond == 0 {
		return err
	}
	disks, err := disksOf(o.files.devices)
	if err != nil {
		return err
	}
	return o.session.groups.BoundIO(disks, o.spec.Limits.IOBytesPerSecond)
}

// disksOf leaves out the devices that are no disks because what lies there is in memory only. Any other that is no disk
// (an overlay, what another machine serves) stays, and is refused: what is read there cannot be bounded.
func disksOf(devices []uint64) (disks []uint64, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	inMemory := map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		if before, after, ok := strings.Cut(line, " - "); ok {
			kind, _, _ := strings.Cut(after, " ")
			inMemory[strings.Fields(before)[2]] = kind == "tmpfs" || kind == "ramfs"
		}
	}
	for _, d := range devices {
		if !inMemory[fmt.Sprintf("%d:%d", unix.Major(d), unix.Minor(d))] {
			disks = append(disks, d)
		}
	}
	return disks, nil
}

// start stages the root and has libcontainer start init on it, up to init's first
// instruction.
func (o *opening) start() error {
	ours, theirs, err := guest.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	o.socket = ours
	o.undo.Add(func() { ours.Close() }) // the Conn's, once there is one; a second Close does no harm
	var clocks *oci.Clocks
	if o.has(sandbox.LayerTimeNS) {
		if clocks, err = hostClocks(); err != nil {
			return err
		}
	}
	err = staged(o.r.place, o.files, func(root string) error {
		o.config = oci.Compile(o.spec, oci.Place{
			Rootfs:   root,
			UserNS:   ownFD(o.slot.namespaces.user),
			CgroupNS: ownFD(o.slot.namespaces.cgroup),
			IDBase:   o.session.base,
			Args:     []string{"/proc/self/fd/4"},
			Clocks:   clocks,
		})
		o.session.box, err = startBox(o.config, o.r.boxes(), o.spec.Session, o.session.groups.Name(), []*os.File{theirs, o.r.init})
		return err
	})
	if err != nil {
		return err
	}
	o.undo.Add(o.session.box.kill)
	return nil
}

// hostClocks reads what the session's clocks are to be behind.
func hostClocks() (*oci.Clocks, error) {
	c := new(oci.Clocks)
	for _, clock := range []struct {
		id int32
		to *int64
	}{{unix.CLOCK_MONOTONIC, &c.Monotonic}, {unix.CLOCK_BOOTTIME, &c.Boottime}} {
		var now unix.Timespec
		if err := unix.ClockGettime(clock.id, &now); err != nil {
			return nil, fmt.Errorf("clock %d: %w", clock.id, err)
		}
		*clock.to = now.Sec
	}
	return c, nil
}

// join puts init under the ceilings, and init and executions under the device rules,
// while nothing of the caller's has run yet. Libcontainer would move its process as soon as
// there is one, and wait for that: here the kernel has had the whole start to get ready.
func (o *opening) join() error {
	s := o.session
	if err := s.groups.JoinV1(s.box.pid); err != nil {
		return err
	}
	if err := s.groups.JoinInit(s.box.pid); err != nil {
		return err
	}
	_, err := s.groups.Devices(rules(oci.Devices))
	return err
}

// release lets init execute: it is where it belongs.
func (o *opening) release() (err error) {
	if err := o.session.box.release(); err != nil {
		return err
	}
	if o.session.init, err = guest.NewConn(o.socket); err != nil {
		return err
	}
	o.undo.Add(func() { o.session.init.Close() })
	return nil
}

// setup has init become what executions inherit: limits, bounding set, filter, Landlock. Init
// does it itself, because it needs until then what they take away.
func (o *opening) setup() error {
	o.become = setup(o.spec, o.filter)
	o.become.Report = o.has(sandbox.LayerNotify)
	if o.has(sandbox.LayerLandlock) {
		o.become.Landlock, o.become.Proof = guest.Accesses(writable(o.files.attach)), guest.ProofDir
	}
	ready, err := o.session.init.Setup(o.ctx, o.become)
	if err != nil {
		return refused(err)
	}
	o.landlock = ready.Landlock
	if err := o.session.hear(ready.Listener); err != nil {
		return err
	}
	o.undo.Add(o.session.letGo)
	if err := o.session.openDisks(); err != nil {
		return err
	}
	// Init has made its threads: those stay, and only what is cloned from this one is counted with
	// the executions.
	if err := o.session.groups.JoinSpawner(o.session.box.pid); err != nil {
		return err
	}
	o.session.watchClock()
	return nil
}

// writable are the places where something of the layout can be written, the second wall's view of the first.
func writable(attached []attachment) (paths []string) {
	for _, a := range attached {
		if !a.readOnly {
			paths = append(paths, a.target)
		}
	}
	slices.Sort(paths)
	return paths
}

// evidence comes when everything stands: nobody is told "ready" before the kernel has confirmed it.
func (o *opening) evidence() (err error) {
	p := proof{session: o.session, config: o.config, attached: o.files.attach, setup: o.become, below: o.slot.namespaces.below, landlock: o.landlock, degraded: o.degraded, forge: o.r.forge}
	if o.enforced, err = p.run(); err != nil {
		return err
	}
	o.enforced.Cgroup = o.r.tree.Layout()
	o.enforced.Inputs, err = o.inputs.wait()
	return err
}

// setup is what init puts on itself and executions inherit.
func setup(spec sandbox.Spec, filter []byte) guest.Setup {
	limit := func(resource int32, n uint64) guest.Rlimit { return guest.Rlimit{Resource: resource, Cur: n, Max: n} }
	return guest.Setup{
		UID:          spec.Identity.UID,
		GID:          spec.Identity.GID,
		Groups:       spec.Identity.Groups,
		Capabilities: spec.Identity.CapabilityMask(),
		Umask:        0o022,
		OOMScoreAdj:  500, // every execution is a better victim than init, and than anything of the host's (T072)
		Rlimits: []guest.Rlimit{
			limit(unix.RLIMIT_CORE, 1), // at which the kernel (do_coredump) feeds no program of the host's core_pattern either; at 0 it does (core(5), T042)
			limit(unix.RLIMIT_MEMLOCK, 64<<10),
			limit(unix.RLIMIT_MSGQUEUE, 800<<10),
			limit(unix.RLIMIT_NOFILE, uint64(spec.Limits.Files)),
			limit(unix.RLIMIT_NPROC, uint64(spec.Limits.PIDs+sandbox.InitPIDs)), // counted per uid; behind the ceiling of the group, which counts what it refuses
			limit(unix.RLIMIT_RTPRIO, 0),
			limit(unix.RLIMIT_SIGPENDING, 1024),
		},
		Filter:  filter,
		Workdir: spec.Workdir,
	}
}

package runc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/oci"
	"github.com/stockade-dev/stockade/sandbox/seccomp"
)

// Open builds a session and returns what the kernel says is in force. Each step has
// its undo beside it: a failure, wherever it falls, leaves nothing behind.
func (r *Runner) Open(ctx context.Context, spec sandbox.Spec) (_ sandbox.Enforced, err error) {
	// Whatever the daemon has judged is judged again: it parses callers' bytes and other
	// people's policies, and is not to be trusted with more than its operator allows.
	if err := spec.Validate(); err != nil {
		return sandbox.Enforced{}, err
	}
	if err := r.options.Ceiling.Check(spec); err != nil {
		return sandbox.Enforced{}, err
	}
	// Never a silent downgrade: what the host cannot do is said, not left out.
	if missing := r.options.Host.Missing(); len(missing) > 0 {
		var names []string
		for _, l := range missing {
			names = append(names, l.Name)
		}
		return sandbox.Enforced{}, sandbox.Errorf(sandbox.CodeUnsupported, "missing on this host: %s", strings.Join(names, ", "))
	}
	filter, err := seccomp.Compile(spec.Seccomp)
	if err != nil {
		return sandbox.Enforced{}, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err)
	}

	var undo cleanup.Stack
	defer undo.Run()
	if err := r.reserve(spec.Session); err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Add(func() { r.forget(spec.Session) })
	s := &session{spec: spec, execs: map[string]*execution{}}

	// Ids of its own: two sessions share no uid, so neither can signal, trace or count
	// against the other even if a wall between them falls.
	if s.base, err = r.ids.take(); err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Add(func() { r.ids.give(s.base) })
	if err := r.step("ids"); err != nil {
		return sandbox.Enforced{}, err
	}

	// Ceilings before the first process, so that there is none without them.
	if s.groups, err = r.tree.Create(spec.Session, spec.Limits); err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Add(func() { _ = s.groups.Remove() })
	if err := s.groups.Chown(int(s.base+sandbox.InitUID), int(s.base+sandbox.InitUID)); err != nil {
		return sandbox.Enforced{}, err
	}
	if err := r.step("cgroups"); err != nil {
		return sandbox.Enforced{}, err
	}

	// The namespaces that have to exist before init does: the user namespace, for its
	// ceiling on nested ones, and the cgroup namespace, whose root is the group of
	// whoever makes it: S, not S/init.
	held, err := r.hold(ctx, s.base, s.groups)
	if err != nil {
		return sandbox.Enforced{}, err
	}
	defer held.close()
	if err := r.step("namespaces"); err != nil {
		return sandbox.Enforced{}, err
	}

	// Every host path, resolved under the caller's identity and held by descriptor.
	files, err := r.gather(spec, s.base)
	if err != nil {
		return sandbox.Enforced{}, err
	}
	defer files.close()
	if err := r.step("sources"); err != nil {
		return sandbox.Enforced{}, err
	}
	group := s.groups.Paths()[""]
	files.cgroups = filepath.Dir(group)

	// Digests of what was declared as input are taken while the rest is built.
	inputs := r.digest(ctx, spec)
	defer inputs.stop()

	ours, theirs, err := guest.Pair()
	if err != nil {
		return sandbox.Enforced{}, err
	}
	defer theirs.Close()
	undo.Add(func() { ours.Close() }) // the Conn's, once there is one; closing twice does no harm
	err = staged(r.place, files, func(root string) error {
		if err := r.step("staged"); err != nil {
			return err
		}
		config := oci.Compile(spec, oci.Place{
			Rootfs:   root,
			UserNS:   ownFD(held.user),
			CgroupNS: ownFD(held.cgroup),
			IDBase:   s.base,
			Args:     []string{"/proc/self/fd/4"},
		})
		s.box, err = startBox(config, r.boxes(), spec.Session, []*os.File{theirs, r.init})
		return err
	})
	if err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Add(s.box.kill)
	if err := r.step("started"); err != nil {
		return sandbox.Enforced{}, err
	}

	// Init is in S/init of the unified hierarchy, where libcontainer was shown the way.
	// The v1 groups and the device rules are put on before it executes its first
	// instruction; nothing of the caller's has run until now.
	if err := joinV1(s.groups, s.box.pid); err != nil {
		return sandbox.Enforced{}, err
	}
	if err := s.groups.JoinInit(s.box.pid); err != nil {
		return sandbox.Enforced{}, err
	}
	if err := cgroups.DevicesSetV2(group+"/x", &cgroups.Resources{Devices: rules(oci.Devices)}); err != nil {
		return sandbox.Enforced{}, fmt.Errorf("device rules: %w", err)
	}
	if err := r.step("joined"); err != nil {
		return sandbox.Enforced{}, err
	}
	if err := s.box.release(); err != nil {
		return sandbox.Enforced{}, err
	}
	if s.init, err = guest.NewConn(ours); err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Add(func() { s.init.Close() })
	if err := r.step("released"); err != nil {
		return sandbox.Enforced{}, err
	}

	// Init becomes what executions inherit: limits, bounding set, filter.
	if err := s.init.Setup(ctx, setup(spec, filter)); err != nil {
		return sandbox.Enforced{}, refused(err)
	}
	if err := r.step("setup"); err != nil {
		return sandbox.Enforced{}, err
	}

	// Nobody is told "ready" before the kernel has confirmed it.
	enforced, err := s.evidence(files)
	if err != nil {
		return sandbox.Enforced{}, err
	}
	if enforced.Inputs, err = inputs.wait(); err != nil {
		return sandbox.Enforced{}, err
	}
	enforced.Cgroup = r.tree.Layout()
	if err := r.step("evidence"); err != nil {
		return sandbox.Enforced{}, err
	}
	undo.Release()
	r.mu.Lock()
	r.sessions[spec.Session] = s
	r.mu.Unlock()
	return enforced, nil
}

// steps are the places at which a test makes Open fail.
var steps = []string{"ids", "cgroups", "namespaces", "sources", "staged", "started", "joined", "released", "setup", "evidence"}

// fault is set by builds with the tag "faults".
var fault func(step string) error

// step fails where a test wants it to.
func (r *Runner) step(name string) error {
	if r.fail == nil {
		return nil
	}
	return r.fail(name)
}

// joinV1 moves a process into the session's v1 groups. (JoinRoot would take it back
// to S in the unified hierarchy, which by now may hold no process.)
func joinV1(groups *cgroup.Session, pid int) error {
	for controller, dir := range groups.Paths() {
		if controller == "" {
			continue
		}
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move init to its %s group: %w", controller, err)
		}
	}
	return nil
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
			limit(unix.RLIMIT_CORE, 0), // the host's core_pattern may pipe into a program of the host's (T042)
			limit(unix.RLIMIT_MEMLOCK, 64<<10),
			limit(unix.RLIMIT_MSGQUEUE, 800<<10),
			limit(unix.RLIMIT_NOFILE, uint64(spec.Limits.Files)),
			limit(unix.RLIMIT_NPROC, uint64(spec.Limits.PIDs)), // counted per uid: a fork bomb leaves init its threads
			limit(unix.RLIMIT_RTPRIO, 0),
			limit(unix.RLIMIT_SIGPENDING, 1024),
		},
		Filter:  filter,
		Workdir: spec.Workdir,
	}
}

package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/internal/turns"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// Options say where a runner keeps its things and what bounds it.
type Options struct {
	State    string                           // directory of this instance, absolute; made if missing
	Instance string                           // names its groups; no two runners at a time
	Init     string                           // path of the stockade-init binary; read once
	Relay    string                           // path of the stockade-relay binary; read once. "" has only sessions without a network
	Ceiling  sandbox.Ceiling                  // checked against every Spec, whoever sent it
	Host     sandbox.Host                     // what this kernel offers
	Cgroup   cgroup.Options                   // where its groups stand
	IDs      string                           // file that the host's runners share id ranges by; "" means /run/stockade/ids
	Tell     func(format string, args ...any) // the operator of what nobody has asked for; nil is nobody
	Stock    int                              // how much is kept ready for sessions to come: each two namespaces and up to six empty groups; 0 is nothing
}

var _ launch.Handler = (*Runner)(nil)

// Runner builds, holds and destroys the sessions of one instance. Its methods may be
// called from many goroutines.
type Runner struct {
	options      Options
	state        *os.File // locked while we live
	init         *os.File // sealed
	worker       *os.File // the same, which nobody inside may read
	relay        *os.File // sealed; nil without one
	tree         *cgroup.Tree
	ids          *idRanges
	idmaps       idMaps
	stock        *stock
	place        string                  // where a staging mounts the root
	placeholders *workspace.Placeholders // of all sessions
	renewing     turns.Lines[uint32]     // of users: renews under way, whether somebody waits for them or not
	closing      atomic.Int32            // sessions that have ended, and whose overlays somebody still looks at
	swept        []*os.File              // see sweepBoxes

	// Nil but in tests: what Open does after a step, which may fail or change what was built, and what the
	// proof is told instead of what it reads.
	meddle func(step string, o *opening) error
	forge  func(file, content string) string

	mu       sync.Mutex
	sessions map[string]*session // nil while it is being built
}

// New prepares a runner, and sweeps what an earlier one of the instance left. The
// process must already be in a mount namespace of its own. The caller closes it.
func New(o Options) (_ *Runner, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	r := runnerOf(o)
	allowCores()
	if err := r.lock(&undo); err != nil {
		return nil, err
	}
	if err := r.equip(&undo); err != nil {
		return nil, err
	}
	if err := r.sweep(); err != nil {
		return nil, err
	}
	r.stock = r.newStock(o.Stock)
	undo.Release()
	return r, nil
}

// allowCores makes room for the limit of cores that executions get, which is 1 (setup): what we were started with may be 0, at
// which the kernel hands them to programs, and only CAP_SYS_RESOURCE raises it. Evidence says what it became.
func allowCores() {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &now) == nil && now.Max == 0 {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 1})
	}
}

func runnerOf(o Options) *Runner {
	if o.IDs == "" {
		o.IDs = "/run/stockade/ids"
	}
	if o.Tell == nil {
		o.Tell = func(string, ...any) {}
	}
	return &Runner{options: o, sessions: map[string]*session{}, idmaps: idMaps{open: map[owners]*os.File{}}}
}

// lock takes what no two runners can have.
func (r *Runner) lock(undo *cleanup.Stack) (err error) {
	if r.state, err = lockState(r.options.State); err != nil {
		return err
	}
	undo.Add(func() { r.state.Close() })
	if r.ids, err = openIDRanges(r.options.IDs); err != nil {
		return err
	}
	undo.Add(func() { r.ids.file.Close() })
	return nil
}

// sweep takes away what an earlier runner left. Nothing of it can still be wanted: its
// sessions ended with it.
func (r *Runner) sweep() (err error) {
	if err := r.tree.Sweep(); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if r.swept, err = sweepBoxes(r.boxes()); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	_ = r.placeholders.Sweep() // a caller's directory may be gone, and the placeholder with it
	return nil
}

// equip gets what a runner needs that begins, or that goes on for another: nothing here
// depends on what that one had.
func (r *Runner) equip(undo *cleanup.Stack) (err error) {
	if r.place, err = stagingPlace(r.options.State); err != nil {
		return err
	}
	r.placeholders, err = workspace.OpenPlaceholders(filepath.Join(r.options.State, "placeholders"), func(s sandbox.Source) (*os.File, error) {
		return reopen(s, true)
	})
	if err != nil {
		return err
	}
	if r.init, err = sealed(r.options.Init); err != nil {
		return err
	}
	undo.Add(func() { r.init.Close() })
	if r.worker, err = sealed(procFD(r.init)); err != nil {
		return err
	}
	undo.Add(func() { r.worker.Close() })
	if err := r.worker.Chmod(0o111); err != nil {
		return fmt.Errorf("seal %s: memfd: %w", r.options.Init, err)
	}
	if r.options.Relay != "" {
		if r.relay, err = sealed(r.options.Relay); err != nil {
			return err
		}
		undo.Add(func() { r.relay.Close() })
	}
	if r.tree, err = cgroup.Open(r.options.Instance, r.options.Cgroup); err != nil {
		return err
	}
	undo.Add(func() { r.tree.Close() })
	if err := showGroups(r.tree.Dir()); err != nil {
		return fmt.Errorf("show groups: %w", err)
	}
	return nil
}

// boxes is where libcontainer keeps its state.
func (r *Runner) boxes() string { return filepath.Join(r.options.State, "boxes") }

// lockState opens the state directory and holds it against a second runner.
func lockState(path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("state directory %s: not absolute", path)
	}
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	st, err := f.Stat()
	if err == nil && st.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("others may write to it (mode %v)", st.Mode().Perm())
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another runner uses it")
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("state directory %s: %w", path, err)
	}
	return f, nil
}

// stagingPlace chooses the directory on which stagings mount the root. It has to be
// reachable for any id, which the state directory need not be (below a private home),
// and the state must not be below it, because libcontainer opens that by name. What
// else is there does not matter: it is hidden in the staging's own namespace only.
func stagingPlace(state string) (string, error) {
	for _, place := range []string{"/mnt", "/tmp", "/home", "/srv"} {
		st, err := os.Lstat(place)
		if err == nil && st.IsDir() && !sandbox.Within(state, place) {
			return place, nil
		}
	}
	return "", fmt.Errorf("no directory to stage sessions on: neither /mnt, /tmp, /home nor /srv exists beside %s", state)
}

// sealed copies a binary into a memfd that nothing can change any more: a session's
// /proc/1/exe leads to it, and to no file of the host (CVE-2019-5736).
func sealed(path string) (*os.File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	f, err := memfile.OfProgram(filepath.Base(path), content, 0o555) // init runs as an id that exists only inside
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", path, err)
	}
	return f, nil
}

// Host returns what this kernel and this place offer.
func (r *Runner) Host() sandbox.Host { return r.options.Host }

// Shutdown destroys every session and gives back what the runner holds. No call may
// be in progress but those that wait for a file system, which end with the process, and none may follow.
func (r *Runner) Shutdown() error {
	r.Abandoned()
	for _, slot := range r.stock.close() {
		r.discard(slot)
	}
	err := errors.Join(r.tree.Close(), os.RemoveAll(r.boxes()))
	_ = os.Remove(r.options.State) // whose other contents, if any, are somebody else's
	r.idmaps.close()
	for _, f := range append(r.swept, r.ids.file, r.init, r.worker, r.relay, r.state) {
		f.Close()
	}
	return err
}

// reserve takes the name of a session before anything of it is built.
func (r *Runner) reserve(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.sessions[id]; taken {
		return sandbox.Errorf(sandbox.CodeInvalidSpec, "session %s exists", id)
	}
	if most := r.options.Ceiling.Sessions; most > 0 && int64(len(r.sessions)) >= most {
		return sandbox.Errorf(sandbox.CodeBusy, "%d sessions are live", len(r.sessions))
	}
	r.sessions[id] = nil
	return nil
}

// unreserve gives the name back.
func (r *Runner) unreserve(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, id)
}

func (r *Runner) session(id string) (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[id]; s != nil {
		return s, nil
	}
	return nil, sandbox.Errorf(sandbox.CodeNoSession, "no session %s", strings.ToValidUTF8(id, "?"))
}

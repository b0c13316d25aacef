package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// controllers are those that every session is bounded by.
var controllers = []string{"memory", "cpu", "pids"}

// errNoUnified is what a pure v1 host answers.
var errNoUnified = errors.New("the unified cgroup hierarchy is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")

// Mount gives a pure v1 host a unified hierarchy, without controllers, where the options
// say; elsewhere it does nothing. The caller is in a mount namespace of its own, so that
// nobody else sees it. Open does the same, and [Tree.Close] undoes it; called before, it lets
// the host be probed as Open will find it.
func (o Options) Mount() error {
	if o.Unified == "" {
		return nil
	}
	there, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return fmt.Errorf("cgroup mounts: %w", err)
	}
	if len(there) > 0 {
		return nil
	}
	if err := os.MkdirAll(o.Unified, 0o755); err != nil {
		return fmt.Errorf("unified cgroup hierarchy: %w", err)
	}
	if err := unix.Mount("cgroup2", o.Unified, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount the unified cgroup hierarchy on %s: %w", o.Unified, err)
	}
	return nil
}

// unmount undoes Mount, if dir is not empty, and takes the directory away.
func unmount(dir string) error {
	if dir == "" {
		return nil
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmount the unified cgroup hierarchy from %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("unified cgroup hierarchy: %w", err)
	}
	return nil
}

// Hierarchies is how this host lays out what sessions need.
type Hierarchies struct {
	Layout  string            // "v2", "hybrid", or "v1" where the unified hierarchy is the one that Mount made
	Version map[string]string // controller to "v1" or "v2"
	Missing []string          // controllers that neither offers

	unified hierarchy
	v1      []hierarchy
	onV2    []string // controllers to be handed down in the unified hierarchy
	io      bool     // it has the io controller, to be handed down as far as sessions
}

// hierarchy is one mounted cgroup file system, as far as this process may use it.
type hierarchy struct {
	controller string // the one that it is used for; empty for the unified hierarchy
	mount      string // where it is mounted
	group      string // group below which an instance stands, as /proc/self/cgroup has it
	parent     string // the same relative to mount; empty for its root
}

// Discover reads the layout and changes nothing.
func Discover(opts Options) (Hierarchies, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return Hierarchies{}, fmt.Errorf("cgroup mounts: %w", err)
	}
	own, err := ownGroups()
	if err != nil {
		return Hierarchies{}, err
	}

	h := Hierarchies{Version: make(map[string]string)}
	if h.unified, err = locate(mounts, own, "", opts); err != nil {
		if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return serves(m, "") }) {
			err = errNoUnified
		}
		return Hierarchies{}, err
	}
	offered, err := h.unified.offered()
	if err != nil {
		return Hierarchies{}, err
	}
	for _, c := range controllers {
		v1, err := locate(mounts, own, c, opts)
		switch {
		case err == nil:
			h.v1 = append(h.v1, v1)
			h.Version[c] = "v1"
		case !errors.Is(err, errNoHierarchy):
			return Hierarchies{}, err
		case slices.Contains(offered, c):
			h.onV2 = append(h.onV2, c)
			h.Version[c] = "v2"
		default:
			h.Missing = append(h.Missing, c)
		}
	}
	// Only beside others: for io alone the runner would have to leave its group, and few ask for it.
	h.io = len(h.onV2) > 0 && slices.Contains(offered, "io")
	switch {
	case len(h.v1) == 0:
		h.Layout = "v2"
	case opts.Unified != "" && same(h.unified.mount, opts.Unified):
		h.Layout = "v1"
	default:
		h.Layout = "hybrid"
	}
	// Not among the required: device rules are BPF programs in the unified hierarchy, and this a second wall.
	switch v1, err := locate(mounts, own, "devices", opts); {
	case err == nil:
		h.v1 = append(h.v1, v1)
		h.Version["devices"] = "v1"
	case !errors.Is(err, errNoHierarchy):
		return Hierarchies{}, err
	}
	return h, nil
}

// offered are the controllers that the parent has. One that the operator named need not
// exist yet: it would have what is handed down above it.
func (h hierarchy) offered() ([]string, error) {
	file := "/cgroup.controllers"
	for dir := h.parent; ; dir = path.Dir(dir) {
		data, err := os.ReadFile(h.mount + dir + file)
		if err == nil {
			return strings.Fields(string(data)), nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == "/" || dir == "" {
			return nil, fmt.Errorf("unified cgroup hierarchy: %w", err)
		}
		file = "/cgroup.subtree_control"
	}
}

// ownGroups is the group of this process per v1 controller, and under "" the unified one.
func ownGroups() (map[string]string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("own cgroup: %w", err)
	}
	own := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		// id:controllers:group; the last may hold colons itself.
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("own cgroup: line %q", line)
		}
		for c := range strings.SplitSeq(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own, nil
}

var errNoHierarchy = errors.New("no such cgroup hierarchy")

// locate finds where the hierarchy of a controller ("" for the unified one) is mounted,
// and the group in it that may be built upon.
func locate(mounts []*mountinfo.Info, own map[string]string, controller string, opts Options) (hierarchy, error) {
	group, ok := own[controller]
	if !ok {
		return hierarchy{}, fmt.Errorf("controller %q: %w", controller, errNoHierarchy)
	}
	switch {
	case opts.Parent != "":
		group = path.Clean("/" + opts.Parent)
	case strings.HasPrefix(group, "/.."):
		return hierarchy{}, fmt.Errorf("group %s is outside of this cgroup namespace: %w", group, errNoHierarchy)
	case controller == "" && path.Base(group) == supervisor:
		// We are below our group already: an earlier runner moved us, or systemd
		// (DelegateSubgroup=) did.
		group = path.Dir(group)
	}
	for _, m := range mounts {
		if !serves(m, controller) {
			continue
		}
		// A mount in a container shows a part of the hierarchy, from Root down.
		parent, err := filepath.Rel(m.Root, group)
		if err != nil || parent == ".." || strings.HasPrefix(parent, "../") {
			continue
		}
		h := hierarchy{controller: controller, mount: m.Mountpoint, group: group}
		if parent != "." {
			h.parent = "/" + parent
		}
		if controller != "" {
			// containerd/cgroups looks for ROOT/<controller>. Where hierarchies are mounted
			// together (cpu,cpuacct) that is a symbolic link beside the mount.
			h.mount = filepath.Join(filepath.Dir(m.Mountpoint), controller)
			if !isCgroup(h.mount) || !same(h.mount, m.Mountpoint) {
				return hierarchy{}, fmt.Errorf("controller %s at %s: %s does not lead there", controller, m.Mountpoint, h.mount)
			}
		}
		return h, nil
	}
	if controller == "" {
		return hierarchy{}, fmt.Errorf("group %s of the unified hierarchy: not mounted here: %w", group, errNoHierarchy)
	}
	return hierarchy{}, fmt.Errorf("group %s of controller %s: not mounted here: %w", group, controller, errNoHierarchy)
}

// serves reports whether a mount shows the hierarchy of a controller.
func serves(m *mountinfo.Info, controller string) bool {
	if controller == "" {
		return m.FSType == "cgroup2"
	}
	return m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), controller)
}

// isCgroup asks the file system, not the name: a stray directory beside the mounts must
// not become a "controller" whose groups are ordinary files.
func isCgroup(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP_SUPER_MAGIC
}

func same(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// supervisor is where the runner and its companions live on v2: a group that hands
// controllers to its children may hold no process itself.
const supervisor = "supervisor"

// delegate makes the group that we build upon hand our controllers down.
func (h Hierarchies) delegate(opts Options) error {
	if opts.Parent != "" {
		for _, x := range append([]hierarchy{h.unified}, h.v1...) {
			if err := os.MkdirAll(x.mount+x.parent, 0o755); err != nil {
				return fmt.Errorf("cgroup %s: %w", opts.Parent, err)
			}
		}
	}
	if len(h.onV2) == 0 {
		return nil
	}
	parent := h.unified.mount + h.unified.parent
	if exists(parent + "/cgroup.events") { // not the root of the hierarchy, which may hold processes
		if err := h.evacuate(parent, opts); err != nil {
			return err
		}
	}
	return enable(parent, h.handed())
}

// handed are the controllers that sessions get of the unified hierarchy.
func (h Hierarchies) handed() []string {
	if h.io {
		return append(slices.Clone(h.onV2), "io")
	}
	return h.onV2
}

// evacuate moves everybody out of the group that we build upon, or refuses before anything
// has been written.
func (h Hierarchies) evacuate(parent string, opts Options) error {
	s := h.site(opts)
	for range 100 { // processes fork meanwhile
		pids, err := members(parent)
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", parent, err)
		}
		if len(pids) == 0 {
			return nil
		}
		s.strangers = slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
			return pid == os.Getpid() || slices.Contains(opts.Companions, pid)
		})
		if err := s.refusal(); err != nil {
			return err
		}
		if err := os.MkdirAll(parent+"/"+supervisor, 0o755); err != nil {
			return fmt.Errorf("cgroup %s: %w", parent, err)
		}
		for _, pid := range pids {
			err := writeFile(parent+"/"+supervisor+"/cgroup.procs", strconv.Itoa(pid))
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d to cgroup %s/%s: %w", pid, parent, supervisor, err)
			}
		}
	}
	return fmt.Errorf("cgroup %s: processes appear in it faster than they can be moved", parent)
}

// site is the group of the unified hierarchy that is to be built upon, and whose it is.
type site struct {
	group     string   // as /proc/self/cgroup and --cgroup-parent have it
	named     bool     // the operator gave it to us
	delegated bool     // systemd did
	systemd   bool     // systemd runs this machine, and keeps what it did not delegate
	top       bool     // nothing above it is to be seen: a container's own
	missing   []string // controllers that it does not have, nor v1
	strangers []int    // who is in it and neither the runner nor a companion
}

func (h Hierarchies) site(opts Options) site {
	return site{
		group:     h.unified.group,
		named:     opts.Parent != "",
		delegated: delegated(h.unified.mount + h.unified.parent),
		systemd:   exists("/run/systemd/system"), // sd_booted(3)
		top:       h.unified.parent == "",
		missing:   h.Missing,
	}
}

// refusal says why the group cannot be built upon, and what to do then. A group that hands
// controllers down holds no process, so that those in it have to move: others' when the
// whole group was given to us, by the operator or by systemd, and never on a guess.
func (s site) refusal() error {
	given := s.named || s.delegated
	var why string
	switch {
	case len(s.missing) > 0:
		why = fmt.Sprintf("has no %s controller, nor has v1", strings.Join(s.missing, ", "))
	case len(s.strangers) > 0 && !given:
		why = fmt.Sprintf("holds processes of others (such as %d)", s.strangers[0])
	default:
		return nil
	}
	var remedy string
	switch {
	case s.systemd && !given:
		remedy = "start it in a scope of its own: systemd-run --scope --quiet -p Delegate=yes stockaded"
	case len(s.missing) > 0:
		remedy = "hand it down in the cgroup.subtree_control of every group above"
	case s.top:
		remedy = fmt.Sprintf("if this container is for Stockade, say --cgroup-parent %s, and they move to %s", s.group, path.Join(s.group, supervisor))
	default:
		remedy = "start stockaded in a group of its own, or name one by --cgroup-parent"
	}
	return fmt.Errorf("cgroup %s %s: %s", s.group, why, remedy)
}

// delegated reports whether systemd has given the group away (Delegate=yes): the attribute
// is how it says so, the second one since 251.
func delegated(dir string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		var value [1]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}

// enable hands controllers down to the children of a group of the unified hierarchy, as
// far as that has not been done.
func enable(dir string, want []string) error {
	if len(want) == 0 {
		return nil
	}
	file := dir + "/cgroup.subtree_control"
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cgroup controllers: %w", err)
	}
	have := strings.Fields(string(data))
	for _, c := range want {
		if slices.Contains(have, c) {
			continue
		}
		if err := writeFile(file, "+"+c); err != nil {
			return fmt.Errorf("enable cgroup controller %s below %s: %w", c, dir, err)
		}
	}
	return nil
}

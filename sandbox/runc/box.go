package runc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // device rules, as a BPF program in the unified hierarchy
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// box is init as libcontainer has started it: namespaces, root and limits of
// privilege are in force, and it waits for release before it executes.
type box struct {
	container *libcontainer.Container // to release it by; nil in a box that was found
	process   child
	dir       string // libcontainer's state of this container
	pid       int

	mu    sync.RWMutex
	ended bool // or about to: its number may be another's
}

// child is a process that has to be reaped: libcontainer's, or a found one's.
type child interface {
	Signal(os.Signal) error
	Wait() (*os.ProcessState, error)
}

// foundBox is a box that another program in this process has started and released.
func foundBox(dir string, pid int) (*box, error) {
	// A child that has not been reaped: its process id cannot be another's.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return nil, fmt.Errorf("init %d is no child of ours: %w", pid, err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("init %d: %w", pid, err)
	}
	return &box{process: process, dir: dir, pid: pid}, nil
}

// startBox builds the container. It runs on a staging thread, whose mount namespace
// the container's is copied from. files are init's descriptors from 3 on.
//
// libcontainer is used for this and for nothing else: not to run anything in the
// session, and not to destroy it, because it would remove groups by names that mean
// something else outside the staging namespace.
func startBox(spec *specs.Spec, stateDir, id, group string, files []*os.File) (_ *box, err error) {
	config, err := convert(spec, id, group)
	if err != nil {
		return nil, err
	}
	b := &box{dir: filepath.Join(stateDir, id)}
	if b.container, err = libcontainer.Create(stateDir, id, config); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	process := &libcontainer.Process{
		Init:       true,
		Args:       spec.Process.Args,
		Env:        spec.Process.Env,
		Cwd:        spec.Process.Cwd,
		UID:        int(spec.Process.User.UID),
		GID:        int(spec.Process.User.GID),
		ExtraFiles: files,
		LogLevel:   strconv.Itoa(int(logrus.ErrorLevel)), // or every stage tells its life
	}
	b.process = process
	building.RLock()
	if err = b.container.Start(process); err == nil {
		if b.pid, err = process.Pid(); err == nil {
			inits.Store(b.pid, nil)
		}
	}
	building.RUnlock()
	if err != nil {
		reapStrays()
		os.RemoveAll(b.dir)
		// A start that fails early leaves the descriptor of libcontainer's fifo to the
		// finalizer, which an idle runner would not come to for minutes.
		b.container = nil
		runtime.GC()
		return nil, fmt.Errorf("start container: %w", err)
	}
	return b, nil
}

// showGroups shows libcontainer the groups that it needs and no other. Its library reads
// below a descriptor of /sys/fs/cgroup that it opens once, which is to be the instance's group
// in the unified hierarchy, on every layout; it makes and writes groups by name, below
// what a staging mounts there: an empty group, read-only. No group that is not ours can be
// reached, and none can be written.
func showGroups(instance string) error {
	return apart(func() error {
		if err := bindGroups(instance); err != nil {
			return err
		}
		if !cgroups.IsCgroup2UnifiedMode() {
			return fmt.Errorf("bug: %s is not in the unified hierarchy", instance)
		}
		f, err := cgroups.OpenFile("/sys/fs/cgroup", "cgroup.controllers", os.O_RDONLY)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// bindGroups makes a group all that there is of the cgroups in this mount namespace.
func bindGroups(group string) error {
	if err := unix.Mount(group, "/sys/fs/cgroup", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", group, err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/sys/fs/cgroup", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only: %w", group, err)
	}
	return nil
}

// converting guards a table of specconv's: every conversion writes the owner of this
// container's device nodes into it, and hands it out.
var converting sync.Mutex

// convert gives libcontainer the configuration in its own terms.
func convert(spec *specs.Spec, id, group string) (*configs.Config, error) {
	// The id mapping that comes with the namespace is named twice: libcontainer needs
	// it to know the host id of root, and refuses to be told in a runtime-spec that
	// joins one. So the paths are put in after the conversion.
	plain, linux := *spec, *spec.Linux
	linux.Namespaces = nil
	for _, ns := range spec.Linux.Namespaces {
		linux.Namespaces = append(linux.Namespaces, specs.LinuxNamespace{Type: ns.Type})
	}
	plain.Linux = &linux
	converting.Lock()
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: id, Spec: &plain})
	if err == nil {
		for i, d := range config.Devices {
			own := *d
			config.Devices[i] = &own
		}
	}
	converting.Unlock()
	if err != nil {
		return nil, fmt.Errorf("convert configuration: %w", err)
	}
	for _, ns := range spec.Linux.Namespaces {
		if t := namespaceTypes[ns.Type]; ns.Path != "" {
			config.Namespaces.Add(t, ns.Path)
		}
	}
	config.Labels = nil
	// It reads the group, cannot make it (see showGroups), and goes on without moving init.
	config.Cgroups = &cgroups.Cgroup{Parent: "/" + group, Name: "init", Rootless: true, Resources: &cgroups.Resources{}}
	return config, nil
}

// rules are the device rules as the cgroups library has them.
func rules(in []specs.LinuxDeviceCgroup) []*devices.Rule {
	number := func(n *int64) int64 {
		if n == nil {
			return devices.Wildcard
		}
		return *n
	}
	var out []*devices.Rule
	for _, d := range in {
		r := &devices.Rule{Type: devices.WildcardDevice, Major: number(d.Major), Minor: number(d.Minor), Permissions: devices.Permissions(d.Access), Allow: d.Allow}
		if d.Type != "" {
			r.Type = devices.Type(d.Type[0])
		}
		out = append(out, r)
	}
	return out
}

var namespaceTypes = map[specs.LinuxNamespaceType]configs.NamespaceType{
	specs.UserNamespace:   configs.NEWUSER,
	specs.CgroupNamespace: configs.NEWCGROUP,
}

// sweepBoxes forgets the containers of an earlier runner. An init that it had started and
// not yet moved to its groups waits to be released, for ever: it is let go on, and ends,
// because nobody is at the other end of its socket. It may not have come to the place
// where it waits yet, so the receiver keeps the descriptors as long as it lives.
func sweepBoxes(dir string) (released []*os.File, err error) {
	waiting, err := filepath.Glob(filepath.Join(dir, "*", "exec.fifo"))
	if err != nil {
		return nil, err
	}
	for _, path := range waiting {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err == nil {
			released = append(released, os.NewFile(uintptr(fd), path))
		}
	}
	return released, os.RemoveAll(dir)
}

// release lets init execute.
func (b *box) release() error {
	if err := b.container.Exec(); err != nil {
		return fmt.Errorf("release init: %w", err)
	}
	return nil
}

// alive calls fn with the process id of init, which belongs to nobody else meanwhile: until kill it is our child
// and not reaped. Once it has been killed that is os.ErrProcessDone.
func (b *box) alive(fn func(pid int) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.ended {
		return os.ErrProcessDone
	}
	return fn(b.pid)
}

// open opens a file of init's in /proc.
func (b *box) open(name string, flags int) (f *os.File, err error) {
	err = b.alive(func(pid int) (err error) {
		f, err = os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), flags, 0)
		return err
	})
	return f, err
}

// kill ends init, and with it its pid namespace, and forgets the container. From here on nobody goes by
// its process id.
func (b *box) kill() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	_ = b.process.Signal(os.Kill)
	inits.Delete(b.pid) // after the signal, which was for this one
	_, _ = b.process.Wait()
	_ = os.RemoveAll(b.dir)
}

package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/internal/thread"
)

// needed are the capabilities that some step of the runner's uses.
var needed = []struct {
	name string
	bit  uint
}{
	{"CAP_CHOWN", unix.CAP_CHOWN},                     // pipes and groups that a session owns
	{"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},       // remove what a session left
	{"CAP_DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH}, // digest inputs
	{"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_KILL", unix.CAP_KILL},
	{"CAP_SETGID", unix.CAP_SETGID}, // the caller's identity, and id maps
	{"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_SETPCAP", unix.CAP_SETPCAP},
	{"CAP_SETFCAP", unix.CAP_SETFCAP},                   // root in the map of a user namespace (5.12)
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},               // loopback up
	{"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE}, // the relay's ports
	{"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE}, // /proc/PID/ns of a process in another user namespace
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	{"CAP_SYS_TIME", unix.CAP_SYS_TIME}, // the offsets of a time namespace
}

func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// Capable says what a runner would lack that is started from here: nothing gives it back, a program in its place has no more.
func Capable() error {
	_, err := capabilities()
	return err
}

func capabilities() (string, error) {
	have, err := effective()
	if err != nil {
		return "", err
	}
	var lacking []string
	for _, c := range needed {
		if have&(1<<c.bit) == 0 {
			lacking = append(lacking, c.name)
		}
	}
	if len(lacking) > 0 {
		return "", fmt.Errorf("lacks %s", strings.Join(lacking, ", "))
	}
	return fmt.Sprintf("%#x", have), nil
}

func resource() (string, error) {
	have, err := effective()
	if err == nil && have&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		err = errors.New("lacks CAP_SYS_RESOURCE")
	}
	return "", err
}

// namespace clones a child into a namespace of a kind, and into a user namespace of its own
// as every session is.
func namespace(kind uintptr) func() (string, error) {
	return func() (string, error) { return born(kind, 0) }
}

// timeNamespace cannot be cloned into by clone(2): the child makes its own.
func timeNamespace() (string, error) { return born(0, unix.CLONE_NEWTIME) }

// born has a child that has no program to execute, so being born is all that it does.
func born(cloned, unshared uintptr) (string, error) {
	_, err := syscall.ForkExec("", nil, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWUSER | cloned,
		Unshareflags: unshared,
		UidMappings:  rootOnly,
		GidMappings:  rootOnly,
	}})
	if errors.Is(err, unix.ENOENT) { // the word about the program
		return "", nil
	}
	return "", fmt.Errorf("clone: %w", err)
}

// rootOnly maps one id: the caller's own, which needs no privilege.
var rootOnly = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}

// mountAPI makes a tmpfs that is mounted nowhere, and clones it. Attaching is asked of a
// descriptor that is none: the answer tells an old kernel from a bad descriptor.
func mountAPI() (string, error) {
	fd, err := detached("tmpfs")
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}); err != nil {
		return "", fmt.Errorf("mount_setattr: %w", err)
	}
	if err := unix.MoveMount(-1, "", -1, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); !errors.Is(err, unix.EBADF) {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	return "", nil
}

// detached mounts a new file system nowhere. The caller closes it.
func detached(kind string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsmount %s: %w", kind, err)
	}
	return fd, nil
}

// IDMapped tries an idmapped mount of the file system that path lies on, and names the file system.
func IDMapped(path string) (string, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open_tree %s: %w", path, err)
	}
	defer unix.Close(tree)
	return idmap(tree, path)
}

func idmappedTmpfs() (string, error) {
	fd, err := detached("tmpfs")
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return idmap(fd, "a new one")
}

func idmap(tree int, what string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(tree, &fs); err != nil {
		return "", fmt.Errorf("statfs: %w", err)
	}
	detail := fmt.Sprintf("%s (type %#x)", what, fs.Type)
	if name, ok := fileSystems[int64(fs.Type)]; ok {
		detail = name + " on " + what
	}
	user, err := userNamespace()
	if err != nil {
		return "", err
	}
	defer user.Close()
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(user.Fd()),
	}); err != nil {
		return "", fmt.Errorf("mount_setattr idmap, %s: %w", detail, err)
	}
	return detail, nil
}

var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.TMPFS_MAGIC: "tmpfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p",
}

// userNamespace returns a user namespace to map with. Its only process is stopped on the
// way to a program of which it never executes an instruction. The caller closes it.
func userNamespace() (*os.File, error) {
	runtime.LockOSThread() // a traced child belongs to the thread
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"stockade-probe"}, &syscall.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: rootOnly,
		GidMappings: rootOnly,
		Ptrace:      true,
	}})
	if err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	defer func() {
		unix.Kill(pid, unix.SIGKILL)
		for {
			var status unix.WaitStatus
			if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR && (err != nil || !status.Stopped()) {
				return
			}
		}
	}()
	user, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return user, nil
}

// overlay mounts one nowhere: over a directory whose ids are mapped, with an upper layer on a tmpfs. Which
// of its two ways to name layers a kernel has is said: by descriptor (6.15 for mounts that are attached nowhere), or by path.
func overlay() (detail string, err error) {
	for _, way := range []struct {
		name  string
		mount func(lower, store int) error
	}{{"layers by descriptor", byDescriptor}, {"layers by path", byPath}} {
		if err = layered(way.mount); err == nil {
			return way.name, nil
		}
	}
	return "", err
}

// layered calls mount with what an overlay lies over, and a tmpfs for what is written.
func layered(mount func(lower, store int) error) error {
	store, err := detached("tmpfs")
	if err != nil {
		return err
	}
	defer unix.Close(store)
	for _, dir := range []string{"lower", "upper", "work"} {
		if err := unix.Mkdirat(store, dir, 0o700); err != nil {
			return fmt.Errorf("mkdir: %w", err)
		}
	}
	lower, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(lower)
	if _, err := idmap(lower, "/"); err != nil {
		return err
	}
	return mount(lower, store)
}

func byDescriptor(lower, store int) error {
	return overlaid(func(ctx int) error {
		for _, l := range []struct {
			key, name string
			at        int
		}{{"lowerdir+", ".", lower}, {"upperdir", "upper", store}, {"workdir", "work", store}} {
			fd, err := unix.Openat(l.at, l.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.FsconfigSetFd(ctx, l.key, fd)
			unix.Close(fd)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// byPath attaches the layers where nobody else sees them.
func byPath(lower, store int) error {
	return thread.Apart(func() error {
		const place = "/proc" // whatever is there is covered in this namespace only
		if err := unix.MoveMount(store, "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("move_mount: %w", err)
		}
		if err := unix.MoveMount(lower, "", unix.AT_FDCWD, place+"/lower", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("move_mount: %w", err)
		}
		return overlaid(func(ctx int) error {
			for _, l := range []string{"lower", "upper", "work"} {
				if err := unix.FsconfigSetString(ctx, l+"dir", place+"/"+l); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func overlaid(layers func(ctx int) error) error {
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen overlay: %w", err)
	}
	defer unix.Close(ctx)
	if err := layers(ctx); err != nil {
		return fmt.Errorf("layers of an overlay: %w", err)
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("fsconfig overlay: %w", err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fsmount overlay: %w", err)
	}
	return unix.Close(fd)
}

// redirect has the kinds of rules of a session's network accepted in a network namespace that goes with its
// thread: what leaves is turned to a port of the session's own.
func redirect() (string, error) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		done <- install()
	}()
	return "", <-done
}

func install() error {
	c, err := nftables.New() // its socket is this thread's
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Name: "stockade", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Limit{Type: expr.LimitTypePkts, Rate: 1, Unit: expr.LimitTimeSecond},
		&expr.Immediate{Register: 1, Data: []byte{0, 1}},
		&expr.Redir{RegisterProtoMin: 1},
	}})
	raw := c.AddChain(&nftables.Chain{
		Name: "raw", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: raw, Exprs: []expr.Any{&expr.Notrack{}}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

func openat2() (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return "", fmt.Errorf("openat2: %w", err)
	}
	return "", unix.Close(fd)
}

func seccompFilter() (string, error) {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if _, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); e != 0 {
		return "", fmt.Errorf("seccomp: %w", e)
	}
	return "", nil
}

// notification asks whether a filter can tell a listener of calls (5.0), and be put on all threads by a process
// that gets the listener (SECCOMP_FILTER_FLAG_TSYNC_ESRCH, 5.7). It is asked without a filter, which is the
// second thing that the kernel looks at.
func notification() (string, error) {
	var sizes [3]uint16
	if _, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes))); e != 0 {
		return "", fmt.Errorf("seccomp notifications: %w", e)
	}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	if _, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0); e != unix.EFAULT {
		return "", fmt.Errorf("seccomp filter with a listener on all threads: %w", e)
	}
	return "", nil
}

func landlock() (string, error) {
	abi, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return "", fmt.Errorf("landlock_create_ruleset: %w", e)
	}
	return fmt.Sprintf("ABI %d", abi), nil
}

func sealedMemfd() (string, error) {
	f, _, err := memfile.Of("stockade-probe", strings.NewReader(""))
	if err != nil {
		return "", err
	}
	return "", f.Close()
}

func executableMemfd() (string, error) {
	fd, err := unix.MemfdCreate("stockade-probe", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err != nil {
		return "", fmt.Errorf("memfd_create MFD_EXEC: %w", err)
	}
	return "", unix.Close(fd)
}

func pidfd() (string, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return "", fmt.Errorf("pidfd_open: %w", err)
	}
	return "", unix.Close(fd)
}

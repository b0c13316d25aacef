package guest

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is the second wall over the mounts: what a mount allows by mistake is refused,
// because no [Access] gives it. It is a matter of threads, and of what is cloned from them:
// the thread that makes executions has it, and no other of init's.

// Access is what executions may do beneath a path, or with the file that it names. Everything
// may be read and executed. Device nodes are made by nobody.
type Access struct {
	Path   string
	Write  bool // files are written, made, moved and removed
	Device bool // files are written, and devices controlled; nothing is made or removed
}

// ProofDir is a Setup.Proof that every session has: a message queue is opened here by its own
// system calls, which Landlock does not see, and nothing makes one with open.
const ProofDir = "/dev/mqueue"

// Accesses are those of a session with such writable mounts, /tmp and its like among them.
func Accesses(writable []string) []Access {
	all := []Access{
		{Path: "/"},
		{Path: "/proc", Device: true}, // a process's own oom_score_adj, comm and the like
		{Path: "/dev", Device: true},  // /dev/pts and ProofDir with it
		{Path: "/dev/shm", Write: true},
	}
	for _, path := range writable {
		all = append(all, Access{Path: path, Write: true})
	}
	return all
}

// The rights of an Access.
const (
	readRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	deviceRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	writeRights  = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM

	// fileRights are those that a rule for something else than a directory may have.
	fileRights = readRights&^unix.LANDLOCK_ACCESS_FS_READ_DIR | deviceRights
)

func (a Access) rights() uint64 {
	rights := uint64(readRights)
	if a.Device {
		rights |= deviceRights
	}
	if a.Write {
		rights |= writeRights
	}
	return rights
}

// walls are what each ABI of Landlock added to what can be handled.
var walls = []struct {
	abi    int
	files  uint64
	scoped uint64 // what reaches no further than the domain: all executions are in one
}{
	{abi: 1, files: 1<<13 - 1},                                                              // 5.13: everything up to MAKE_SYM
	{abi: 2, files: unix.LANDLOCK_ACCESS_FS_REFER},                                          // 5.19: without it, nothing moves from one directory to another
	{abi: 3, files: unix.LANDLOCK_ACCESS_FS_TRUNCATE},                                       // 6.2
	{abi: 5, files: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},                                      // 6.10
	{abi: 6, scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}, // 6.12
	// Left out: TCP, of ABI 4. It is judged by port alone, and the loopback is the session's own; what leads
	// out of it has no way but the relay. ABI 7 is about logs, 8 about threads.
}

// latestABI is the newest that walls speaks of.
const latestABI = 8

// handled returns what can be restricted where Landlock has an ABI. A right that is not handled is
// everybody's.
func handled(abi int) unix.LandlockRulesetAttr {
	var attr unix.LandlockRulesetAttr
	for _, w := range walls {
		if w.abi <= abi {
			attr.Handled_access_fs |= w.files
			attr.Scoped |= w.scoped
		}
	}
	return attr
}

// domain is a set of rules that threads can enter. Rules are kept by inode: what is mounted over a
// place later is not that place any more.
type domain struct {
	fd      int // of the ruleset
	abi     int
	handled uint64 // rights of files
}

// newDomain makes the domain that s asks for, with its rules.
func newDomain(s *Setup) (*domain, error) {
	version, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 { // ENOSYS: not built; EOPNOTSUPP: not among the kernel's lsm=
		return nil, e
	}
	abi := min(int(version), latestABI)
	if s.LandlockABI != 0 {
		abi = min(abi, int(s.LandlockABI))
	}
	attr := handled(abi)
	fd, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	runtime.KeepAlive(&attr)
	if e != 0 {
		return nil, e
	}
	return &domain{int(fd), abi, attr.Handled_access_fs}, nil
}

// open returns the place of an Access. Nothing of the session's runs yet; the source of a mount
// may change all the same, and the path lead through it.
func (a Access) open() (int, error) {
	return unix.Openat2(unix.AT_FDCWD, a.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// allow adds a rule for the file or directory.
func (d *domain) allow(place int, rights uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & d.handled, Parent_fd: int32(place)}
	_, _, e := syscall.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(d.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	runtime.KeepAlive(&rule)
	return asError(e)
}

// enter restricts the calling thread, for good. E2BIG: it is in 16 domains already.
func (d *domain) enter() error {
	_, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(d.fd), 0, 0)
	return asError(e)
}

// restrict makes the session's domain, enters it, and sees that it is a wall: what could be
// done before cannot be done any more.
func (g *guestInit) restrict() error {
	s := &g.setup
	if len(s.Landlock) == 0 {
		return nil
	}
	var err error
	if g.domain, err = newDomain(s); err != nil {
		return err
	}
	for _, a := range s.Landlock {
		if err := g.allow(a); err != nil {
			return &Error{StageSetup, "landlock " + a.Path, errno(err)}
		}
	}
	if err := makeFile(s.Proof); err != nil {
		return &Error{StageSetup, "make a file in " + s.Proof, errno(err)}
	}
	if err := g.domain.enter(); err != nil {
		return err
	}
	if err := makeFile(s.Proof); err != syscall.EACCES {
		return &Error{StageSetup, "landlock does not hold in " + s.Proof, syscall.EPERM}
	}
	return nil
}

// allow adds the rule of an Access. It looks its path up as executions do: init may not reach what
// is the identity's alone.
func (g *guestInit) allow(a Access) error {
	place := -1
	e := g.asIdentity(func() syscall.Errno {
		var err error
		if place, err = a.open(); err != nil {
			return errno(err)
		}
		return 0
	})
	if e != 0 {
		return e
	}
	defer unix.Close(place)
	return g.domain.allow(place, a.rights())
}

// makeFile makes a file in a directory, and removes it.
func makeFile(dir string) error {
	name := dir + "/stockade-proof"
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return unix.Unlink(name)
}

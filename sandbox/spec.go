package sandbox

// Spec is everything about a session that has to be built. It is the product of
// the supervisor's plan and the only thing that the runner acts on.
type Spec struct {
	Session  string // id; [a-z0-9_-]{1,64}, names cgroups and directories
	Caller   Caller // under whose authority host paths are resolved
	Root     Root
	Mounts   []Mount
	Scratch  []Scratch
	Identity Identity
	Hostname string
	Workdir  string // absolute inside path, must exist once everything is mounted
	Network  string // "none"
	Seccomp  string // profile name
	Limits   Limits

	Keep       []byte // the daemon's own: held while the session lives, given back by Sessions, never told to the inside
	WithDaemon bool   // ends with the daemon's connection; otherwise it waits for the next daemon
}

// Caller is the identity that the kernel gave for the peer of the socket.
type Caller struct {
	UID, GID uint32
	Groups   []uint32
}

// RootKind says where the root file system comes from.
type RootKind string

// The root kinds.
const (
	RootHost  RootKind = "host"  // the host's system directories, read-only
	RootDir   RootKind = "dir"   // an unpacked root, read-only
	RootPaths RootKind = "paths" // only the named host paths, read-only, digested
)

// Root is the root file system. Whatever its kind, the root itself is a small
// private file system of ours; the kind says what is attached below it, so that
// no path of the caller is ever a mount target of the set-up.
type Root struct {
	Kind  RootKind
	Dir   *Source  // RootDir
	Paths []Source // RootPaths
}

// Source is a host path as it was judged: the path that was asked for, and the
// object that it led to. The runner resolves it again under the caller's identity and
// refuses when the object is another one (a swap between decision and use).
type Source struct {
	Path     string // as asked: absolute, clean
	Resolved string // after symbolic links
	Dev, Ino uint64
	Kind     string // "dir" or "file"
	OwnerUID uint32
	Mode     uint32 // permission bits
}

// Mount attaches a source inside.
type Mount struct {
	Source   Source
	Target   string // absolute inside path
	ReadOnly bool
	Digest   bool // digest the tree and name it in the evidence
}

// Scratch is a private tmpfs, mode 1777.
type Scratch struct {
	Target string
	Bytes  int64
	Inodes int64
}

// Identity is what executions run as, in the ids of the session.
type Identity struct {
	UID, GID     uint32
	Groups       []uint32
	Capabilities []string
}

// InitUID is the inside uid and gid of init. It is the last id of the session's
// range and can never be granted: a process that shares init's uid could kill it.
const InitUID = 65535

// IDs is how many ids every session owns.
const IDs = 65536

// Ranges of host ids are cut from [FirstHostID, LastHostID): above what systemd and
// distributions give out, below 2^31, where some programs see negative numbers.
const (
	FirstHostID = 0x7000_0000
	LastHostID  = 0x7fff_0000
)

// Inside reports whether a host id is one of a session's: nobody else has it.
func Inside(id uint32) bool { return FirstHostID <= id && id < LastHostID }

// Limits are the session's ceilings. All are required; zero is refused.
type Limits struct {
	MemoryBytes int64 // swap is 0
	CPUMillis   int64 // thousandths of one CPU
	PIDs        int64 // of executions; the group's own limit is this and InitPIDs
	Files       int64 // RLIMIT_NOFILE
}

// InitPIDs is the allowance for init's own threads on top of Limits.PIDs.
const InitPIDs = 16

// Exec is one command to be run in a session.
type Exec struct {
	Session    string
	ID         string   // [a-z0-9_-]{1,64}, unique in the session
	Argv       []string // Argv[0] is looked up in PATH of Env, inside
	Env        []string // complete: NAME=value
	Cwd        string   // absolute inside path
	Background bool     // leave processes that outlive the command; otherwise they are killed when it ends
	StdinOpen  bool     // stdin is a pipe whose other end the daemon writes, until CloseStdin
}

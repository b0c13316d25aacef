package sandbox

import "time"

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
	Network  Network
	Seccomp  string // profile name
	Limits   Limits
	Degraded []string // layers that the caller does without where this host lacks them: see [Layer]
	Verify   string   // "canary": try from inside what must fail, before anybody is told "ready"; "" does not

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
	Source    Source
	Target    string // absolute inside path
	ReadOnly  bool
	Overlay   *Overlay // what is written stays in the session until it is committed; nil writes to the source
	Protected []string // paths below Target, relative and clean, that nobody inside changes, creates or moves; a writable mount's only
	Digest    bool     // digest the tree and name it in the evidence
}

// Overlay is where a session keeps what it writes over a source: a tmpfs of its own, whose
// pages count as the session's memory.
type Overlay struct {
	Bytes  int64
	Inodes int64
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

// NetworkModes are the modes of a Network, in order of what they reach.
var NetworkModes = []string{"none", "egress", "full"}

// Network is what of the network a session reaches. Whatever the mode, its network
// namespace is its own and has a loopback.
type Network struct {
	Mode  string        // of NetworkModes: "none", "egress" (what Allow names) or "full" (the public internet, and what Allow names)
	Allow []Destination // none's is empty
}

// Destination is one thing that may be reached over TCP. UDP is answered for questions to DNS
// only, by the relay.
type Destination struct {
	Name     string   // a DNS name, lower case, or "*." and one for the names below it; "" when CIDR is set
	CIDR     string   // a prefix, masked; "" when Name is set
	Ports    []uint16 // none is every port
	Protocol string   // of a name: "" asks for the name in the first bytes too (TLS server name, HTTP host); "tcp" goes by address alone. "" with CIDR
}

// Limits are the session's ceilings. The first four are required; zero is refused. Of the
// others zero is none.
type Limits struct {
	MemoryBytes int64 // swap is 0
	CPUMillis   int64 // thousandths of one CPU
	PIDs        int64 // of executions; the session's own limit is this and InitPIDs
	Files       int64 // RLIMIT_NOFILE

	CPUWeight        int64         // 1 to 10,000 as cpu.weight has it; the kernel's default is 100
	CPUTime          time.Duration // user and system time of all executions together
	IOBytesPerSecond int64         // read, and written, on each device that something of the host's lies on: its root, or a mount
}

// ExecLimits are ceilings of one execution below its session's. Zero is the session's.
type ExecLimits struct {
	MemoryBytes int64
	CPUMillis   int64
	PIDs        int64 // of its whole tree
	Files       int64
	CPUTime     time.Duration // of its whole tree
}

// InitPIDs is the allowance on top of Limits.PIDs for what is ours in a session: the threads of init, and of a relay.
const InitPIDs = 48

// Exec is one command to be run in a session.
type Exec struct {
	Session    string
	ID         string   // [a-z0-9_-]{1,64}, unique in the session
	Argv       []string // Argv[0] is looked up in PATH of Env, inside
	Env        []string // complete: NAME=value
	Cwd        string   // absolute inside path
	Background bool     // leave processes that outlive the command; otherwise they are killed when it ends
	StdinOpen  bool     // stdin is a pipe whose other end the daemon writes, until CloseStdin
	Files      bool     // no command but the session's file tools, served on stdin, which is given and a socket
	Terminal   *Terminal
	Limits     ExecLimits
}

// Terminal has a command run on a terminal of its own, from the session's own devpts. Its master is then the end of stdin
// that the daemon writes, and all that comes out of it is stdout.
type Terminal struct {
	Cols, Rows int
	Script     string // can be read once inside, from descriptor ScriptFD; "" is no descriptor
}

// ScriptFD is the descriptor of a Terminal.Script.
const ScriptFD = 9

// Bounds of a terminal.
const (
	MaxTerminal = 1 << 12 // columns, or rows
	maxScript   = 1 << 14 // bytes; a pipe takes more at once
)

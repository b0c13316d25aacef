package sandbox

import (
	"io"
	"os"
	"time"
)

// Enforced is the evidence of an open: what the kernel says is in force.
type Enforced struct {
	Namespaces   map[string]uint64 // kind ("user", "mnt", …) to inode
	NoNewPrivs   bool
	Seccomp      int    // 2 = filter
	Capabilities uint64 // bounding set of an execution
	MemoryBytes  int64
	SwapBytes    int64 // beyond memory: 0
	CPUMillis    int64
	PIDs         int64
	Mounts       []string // "target type options", sorted
	Cgroup       string   // "v1", "v2" or "hybrid"
	Inputs       []TreeDigest
	Timings      []Timing // of the build, in the order of its steps

	Ceilings []CgroupFile      // each ceiling's file in each hierarchy, as read back
	Devices  string            // what holds the device allow-list: "bpf", or "bpf and devices" where the v1 controller does too
	Rlimits  map[string]uint64 // of executions: "NOFILE" to its hard limit
	Filter   string            // sha256:<hex> of the seccomp program that init was given
	Landlock int               // ABI whose rights are handled; 0 is no Landlock
	UserNS   int64             // user.max_user_namespaces inside, as its holder has read it: 0
	Network  []string          // interfaces, routes and rules of the network namespace, as text, sorted
	Degraded []string          // layers that this host lacks, and the caller does without
	Reports  map[string]string // layer to how a refusal of it comes to be told: "notification", "relay", "counter"; "" for one that cannot
	Canaries []Canary          // of Spec.Verify
}

// CgroupFile is one ceiling as the kernel holds it.
type CgroupFile struct {
	Controller string
	File       string // its name, e.g. "memory.max"
	Value      string
}

// Canary is one thing that was tried from inside.
type Canary struct {
	Name string // e.g. "write to a read-only path"
	Want string // how it must end: an errno's name, "ok" or "empty"; or "left out: " and why it was not tried
	Got  string // as Want
}

// Timing is how long one step took.
type Timing struct {
	Step string
	Took time.Duration
}

// TreeDigest is the digest of a host tree: see sandbox/runc/digest.go for the bytes.
type TreeDigest struct {
	Path   string
	Digest string // sha256:<hex>
	Files  int64
	Bytes  int64
}

// Process is an execution that was started, or taken over. The receiver of a Process closes
// its files, which are polled. The runner has duplicates of them until the execution is forgotten,
// for the daemon that comes after this one.
type Process struct {
	Stdin          Inlet         // the end that is written; nil unless Exec.StdinOpen
	Stdout, Stderr io.ReadCloser // pipes, as *os.File
	Started        time.Time
	Done           <-chan Result // one value once the command has been reaped; closed without one if the runner is gone
}

// Inlet is the end of a pipe that is written: an *os.File. A write ends at the deadline with
// os.ErrDeadlineExceeded and with what was written until then, and with Close.
type Inlet interface {
	io.WriteCloser
	SetWriteDeadline(t time.Time) error
}

// Held is a session that the runner has, as it tells a daemon that comes later.
type Held struct {
	Session string
	Keep    []byte // Spec.Keep
	Execs   []HeldExec
}

// HeldExec is an execution that was started and has not been forgotten. What is not among
// them was never started, or its end was taken note of.
type HeldExec struct {
	ID      string
	Started time.Time
	Ended   bool // its Result is there to be had
}

// Load is what a session uses at this moment.
type Load struct {
	MemoryBytes int64
	PIDs        int64
	CPUNS       int64 // that all executions have used, those that are over included
	NetworkLost bool  // its relay has died

	// Of its private file systems and overlays, the one that is fullest.
	DiskBytes, DiskInodes Fill
}

// Fill is how much of a file system is used.
type Fill struct {
	Target      string // where it is inside
	Used, Limit int64  // there is no limit where that is 0
}

// Fuller is the one of which less is left, in proportion.
func (f Fill) Fuller(g Fill) Fill {
	if g.Limit > 0 && (f.Limit <= 0 || float64(g.Used)/float64(g.Limit) > float64(f.Used)/float64(f.Limit)) {
		return g
	}
	return f
}

// Result is what became of an execution.
type Result struct {
	ExitCode int  // -1 when a signal ended it
	Signal   int  // 0 when it exited
	OOM      bool // a kill by the memory ceiling fell on it
	Usage    Usage
	Hits     []Hit     // ceilings that were reached while it ran
	Denials  []Denial  // what was refused to it, the first of each kind
	Dropped  int64     // denials that there was no room for
	Network  Traffic   // its connections through the relay
	Started  time.Time // just before the clone
	Ended    time.Time // when it was reaped
}

// Usage is what an execution or a session used.
type Usage struct {
	CPU        time.Duration // user and system, whole tree
	PeakMemory int64         // bytes; of an execution the largest resident set of one process, of a session the group's peak
	OOMKills   int64
}

// Artifact is one regular file collected from a session. The receiver closes File.
type Artifact struct {
	Path string // inside path
	File *os.File
	Size int64
	Mode uint32
	Err  string // a code ("not_found", "not_regular", …) when File is nil
}

// Hit is a ceiling that was reached.
type Hit struct {
	Ceiling string // "memory", "pids", "cpu_time", "disk_bytes", "disk_inodes"
	Scope   string // ScopeExecution, or ScopeSession when the ceiling is shared
	Object  string // the inside path that is full; "" for others than disk
	Limit   int64  // bytes, processes, nanoseconds, inodes
	Peak    int64  // the most that was used, in the same unit; 0 where the kernel does not say
	Count   int64  // how often, where the kernel counts it
}

// The ceilings of a Hit.
const (
	HitMemory     = "memory"
	HitPIDs       = "pids"
	HitCPUTime    = "cpu_time"
	HitDiskBytes  = "disk_bytes"
	HitDiskInodes = "disk_inodes"
)

// The scopes of a Hit.
const (
	ScopeExecution = "execution"
	ScopeSession   = "session"
)

// Denial is something that a layer refused, from that layer's own evidence.
type Denial struct {
	Layer   string // "seccomp", "network", "dns"
	Rule    string // which rule of it: a row of a profile, "not granted", "denied range", …
	Object  string // what was reached for: "example.org:443", or of a call that its arguments decided "AF_PACKET"; "" when the layer does not know
	Syscall string // seccomp's only
	Errno   string // as the program saw it: "EPERM"
	Grant   string // the least that would have allowed it: "seccomp:default", "network:egress example.org:443"; "" where no one thing does
	Count   int64
	At      time.Time // of the first
}

// RuleNetworkLost is the rule of the denial of an execution that ran when its session's relay had died. It is not known what it tried.
const RuleNetworkLost = "relay ended"

// MaxDenials bounds the denials of one execution: kinds, each with a count.
const MaxDenials = 32

// Traffic is what went through the relay.
type Traffic struct {
	Connections int64 // that were let through
	Refused     int64 // connections and questions that were not
	Questions   int64 // to DNS
	Sent        int64 // bytes, by what is inside
	Received    int64
}

// Change is one difference between an overlay and what lies below it.
type Change struct {
	Path string // relative to the mount; bytes, which need not be UTF-8
	Kind string // "added", "modified", "deleted"
	Type string // "file", "dir", "symlink", "fifo"; of what is there now, or was
	Mode uint32 // permission bits
	Size int64
	Link string // of a symlink
}

// Committed says what became of a commit.
type Committed struct {
	Applied int64    // changes that the source has now
	Left    []string // paths that were asked for and did not change
}

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
}

// Result is what became of an execution.
type Result struct {
	ExitCode int  // -1 when a signal ended it
	Signal   int  // 0 when it exited
	OOM      bool // a kill by the memory ceiling fell on it
	Usage    Usage
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

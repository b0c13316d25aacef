package api

import (
	"fmt"
	"slices"

	"github.com/stockade-dev/stockade/sandbox"
)

// Grant is the whole answer of policy to an open: everything that the session may
// be. In a list, absent means unconstrained by this layer and [] means nothing (C19).
// In a number, absent (0) means unconstrained by this layer; a maximum of nothing is
// said by a denial.
type Grant struct {
	Profile   string         `json:"profile,omitempty"` // name for receipts
	Root      string         `json:"root"`              // "host", "dir" or "paths": the arm that is granted
	Mounts    []GrantMount   `json:"mounts"`            // the mounts that are granted, of those asked for
	Scratch   []GrantScratch `json:"scratch"`           // private tmpfs
	Identity  Identity       `json:"identity"`
	Ceilings  Ceilings       `json:"ceilings"`
	Seccomp   string         `json:"seccomp"` // profile name: "default", "build" or "strict"
	Network   GrantNetwork   `json:"network"`
	Env       GrantEnv       `json:"env"`
	Exec      GrantExec      `json:"exec"`
	FS        *GrantFS       `json:"fs,omitzero"` // what file tools may do; absent is nothing
	Workdir   string         `json:"workdir"`
	Hostname  string         `json:"hostname"`
	TTLNS     int64          `json:"ttl_ns,omitzero"`
	IdleNS    int64          `json:"idle_timeout_ns,omitzero"`  // after so long without activity the session ends (R021)
	OnRestart string         `json:"on_restart,omitempty"`      // "terminate": the session ends with its supervisor; "" and "adopt" leave it to the caller
	Degraded  []string       `json:"accept_degraded,omitempty"` // layers that the session may be without where the host lacks them
	Verify    string         `json:"verify,omitempty"`          // "canary": what must fail is tried from inside before the session is ready
	ExpiresNS int64          `json:"expires_at_ns,omitzero"`    // the grant itself ends here (R109)
}

// ModeOverlay is the mode of a mount that is written to inside, and nowhere else before a commit. The others are ro and rw.
const ModeOverlay = "overlay"

// GrantMount is one mount that policy grants.
type GrantMount struct {
	HostPath  string `json:"host_path"`
	GuestPath string `json:"guest_path"`
	Mode      string `json:"mode"`            // "ro", "rw" or "overlay": writable inside, and nothing outside changes before a commit
	Class     string `json:"class,omitempty"` // "input": its content is digested for the receipt; any other word is the author's
	// Of a mode that writes: paths below the mount, such as ".git/hooks", that nobody inside changes, creates or moves.
	Protect []string `json:"protect,omitempty"`
	// Of an overlay: the room for what is written. Both are needed.
	Bytes  int64 `json:"bytes,omitzero"`
	Inodes int64 `json:"inodes,omitzero"`
}

// GrantScratch is a private, empty, writable file system.
type GrantScratch struct {
	GuestPath string `json:"guest_path"`
	Bytes     int64  `json:"bytes"`
	Inodes    int64  `json:"inodes"`
}

// Identity is what executions run as inside. Capabilities are names such as
// CAP_NET_BIND_SERVICE; none by default, CAP_SYS_ADMIN never.
type Identity struct {
	UID          uint32   `json:"uid"`
	GID          uint32   `json:"gid"`
	Groups       []uint32 `json:"groups,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// Ceilings bound a session. Every one but queued is set in a finished grant.
type Ceilings struct {
	MemoryBytes int64 `json:"memory_bytes,omitzero"` // swap is always 0
	CPUMillis   int64 `json:"cpu_millis,omitzero"`   // thousandths of one CPU
	PIDs        int64 `json:"pids,omitzero"`
	Files       int64 `json:"files,omitzero"`        // open files of one process
	OutputBytes int64 `json:"output_bytes,omitzero"` // per stream of one execution
	Executions  int64 `json:"executions,omitzero"`   // live at once
	Queued      int64 `json:"queued,omitzero"`       // that may wait for their turn; 0 = 64, and none where exec.queue is false

	// Those that a session need not have. 0 is none.
	CPUWeight        int64 `json:"cpu_weight,omitzero"`          // share among sessions when processors are short: 1 to 10,000, by default 100
	CPUTimeNS        int64 `json:"cpu_time_ns,omitzero"`         // user and system time of all executions together
	IOBytesPerSecond int64 `json:"io_bytes_per_second,omitzero"` // read, and written, on the devices of the mounts
	DiskBytes        int64 `json:"disk_bytes,omitzero"`          // of scratch and overlays together; such a session has no rw mount, which nothing bounds
	DiskInodes       int64 `json:"disk_inodes,omitzero"`
}

// GrantNetwork is the network that is granted.
type GrantNetwork struct {
	Mode  string        `json:"mode"`            // "none", "egress" (what allow names) or "full" (the public internet, and what allow names)
	Allow []Destination `json:"allow,omitempty"` // of egress and full

	Forward *GrantForward `json:"forward,omitzero"` // what its owner may reach inside; absent is nothing
}

// GrantForward lets the owner of a session reach ports on its loopback (host.session.forward).
type GrantForward struct {
	Ports []uint16 `json:"ports,omitzero"` // absent = every port
}

// Admits reports whether a port may be reached.
func (f *GrantForward) Admits(port uint16) bool {
	return f != nil && (f.Ports == nil || slices.Contains(f.Ports, port))
}

// Within reports whether all that f lets reach another lets reach, too.
func (f *GrantForward) Within(outer *GrantForward) bool {
	switch {
	case f == nil || outer != nil && outer.Ports == nil:
		return true
	case f.Ports == nil:
		return false
	}
	return !slices.ContainsFunc(f.Ports, func(port uint16) bool { return !outer.Admits(port) })
}

// Spec is the network for whoever builds it, or compares it with another ([sandbox.Network.Within]).
func (n GrantNetwork) Spec() sandbox.Network {
	out := sandbox.Network{Mode: n.Mode}
	for _, d := range n.Allow {
		out.Allow = append(out.Allow, sandbox.Destination(d))
	}
	return out
}

// Destination is what may be reached over TCP: a name or a prefix of addresses, with ports.
type Destination struct {
	Name     string   `json:"name,omitempty"`     // a DNS name in lower case, or "*." and one for the names below it
	CIDR     string   `json:"cidr,omitempty"`     // a prefix, such as "192.0.2.0/24"; instead of a name
	Ports    []uint16 `json:"ports,omitzero"`     // absent = every port
	Protocol string   `json:"protocol,omitempty"` // of a name: "" wants it in the first bytes, as TLS and HTTP have it; "tcp" goes by address alone
}

// Validate reports what makes a destination not well formed. Absent ports are every port; an
// empty list names nothing, and is no destination (C19).
func (d Destination) Validate() error {
	if d.Ports != nil && len(d.Ports) == 0 {
		return fmt.Errorf("destination %.100q: ports is empty, which names nothing; leave it out for every port", d.Name+d.CIDR)
	}
	return sandbox.Destination(d).Validate()
}

// GrantEnv is the environment: the names that a caller may set, and what policy sets.
type GrantEnv struct {
	Allow []string          `json:"allow,omitzero"` // names or "PREFIX_*"; absent = any, [] = none
	Set   map[string]string `json:"set,omitempty"`  // wins over the caller
	Max   int64             `json:"max,omitzero"`
}

// GrantExec bounds what may be executed in the session.
type GrantExec struct {
	MaxTimeoutNS     int64    `json:"max_timeout_ns,omitzero"`
	DefaultTimeoutNS int64    `json:"default_timeout_ns,omitzero"`
	MaxArgv          int64    `json:"max_argv,omitzero"`      // number of arguments
	MaxArgBytes      int64    `json:"max_arg_bytes,omitzero"` // of one argument
	MaxInlineBytes   int64    `json:"max_inline_bytes,omitzero"`
	OutputModes      []string `json:"output_modes,omitzero"`
	Signals          []string `json:"signals,omitzero"`
	CwdPrefixes      []string `json:"cwd_prefixes,omitzero"`
	Background       bool     `json:"background,omitzero"`      // processes may outlive the execution that started them
	Queue            *bool    `json:"queue,omitzero"`           // false: what cannot start at once is refused; absent = it waits (R052)
	OutputPrefixes   []string `json:"output_prefixes,omitzero"` // inside paths that `outputs` may name

	Shells *bool        `json:"shells,omitzero"` // false: none is opened; absent = as commands are (R175)
	Record *GrantRecord `json:"record,omitzero"` // absent: shells are not recorded
}

// GrantRecord has every shell of a session recorded, from its beginning on, as an asciicast.
type GrantRecord struct {
	Bytes int64 `json:"bytes,omitzero"` // of output, and of what is noted beside it, at most; 0 = ceilings.output_bytes
	Input bool  `json:"input,omitzero"` // what is typed, too; but nothing that is secret, or is typed where nothing is to be seen of it
}

// GrantFS bounds the file tools of a session (R093 to R106). They work inside, as the session's
// identity and on its mounts, so it can only take away from what a command could do.
type GrantFS struct {
	Ops             []string `json:"ops"`                            // of read, write, edit, patch, search, list and stat
	Roots           []string `json:"roots,omitzero"`                 // inside directories; absent = any
	WriteRoots      []string `json:"write_roots,omitzero"`           // of them, those below which alone something is changed; absent = all
	FollowSymlinks  string   `json:"follow_symlinks,omitempty"`      // "deny", "within_root_only" (default) or "allow"
	PatchFormats    []string `json:"patch_formats,omitzero"`         // "v4a" and "unified"; absent = v4a
	MaxReadBytes    int64    `json:"max_read_bytes,omitzero"`        // of one answer; more is cut
	MaxWriteBytes   int64    `json:"max_write_bytes,omitzero"`       // of one file's new content
	MaxPatchBytes   int64    `json:"max_patch_bytes,omitzero"`       // of the patch itself
	MaxInlineBytes  int64    `json:"max_inline_bytes,omitzero"`      // of an answer that is no blob
	MaxGrepResults  int64    `json:"max_grep_results,omitzero"`      // more is cut
	MaxGlobResults  int64    `json:"max_glob_results,omitzero"`      // of globs and lists; more is cut
	MaxScanFiles    int64    `json:"max_scan_files,omitzero"`        // a scan ends there, and says so
	MaxScanBytes    int64    `json:"max_scan_bytes,omitzero"`        // likewise
	MaxChangedFiles int64    `json:"max_changed_files,omitzero"`     // by one patch
	MaxReplacements int64    `json:"max_edit_replacements,omitzero"` // by one edit
}

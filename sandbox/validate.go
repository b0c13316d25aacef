package sandbox

import (
	"math"
	"path"
	"slices"
	"strings"
)

// Bounds of a well-formed Spec or Exec. They are not policy (that is the Ceiling):
// beyond them a kernel interface refuses or misreads the value.
const (
	maxPath         = 4095    // PATH_MAX without the NUL
	maxName         = 255     // NAME_MAX
	maxKeep         = 4 << 20 // of each session, in the memory of the runner: an environment, and what else a daemon needs
	maxAttached     = 1024    // sources and scratch of one session
	maxGroups       = 1024    // far below NGROUPS_MAX
	maxProtected    = 64      // of one mount: each is a mount of its own
	maxDestinations = 1024
	maxHostname     = 64       // __NEW_UTS_LEN
	minMemory       = 16 << 20 // init itself has to live in it
	minExecMemory   = 1 << 20
	maxBytes        = 1 << 50     // sums of scratch stay far from overflow
	minCPU          = 10          // the smallest cfs quota is 1 ms of a 100 ms period
	maxCPU          = 4096 * 1000 // thousandths
	maxPIDs         = 1<<22 - InitPIDs
	minFiles        = 16
	maxFiles        = 1 << 20   // fs.nr_open's default
	maxArgString    = 1<<17 - 1 // MAX_ARG_STRLEN without the NUL
	maxArgBytes     = 2 << 20   // argv and env: a quarter of the default 8 MiB stack
)

// Validate reports the first thing that makes the Spec not well formed, as an *Error
// with CodeInvalidSpec. It says nothing about permission: see [Ceiling.Check].
func (s Spec) Validate() error {
	var c checks
	c.that(validID(s.Session), "session id %.100q: not [a-z0-9_-]{1,64}", s.Session)
	c.that(len(s.Caller.Groups) <= 1<<16, "caller: %d groups", len(s.Caller.Groups)) // NGROUPS_MAX
	c.that(len(s.Keep) <= maxKeep, "keep: %d bytes, more than %d", len(s.Keep), maxKeep)
	c.root(s.Root)
	c.targets(s)
	c.identity(s.Identity)
	c.that(validHostname(s.Hostname), "hostname %.100q: not [A-Za-z0-9.-]{1,64}", s.Hostname)
	c.workdir("workdir", s.Workdir)
	c.network(s.Network)
	c.that(s.Verify == "" || s.Verify == "canary", "verify %.100q: unknown", s.Verify)
	for _, name := range s.Degraded {
		c.that(slices.Contains(Degradable, name), "degraded %.100q: cannot be done without", name)
	}
	c.that(validID(s.Seccomp), "seccomp profile %.100q: not [a-z0-9_-]{1,64}", s.Seccomp)
	for _, l := range []struct {
		name            string
		value, min, max int64
	}{
		{"memory", s.Limits.MemoryBytes, minMemory, maxBytes},
		{"cpu", s.Limits.CPUMillis, minCPU, maxCPU},
		{"pids", s.Limits.PIDs, 1, maxPIDs},
		{"files", s.Limits.Files, minFiles, maxFiles},
		{"cpu weight", s.Limits.CPUWeight, 0, 10_000},
		{"cpu time", int64(s.Limits.CPUTime), 0, math.MaxInt64},
		{"io", s.Limits.IOBytesPerSecond, 0, maxBytes},
	} {
		c.that(l.min <= l.value && l.value <= l.max, "limit %s: %d is not in %d..%d", l.name, l.value, l.min, l.max)
	}
	return c.result()
}

// Validate reports the first thing that makes the Exec not well formed, as an *Error
// with CodeInvalidSpec. Values of the environment never appear in the message.
func (e Exec) Validate() error {
	var c checks
	c.that(validID(e.Session), "session id %.100q: not [a-z0-9_-]{1,64}", e.Session)
	c.that(validID(e.ID), "execution id %.100q: not [a-z0-9_-]{1,64}", e.ID)
	if e.Files {
		c.that(len(e.Argv) == 0 && len(e.Env) == 0 && !e.Background && !e.StdinOpen && e.Limits == (ExecLimits{}), "files: no command, with its arguments, environment or limits")
	} else {
		c.that(len(e.Argv) > 0 && e.Argv[0] != "", "argv: no command")
	}
	c.workdir("cwd", e.Cwd)
	for _, l := range []struct {
		name            string
		value, min, max int64
	}{
		{"memory", e.Limits.MemoryBytes, minExecMemory, maxBytes},
		{"cpu", e.Limits.CPUMillis, minCPU, maxCPU},
		{"pids", e.Limits.PIDs, 1, maxPIDs},
		{"files", e.Limits.Files, minFiles, maxFiles},
		{"cpu time", int64(e.Limits.CPUTime), 1, math.MaxInt64},
	} {
		c.that(l.value == 0 || l.min <= l.value && l.value <= l.max, "limit %s: %d is not in %d..%d", l.name, l.value, l.min, l.max)
	}

	total := 0
	names := make(map[string]bool, len(e.Env))
	for i, arg := range e.Argv {
		c.that(len(arg) <= maxArgString && !strings.Contains(arg, "\x00"), "argv[%d]: longer than %d bytes, or holds a NUL", i, maxArgString)
		total += len(arg) + 9 // the NUL and the pointer
	}
	for i, entry := range e.Env {
		name, _, ok := strings.Cut(entry, "=")
		c.that(ok && name != "", "env[%d]: not NAME=value", i)
		c.that(len(entry) <= maxArgString && !strings.Contains(entry, "\x00"), "env[%d]: longer than %d bytes, or holds a NUL", i, maxArgString)
		c.that(!names[name], "env[%d]: the name is set twice", i)
		names[name] = true
		total += len(entry) + 9
	}
	c.that(total <= maxArgBytes, "argv and env: %d bytes, more than %d", total, maxArgBytes)
	return c.result()
}

// checks collects assertions about one document and keeps the first that fails.
type checks struct{ first *Error }

func (c *checks) that(ok bool, format string, args ...any) {
	if !ok && c.first == nil {
		c.first = Errorf(CodeInvalidSpec, format, args...)
	}
}

// result avoids the interface that holds a nil *Error.
func (c *checks) result() error {
	if c.first == nil {
		return nil
	}
	return c.first
}

func (c *checks) root(r Root) {
	switch r.Kind {
	case RootHost:
		c.that(r.Dir == nil && len(r.Paths) == 0, "root host: takes neither dir nor paths")
	case RootDir:
		c.that(r.Dir != nil && len(r.Paths) == 0, "root dir: takes a dir and no paths")
		if r.Dir != nil {
			c.source("root dir", *r.Dir)
			c.that(r.Dir.Kind == "dir", "root dir %.100q: is not a directory", r.Dir.Path)
		}
	case RootPaths:
		c.that(r.Dir == nil && len(r.Paths) > 0, "root paths: takes paths and no dir")
		for _, p := range r.Paths {
			c.source("root path", p)
		}
	default:
		c.that(false, "root kind %.100q: unknown", r.Kind)
	}
}

func (c *checks) source(what string, s Source) {
	c.that(cleanPath(s.Path), "%s %.100q: not an absolute clean path", what, s.Path)
	c.that(cleanPath(s.Resolved), "%s %.100q: resolved to %.100q, not an absolute clean path", what, s.Path, s.Resolved)
	c.that(s.Kind == "dir" || s.Kind == "file", "%s %.100q: kind %.100q is neither dir nor file", what, s.Path, s.Kind)
	c.that(s.Ino != 0, "%s %.100q: was not judged (no inode)", what, s.Path)
	c.that(s.Mode <= 0o7777, "%s %.100q: mode %#o is more than permission bits", what, s.Path, s.Mode)
}

// targets checks what is attached where: no two things at one place, nothing over what
// is always ours.
func (c *checks) targets(s Spec) {
	c.that(len(s.Root.Paths)+len(s.Mounts)+len(s.Scratch) <= maxAttached, "more than %d sources and scratch", maxAttached)
	taken := make(map[string]bool)
	target := func(what, p string) {
		c.that(cleanPath(p) && !hasControl(p), "%s target %.100q: not an absolute clean path", what, p)
		c.that(p != "/", "%s target /: is the root", what)
		for _, ours := range []string{"/proc", "/sys", "/dev"} {
			c.that(!Within(p, ours), "%s target %.100q: %s is the sandbox's own", what, p, ours)
		}
		c.that(!taken[p], "%s target %.100q: is taken twice", what, p)
		taken[p] = true
	}
	for _, p := range s.Root.Paths {
		target("root path", p.Path)
	}
	for _, m := range s.Mounts {
		c.source("mount", m.Source)
		target("mount", m.Target)
		c.that(!m.Digest || m.ReadOnly, "mount target %.100q: a digested source must be read-only", m.Target)
		c.writable(m)
	}
	for _, t := range s.Scratch {
		target("scratch", t.Target)
		c.that(1 <= t.Bytes && t.Bytes <= maxBytes, "scratch %.100q: %d bytes is not in 1..%d", t.Target, t.Bytes, int64(maxBytes))
		c.that(1 <= t.Inodes && t.Inodes <= maxBytes, "scratch %.100q: %d inodes is not in 1..%d", t.Target, t.Inodes, int64(maxBytes))
	}
}

// writable checks what only a mount that is written to has.
func (c *checks) writable(m Mount) {
	if o := m.Overlay; o != nil {
		c.that(!m.ReadOnly && m.Source.Kind == "dir", "overlay %.100q: is read-only, or not over a directory", m.Target)
		c.that(1 <= o.Bytes && o.Bytes <= maxBytes, "overlay %.100q: %d bytes is not in 1..%d", m.Target, o.Bytes, int64(maxBytes))
		c.that(1 <= o.Inodes && o.Inodes <= maxBytes, "overlay %.100q: %d inodes is not in 1..%d", m.Target, o.Inodes, int64(maxBytes))
	}
	c.that(len(m.Protected) == 0 || !m.ReadOnly && m.Source.Kind == "dir", "protected paths of %.100q: it is read-only, or not a directory", m.Target)
	c.that(len(m.Protected) <= maxProtected, "protected paths of %.100q: more than %d", m.Target, maxProtected)
	for _, p := range m.Protected {
		c.that(cleanPath("/"+p) && p != "" && !hasControl(p), "protected path %.100q of %.100q: not relative and clean", p, m.Target)
	}
}

// network checks the form of what may be reached.
func (c *checks) network(n Network) {
	c.that(slices.Contains(NetworkModes, n.Mode), "network %.100q: unknown", n.Mode)
	c.that(n.Mode != "none" || len(n.Allow) == 0, "network none: names destinations")
	c.that(len(n.Allow) <= maxDestinations, "network: more than %d destinations", maxDestinations)
	for _, d := range n.Allow {
		if err := d.Validate(); err != nil {
			c.that(false, "network: %v", err)
		}
	}
}

// identity allows uid 0: without capabilities it is a number like another, and whether
// it may be used is the ceiling's word. InitUID never: see there.
func (c *checks) identity(id Identity) {
	c.that(id.UID < InitUID && id.GID < InitUID, "identity %d:%d: not below %d", id.UID, id.GID, InitUID)
	c.that(len(id.Groups) <= maxGroups, "identity: %d groups, more than %d", len(id.Groups), maxGroups)
	for _, g := range id.Groups {
		c.that(g < InitUID, "identity: group %d is not below %d", g, InitUID)
	}
	seen := make(map[string]bool)
	for _, name := range id.Capabilities {
		_, known := capabilities[name]
		c.that(known, "capability %.100q: unknown", name)
		c.that(ungrantable[name] == "", "capability %s: never granted, %s", name, ungrantable[name])
		c.that(!seen[name], "capability %.100q: named twice", name)
		seen[name] = true
	}
}

// workdir refuses /proc: a magic link there leads out of the root (CVE-2024-21626).
func (c *checks) workdir(what, p string) {
	c.that(cleanPath(p), "%s %.100q: not an absolute clean path", what, p)
	c.that(!Within(p, "/proc"), "%s %.100q: below /proc", what, p)
}

// validID admits names that are safe as one component of a path in every hierarchy.
func validID(s string) bool {
	return 1 <= len(s) && len(s) <= 64 && only(s, func(b byte) bool {
		return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '_' || b == '-'
	})
}

func validHostname(s string) bool {
	return 1 <= len(s) && len(s) <= maxHostname && only(s, func(b byte) bool {
		return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '.'
	})
}

// only reports whether every byte of s is admitted.
func only(s string, admit func(byte) bool) bool {
	for i := range len(s) {
		if !admit(s[i]) {
			return false
		}
	}
	return true
}

// cleanPath admits one spelling of an absolute path, which the kernel can take.
func cleanPath(p string) bool {
	if !path.IsAbs(p) || len(p) > maxPath || path.Clean(p) != p || strings.Contains(p, "\x00") {
		return false
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName {
			return false
		}
	}
	return true
}

// hasControl finds what would make a line of the evidence read as two.
func hasControl(p string) bool {
	return strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// Within reports whether clean absolute path p is dir or lies below it, by components:
// /a/bc is not within /a/b (R095).
func Within(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

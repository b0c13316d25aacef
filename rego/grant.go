package rego

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// checkGrant says whether a grant is well formed. It knows nothing of ceilings.
func checkGrant(g *api.Grant) error {
	numbers := []struct {
		name  string
		value int64
	}{
		{"ceilings.memory_bytes", g.Ceilings.MemoryBytes},
		{"ceilings.cpu_millis", g.Ceilings.CPUMillis},
		{"ceilings.pids", g.Ceilings.PIDs},
		{"ceilings.files", g.Ceilings.Files},
		{"ceilings.output_bytes", g.Ceilings.OutputBytes},
		{"ceilings.executions", g.Ceilings.Executions},
		{"env.max", g.Env.Max},
		{"exec.max_timeout_ns", g.Exec.MaxTimeoutNS},
		{"exec.default_timeout_ns", g.Exec.DefaultTimeoutNS},
		{"exec.max_argv", g.Exec.MaxArgv},
		{"exec.max_arg_bytes", g.Exec.MaxArgBytes},
		{"exec.max_inline_bytes", g.Exec.MaxInlineBytes},
		{"ceilings.queued", g.Ceilings.Queued},
		{"ttl_ns", g.TTLNS},
		{"idle_timeout_ns", g.IdleNS},
		{"expires_at_ns", g.ExpiresNS},
	}
	for _, n := range numbers {
		if n.value < 0 {
			return fmt.Errorf("%s is negative", n.name)
		}
	}
	if !slices.Contains(rootKinds, sandbox.RootKind(g.Root)) {
		return fmt.Errorf("root: %q is not a kind of root", g.Root)
	}
	targets := map[string]bool{}
	for _, m := range g.Mounts {
		switch {
		case !cleanPath(m.HostPath):
			return fmt.Errorf("mounts: host path %q is not absolute and clean", m.HostPath)
		case !cleanPath(m.GuestPath) || m.GuestPath == "/":
			return fmt.Errorf("mounts: guest path %q cannot be a mount point", m.GuestPath)
		case m.Mode != "ro" && m.Mode != "rw":
			return fmt.Errorf("mounts: mode %q of %s", m.Mode, m.GuestPath)
		case targets[m.GuestPath]:
			return fmt.Errorf("mounts: %s is granted twice", m.GuestPath)
		}
		targets[m.GuestPath] = true
	}
	for _, s := range g.Scratch {
		switch {
		case !cleanPath(s.GuestPath) || s.GuestPath == "/":
			return fmt.Errorf("scratch: guest path %q cannot be a mount point", s.GuestPath)
		case s.Bytes <= 0 || s.Inodes <= 0:
			return fmt.Errorf("scratch: %s needs a size in bytes and inodes", s.GuestPath)
		case targets[s.GuestPath]:
			return fmt.Errorf("scratch: %s is granted twice", s.GuestPath)
		}
		targets[s.GuestPath] = true
	}
	for name, value := range g.Env.Set {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env: %q cannot be set", name)
		}
	}
	if !slices.Contains([]string{"", "adopt", restartTerminate}, g.OnRestart) {
		return fmt.Errorf("on_restart: %q is neither adopt nor terminate", g.OnRestart)
	}
	if g.Workdir != "" && !cleanPath(g.Workdir) {
		return fmt.Errorf("workdir: %q is not absolute and clean", g.Workdir)
	}
	return nil
}

// restartTerminate is the lesser of the two ways to live through a restart.
const restartTerminate = "terminate"

var rootKinds = []sandbox.RootKind{sandbox.RootHost, sandbox.RootDir, sandbox.RootPaths}

func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// Below reports whether p is dir or inside it, by path components (R095).
func Below(p, dir string) bool { return sandbox.Within(p, dir) }

func belowAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return Below(p, dir) })
}

// EnvAllowed reports whether a grant lets the caller set a variable. An entry is a
// name, or a prefix that ends with "*"; an absent list allows every name (C19).
func EnvAllowed(allow []string, name string) bool {
	return allow == nil || slices.ContainsFunc(allow, func(entry string) bool {
		prefix, pattern := strings.CutSuffix(entry, "*")
		return entry == name || pattern && strings.HasPrefix(name, prefix)
	})
}

// exceeds names everything in which a grant is wider than the ceiling, or holds
// what was not asked for. A number that the grant leaves out is not wider: [Meet]
// sets it.
func exceeds(g *api.Grant, in Input) []api.Deny {
	over := beyond(g, in.Ceiling)
	for _, n := range bounds(g, in.Ceiling) {
		if n.ceiling != 0 && *n.granted > n.ceiling {
			over = append(over, exceeded(n.name, "granted %d, the ceiling is %d", *n.granted, n.ceiling))
		}
	}
	asked := askedMounts(in.Request)
	for _, m := range g.Mounts {
		subject := "mount:" + m.GuestPath
		source := in.Facts.Sources[m.HostPath]
		mode, ok := asked[[2]string{m.HostPath, m.GuestPath}]
		if !ok {
			over = append(over, exceeded(subject, "%s at %s was not asked for", m.HostPath, m.GuestPath))
			continue
		}
		if m.Mode == "rw" && mode != "rw" {
			over = append(over, exceeded(subject, "granted rw, asked for ro"))
		}
		if why := outside(source, in.Ceiling); why != "" {
			over = append(over, exceeded(subject, "%s %s", m.HostPath, why))
		} else if m.Mode == "rw" && in.Ceiling.ReadWrite != nil && !belowAny(source.Resolved, in.Ceiling.ReadWrite) {
			over = append(over, exceeded(subject, "%s may not be written: it is outside the ceiling's read_write", m.HostPath))
		}
	}
	for _, p := range rootSources(in.Request) {
		if why := outside(in.Facts.Sources[p], in.Ceiling); why != "" {
			over = append(over, exceeded("root:"+p, "%s", why))
		}
	}
	return over
}

func exceeded(subject, format string, args ...any) api.Deny {
	return api.Deny{Code: api.CodeGrantExceeds, Subject: subject, Message: fmt.Sprintf(format, args...)}
}

// beyond names what of a grant the ceiling rules out and no smaller number mends.
func beyond(g *api.Grant, c sandbox.Ceiling) []api.Deny {
	var over []api.Deny
	for _, n := range names(g, c) {
		if !listed(n.ceiling, n.granted) {
			over = append(over, exceeded(n.name+":"+n.granted, "not within the ceiling"))
		}
	}
	low, high := idRange(c)
	for _, id := range append([]uint32{g.Identity.UID, g.Identity.GID}, g.Identity.Groups...) {
		if id < low || id > high {
			over = append(over, exceeded(fmt.Sprintf("identity:%d", id), "the ceiling is %d to %d", low, high))
		}
	}
	if total := scratchBytes(g); c.ScratchBytes != 0 && total > c.ScratchBytes {
		over = append(over, exceeded("scratch", "granted %d bytes, the ceiling is %d", total, c.ScratchBytes))
	}
	if n := int64(len(g.Mounts)); c.Mounts != 0 && n > c.Mounts {
		over = append(over, exceeded("mounts", "granted %d, the ceiling is %d", n, c.Mounts))
	}
	return over
}

// outside says why the ceiling does not permit a source; "" means that it does.
func outside(s Source, c sandbox.Ceiling) string {
	switch {
	case s.Found == nil:
		return "was not resolved"
	case c.MountRoots != nil && !belowAny(s.Resolved, c.MountRoots):
		return "resolves to " + s.Resolved + ", outside the ceiling's mount_roots"
	}
	for _, denied := range c.MountDenied {
		if sandbox.Within(s.Resolved, denied) || sandbox.Within(denied, s.Resolved) {
			return "resolves to " + s.Resolved + ", which reaches " + denied
		}
	}
	return ""
}

// bound is a number of a grant beside the ceiling's.
type bound struct {
	name    string
	granted *int64
	ceiling int64
}

func bounds(g *api.Grant, c sandbox.Ceiling) []bound {
	return []bound{
		{"ceilings.memory_bytes", &g.Ceilings.MemoryBytes, c.MemoryBytes},
		{"ceilings.cpu_millis", &g.Ceilings.CPUMillis, c.CPUMillis},
		{"ceilings.pids", &g.Ceilings.PIDs, c.PIDs},
		{"ceilings.files", &g.Ceilings.Files, c.Files},
		{"ceilings.output_bytes", &g.Ceilings.OutputBytes, c.OutputBytes},
		{"ceilings.executions", &g.Ceilings.Executions, c.Executions},
		{"exec.max_timeout_ns", &g.Exec.MaxTimeoutNS, c.TimeoutNS},
		{"exec.default_timeout_ns", &g.Exec.DefaultTimeoutNS, c.TimeoutNS},
		{"exec.max_inline_bytes", &g.Exec.MaxInlineBytes, c.InlineBytes},
		{"ttl_ns", &g.TTLNS, c.TTLNS},
		{"idle_timeout_ns", &g.IdleNS, c.IdleNS},
	}
}

// choice is a name in a grant beside the names that the ceiling lists.
type choice struct {
	name    string
	granted string
	ceiling []string
}

func names(g *api.Grant, c sandbox.Ceiling) []choice {
	var roots []string
	if c.Roots != nil {
		roots = []string{}
		for _, r := range c.Roots {
			roots = append(roots, string(r))
		}
	}
	list := []choice{
		{"root", g.Root, roots},
		{"seccomp", g.Seccomp, c.Seccomp},
		{"network", g.Network.Mode, c.Networks},
	}
	for _, name := range g.Identity.Capabilities {
		allowed := c.Capabilities
		if name == "CAP_SYS_ADMIN" { // never, whatever an operator writes
			allowed = []string{}
		}
		list = append(list, choice{"capability", name, allowed})
	}
	return list
}

// listed reports whether an optional list admits a name: absent admits all (C19).
func listed(list []string, name string) bool { return list == nil || slices.Contains(list, name) }

func idRange(c sandbox.Ceiling) (low, high uint32) {
	if c.UIDs == [2]uint32{} {
		return 1, sandbox.InitUID - 1
	}
	return c.UIDs[0], min(c.UIDs[1], sandbox.InitUID-1)
}

func scratchBytes(g *api.Grant) (total int64) {
	for _, s := range g.Scratch {
		total += s.Bytes
		if total < 0 { // overflow: more than any ceiling
			return 1<<63 - 1
		}
	}
	return total
}

// askedMounts gives the mode of each mount that a request asks for, by its two paths.
func askedMounts(r *api.Request) map[[2]string]string {
	asked := map[[2]string]string{}
	if r != nil && r.Open != nil && r.Open.Target.Local != nil {
		for _, m := range r.Open.Target.Local.Mounts {
			asked[[2]string{m.HostPath, m.GuestPath}] = m.Mode
		}
	}
	return asked
}

// HostPaths are the host paths that an open names, its root's and its mounts', each
// once. Facts about each are what policy needs.
func HostPaths(r *api.Request) []string {
	paths := rootSources(r)
	if r.Open != nil && r.Open.Target.Local != nil {
		for _, m := range r.Open.Target.Local.Mounts {
			paths = append(paths, m.HostPath)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// rootSources are the host paths that a request's root is made of.
func rootSources(r *api.Request) []string {
	if r == nil || r.Open == nil || r.Open.Target.Local == nil {
		return nil
	}
	switch root := r.Open.Target.Local.Root; {
	case root.Dir != nil:
		return []string{root.Dir.Path}
	case root.Paths != nil:
		return slices.Clone(root.Paths.Paths)
	}
	return nil
}

// checkLimits refuses limits of one execution that are wider than its session.
func checkLimits(l ExecLimits, s *Session) error {
	if s == nil || s.Grant == nil {
		return nil
	}
	for _, n := range []struct {
		name           string
		limit, session int64
	}{
		{"timeout_ns", l.TimeoutNS, s.Grant.Exec.MaxTimeoutNS},
		{"output_bytes", l.OutputBytes, s.Grant.Ceilings.OutputBytes},
		{"max_inline_bytes", l.MaxInlineBytes, s.Grant.Exec.MaxInlineBytes},
	} {
		if n.limit < 0 || n.session != 0 && n.limit > n.session {
			return fmt.Errorf("%s is %d, the session's is %d", n.name, n.limit, n.session)
		}
	}
	return nil
}

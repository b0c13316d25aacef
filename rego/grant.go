package rego

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/publicsuffix"

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
		{"ceilings.cpu_weight", g.Ceilings.CPUWeight},
		{"ceilings.cpu_time_ns", g.Ceilings.CPUTimeNS},
		{"ceilings.io_bytes_per_second", g.Ceilings.IOBytesPerSecond},
		{"ceilings.disk_bytes", g.Ceilings.DiskBytes},
		{"ceilings.disk_inodes", g.Ceilings.DiskInodes},
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
		case !slices.Contains(modes, m.Mode):
			return fmt.Errorf("mounts: mode %q of %s", m.Mode, m.GuestPath)
		case targets[m.GuestPath]:
			return fmt.Errorf("mounts: %s is granted twice", m.GuestPath)
		case m.Mode == api.ModeOverlay && (m.Bytes <= 0 || m.Inodes <= 0):
			return fmt.Errorf("mounts: overlay %s needs room in bytes and inodes", m.GuestPath)
		case m.Mode != api.ModeOverlay && (m.Bytes != 0 || m.Inodes != 0):
			return fmt.Errorf("mounts: %s has the room of an overlay, and is none", m.GuestPath)
		case m.Mode == "ro" && len(m.Protect) > 0:
			return fmt.Errorf("mounts: %s protects paths, and nothing is written to it", m.GuestPath)
		}
		for i, p := range m.Protect {
			if p == "" || path.Clean("/"+p) != "/"+p || strings.ContainsFunc(p, unicode.IsControl) || slices.Contains(m.Protect[:i], p) {
				return fmt.Errorf("mounts: protected path %q of %s is not relative and clean, or there twice", p, m.GuestPath)
			}
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
	if err := checkNetwork(g.Network); err != nil {
		return err
	}
	for _, layer := range g.Degraded {
		if !slices.Contains(sandbox.Degradable, layer) {
			return fmt.Errorf("accept_degraded: %q is not a layer that can be done without", layer)
		}
	}
	if g.Verify != "" && g.Verify != verifyCanary {
		return fmt.Errorf("verify: %q is not canary", g.Verify)
	}
	if !slices.Contains([]string{"", "adopt", restartTerminate}, g.OnRestart) {
		return fmt.Errorf("on_restart: %q is neither adopt nor terminate", g.OnRestart)
	}
	if g.Workdir != "" && !cleanPath(g.Workdir) {
		return fmt.Errorf("workdir: %q is not absolute and clean", g.Workdir)
	}
	return nil
}

func checkNetwork(n api.GrantNetwork) error {
	if len(n.Allow) > 0 && n.Mode != "egress" && n.Mode != "full" {
		return fmt.Errorf("network: mode %q allows nothing", n.Mode)
	}
	for _, d := range n.Allow {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
		if below, wild := strings.CutPrefix(d.Name, "*."); wild {
			if suffix, icann := publicsuffix.PublicSuffix(below); icann && suffix == below {
				return fmt.Errorf("network: %s is the names of everybody who registers one", d.Name)
			}
		}
	}
	return nil
}

// restartTerminate is the lesser of the two ways to live through a restart.
const restartTerminate = "terminate"

// verifyCanary is the greater of the two degrees of proof.
const verifyCanary = "canary"

// modes of a mount, in order of what they let a session do.
var modes = []string{"ro", api.ModeOverlay, "rw"}

// wider reports whether one mode of a mount lets a session do more than another.
func wider(mode, other string) bool { return slices.Index(modes, mode) > slices.Index(modes, other) }

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
		ask, ok := asked[[2]string{m.HostPath, m.GuestPath}]
		if !ok {
			over = append(over, exceeded(subject, "%s at %s was not asked for", m.HostPath, m.GuestPath))
			continue
		}
		if wider(m.Mode, ask.Mode) {
			over = append(over, exceeded(subject, "granted %s, asked for %s", m.Mode, ask.Mode))
		}
		if why := outside(source, in.Ceiling); why != "" {
			over = append(over, exceeded(subject, "%s %s", m.HostPath, why))
		} else if p := reaches(source.Resolved, m.Protect); p != "" {
			over = append(over, api.Deny{
				Code: api.CodeMountModeNotAllowed, Subject: "mount:" + m.HostPath,
				Message: fmt.Sprintf("%s is protected, as %s or what leads to it: mount it ro, or the tree that it is in", source.Resolved, p),
			})
		} else if m.Mode != "ro" && in.Ceiling.ReadWrite != nil && !belowAny(source.Resolved, in.Ceiling.ReadWrite) {
			over = append(over, exceeded(subject, "%s may not be written: it is outside the ceiling's read_write", m.HostPath))
		}
	}
	for _, p := range rootSources(in.Request) {
		if why := outside(in.Facts.Sources[p], in.Ceiling); why != "" {
			over = append(over, exceeded("root:"+p, "%s", why))
		}
	}
	over = append(over, unasked(g, in.Request)...)
	return append(over, unbounded(g)...)
}

// reaches returns the protected path that a source is, lies in, or leads to. What is protected goes by its place
// below a mount: .git, mounted by itself, has its hooks at another one.
func reaches(resolved string, protect []string) string {
	for _, p := range protect {
		if strings.Contains(resolved+"/", "/"+p+"/") {
			return p
		}
		for parent := path.Dir(p); parent != "."; parent = path.Dir(parent) {
			if strings.HasSuffix(resolved, "/"+parent) {
				return p
			}
		}
	}
	return ""
}

// unasked names what of the network, and of the layers to be done without, nobody asked for.
func unasked(g *api.Grant, r *api.Request) []api.Deny {
	if r == nil || r.Open == nil || r.Open.Target.Local == nil {
		return nil
	}
	var over []api.Deny
	local := r.Open.Target.Local
	wanted, granted := askedNetwork(local).Spec(), g.Network.Spec()
	if !(sandbox.Network{Mode: granted.Mode}).Within(sandbox.Network{Mode: wanted.Mode}) {
		over = append(over, exceeded("network:"+granted.Mode, "asked for %s", wanted.Mode))
	}
	for _, d := range granted.Allow {
		if len(wanted.Allow) > 0 && !slices.ContainsFunc(wanted.Allow, func(w sandbox.Destination) bool { return w.Covers(d) }) {
			over = append(over, exceeded("egress:"+d.Name+d.CIDR, "is no part of what was asked for"))
		}
	}
	for _, layer := range g.Degraded {
		if !slices.Contains(r.Open.Degraded, layer) {
			over = append(over, exceeded("degraded:"+layer, "the caller does not accept to be without it"))
		}
	}
	return over
}

// askedNetwork is the network that a request wants, with its default.
func askedNetwork(l *api.Local) api.GrantNetwork {
	return api.GrantNetwork{Mode: cmp.Or(l.NetworkMode, "none"), Allow: l.Egress}
}

// unbounded names what breaks a promise of the grant's own about the disk: private space that is larger,
// or a mount that is written to in place, which nothing bounds.
func unbounded(g *api.Grant) []api.Deny {
	var over []api.Deny
	bytes, inodes := privateRoom(g)
	for _, n := range []struct {
		name            string
		granted, within int64
	}{
		{"ceilings.disk_bytes", bytes, g.Ceilings.DiskBytes},
		{"ceilings.disk_inodes", inodes, g.Ceilings.DiskInodes},
	} {
		if n.within == 0 {
			continue
		}
		if n.granted > n.within {
			over = append(over, exceeded(n.name, "scratch and overlays have %d together, the ceiling is %d", n.granted, n.within))
		}
		for _, m := range g.Mounts {
			if m.Mode == "rw" {
				over = append(over, exceeded(n.name, "nothing bounds what is written to %s, which is rw; use overlay", m.GuestPath))
			}
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
	if total, _ := privateRoom(g); c.ScratchBytes != 0 && total > c.ScratchBytes {
		over = append(over, exceeded("scratch", "scratch and overlays have %d bytes together, the ceiling is %d", total, c.ScratchBytes))
	}
	for _, d := range g.Network.Spec().Allow {
		if c.Denies(d) {
			over = append(over, exceeded("egress:"+d.CIDR, "is in a range that no session reaches"))
		}
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
		{"ceilings.cpu_time_ns", &g.Ceilings.CPUTimeNS, c.CPUTimeNS},
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

// privateRoom is the size of all scratch and overlays together.
func privateRoom(g *api.Grant) (bytes, inodes int64) {
	for _, s := range g.Scratch {
		bytes, inodes = saturate(bytes, s.Bytes), saturate(inodes, s.Inodes)
	}
	for _, m := range g.Mounts {
		bytes, inodes = saturate(bytes, m.Bytes), saturate(inodes, m.Inodes)
	}
	return bytes, inodes
}

// saturate adds what is not negative: an overflow is more than any ceiling.
func saturate(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}

// askedMount is a mount of a request, and where it stands there.
type askedMount struct {
	api.Mount
	index int
}

// askedMounts are the mounts that a request asks for, by their two paths.
func askedMounts(r *api.Request) map[[2]string]askedMount {
	asked := map[[2]string]askedMount{}
	if r != nil && r.Open != nil && r.Open.Target.Local != nil {
		for i, m := range r.Open.Target.Local.Mounts {
			asked[[2]string{m.HostPath, m.GuestPath}] = askedMount{m, i}
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
		{"memory_bytes", l.MemoryBytes, s.Grant.Ceilings.MemoryBytes},
		{"cpu_millis", l.CPUMillis, s.Grant.Ceilings.CPUMillis},
		{"pids", l.PIDs, s.Grant.Ceilings.PIDs},
		{"files", l.Files, s.Grant.Ceilings.Files},
		{"cpu_time_ns", l.CPUTimeNS, s.Grant.Ceilings.CPUTimeNS},
	} {
		if n.limit < 0 || n.session != 0 && n.limit > n.session {
			return fmt.Errorf("%s is %d, the session's is %d", n.name, n.limit, n.session)
		}
	}
	return nil
}

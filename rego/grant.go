package rego

import (
	"fmt"
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
	for i, m := range g.Mounts {
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
		targets[m.GuestPath] = true
		if i > 0 && slices.Equal(m.Protect, g.Mounts[i-1].Protect) {
			continue // they are the policy's, and mostly the same for all
		}
		for i, p := range m.Protect {
			if p == "" || path.Clean("/"+p) != "/"+p || strings.ContainsFunc(p, unicode.IsControl) || slices.Contains(m.Protect[:i], p) {
				return fmt.Errorf("mounts: protected path %q of %s is not relative and clean, or there twice", p, m.GuestPath)
			}
		}
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
	if err := checkFS(g.FS); err != nil {
		return err
	}
	if r := g.Exec.Record; r != nil && r.Bytes < 0 {
		return fmt.Errorf("exec.record.bytes is negative")
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

// checkFS refuses what no file tool could do, and bounds that are none.
func checkFS(f *api.GrantFS) error {
	if f == nil {
		return nil
	}
	for _, l := range []struct {
		name        string
		list, known []string
	}{{"ops", f.Ops, fileOps}, {"follow_symlinks", []string{f.FollowSymlinks}, followSymlinks}, {"patch_formats", f.PatchFormats, []string{"v4a", "unified"}}} {
		for _, word := range l.list {
			if !slices.Contains(l.known, word) {
				return fmt.Errorf("fs.%s: %q is none of %s", l.name, word, strings.Join(l.known, ", "))
			}
		}
	}
	for name, dirs := range map[string][]string{"roots": f.Roots, "write_roots": f.WriteRoots} {
		for _, dir := range dirs {
			if dir != "/" && !cleanPath(strings.TrimSuffix(dir, "/")) {
				return fmt.Errorf("fs.%s: %q is not absolute and clean", name, dir)
			}
		}
	}
	for _, n := range []int64{
		f.MaxReadBytes, f.MaxWriteBytes, f.MaxPatchBytes, f.MaxInlineBytes, f.MaxGrepResults, f.MaxGlobResults,
		f.MaxScanFiles, f.MaxScanBytes, f.MaxChangedFiles, f.MaxReplacements,
	} {
		if n < 0 {
			return fmt.Errorf("fs: %d is negative", n)
		}
	}
	return nil
}

// fileOps are the classes of file tools (C20).
var fileOps = []string{"read", "write", "edit", "patch", "search", "list", "stat"}

// followSymlinks are the ways of a file tool with a symbolic link; "" is the second.
var followSymlinks = []string{"", "within_root_only", "deny", "allow"}

// checkNetwork refuses a wildcard over names that anybody can register too: *.com, *.co.uk.
func checkNetwork(n api.GrantNetwork) error {
	if len(n.Allow) > 0 && n.Mode != "egress" && n.Mode != "full" {
		return fmt.Errorf("network: mode %q allows nothing", n.Mode)
	}
	if n.Forward != nil && slices.Contains(n.Forward.Ports, 0) {
		return fmt.Errorf("network: 0 is no port to forward")
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

package rego

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

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
		if has(resolved, p) {
			return p
		}
		for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
			if before, ok := strings.CutSuffix(resolved, p[:i]); ok && strings.HasSuffix(before, "/") {
				return p
			}
		}
	}
	return ""
}

// has reports whether the components of a relative path stand somewhere in an absolute one, one after the other.
func has(absolute, relative string) bool {
	for at := 0; at+len(relative) <= len(absolute); at++ {
		i := strings.Index(absolute[at:], relative)
		if i < 0 {
			return false
		}
		at += i
		if end := at + len(relative); at > 0 && absolute[at-1] == '/' && (end == len(absolute) || absolute[end] == '/') {
			return true
		}
	}
	return false
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
	case !cleanPath(s.Resolved):
		return "resolves to " + s.Resolved + ", which is no absolute, clean path"
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
	record := g.Exec.Record
	if record == nil {
		record = new(api.GrantRecord) // nobody's
	}
	return []bound{
		{"exec.record.bytes", &record.Bytes, c.OutputBytes},
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

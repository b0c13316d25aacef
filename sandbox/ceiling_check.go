package sandbox

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
)

// DefaultCeiling is in force where the operator wrote no file, and for each member
// that the file leaves out.
func DefaultCeiling() Ceiling {
	return Ceiling{
		Roots:      []RootKind{RootHost, RootDir, RootPaths},
		MountRoots: []string{"/"},
		// Kernel state, devices, other services' sockets, boot images: a mount of one of
		// them is a way around the sandbox, whatever its mode.
		MountDenied:  []string{"/proc", "/sys", "/dev", "/run", "/boot"},
		ReadWrite:    []string{"/"},
		UIDs:         [2]uint32{1, InitUID - 1},
		Capabilities: []string{},
		Seccomp:      []string{"default", "build", "strict"},
		Networks:     []string{"none", "egress"},
		// The host's own services, and those of the machine's provider: the operator's to open, not policy's.
		NetworkDenied:          []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"},
		MemoryBytes:            8 << 30,
		CPUMillis:              16_000,
		PIDs:                   4096,
		Files:                  65_536,
		ScratchBytes:           8 << 30,
		Mounts:                 64,
		TTLNS:                  24 * 3600 * 1e9,
		IdleNS:                 0, // the ttl ends a forgotten session anyway
		TimeoutNS:              6 * 3600 * 1e9,
		OutputBytes:            1 << 30,
		InlineBytes:            1 << 20,
		Executions:             256,
		Sessions:               1024,
		SessionsPerPrincipal:   256,
		ExecutionsPerPrincipal: 1024,
	}
}

// LoadCeiling reads the operator's file; path "" gives the default. A member that the
// file leaves out keeps its default: to lift a bound, the operator writes 0, or null for
// a list. Comments and trailing commas are
// accepted; unknown or repeated members, wrong case and trailing data are refused.
func LoadCeiling(path string) (Ceiling, error) {
	if path == "" {
		return DefaultCeiling(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return Ceiling{}, fmt.Errorf("ceiling: %w", err)
	}
	defer f.Close()
	c, err := DecodeCeiling(f)
	if err != nil {
		return Ceiling{}, fmt.Errorf("ceiling %s: %w", path, err)
	}
	return c, nil
}

// DecodeCeiling is LoadCeiling for bytes that are already open.
func DecodeCeiling(r io.Reader) (Ceiling, error) {
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err == nil {
		text, err = hujson.Standardize(text)
	}
	if err != nil {
		return Ceiling{}, err
	}
	c := DefaultCeiling()
	if err := json.Unmarshal(text, &c, json.RejectUnknownMembers(true)); err != nil {
		return Ceiling{}, err
	}
	if err := c.validate(); err != nil {
		return Ceiling{}, err
	}
	return c, nil
}

// validate refuses what the operator cannot have meant: a path that never matches, a
// negative bound, a name that nothing has.
func (c Ceiling) validate() error {
	for _, l := range []struct {
		name  string
		paths []string
	}{{"mount_roots", c.MountRoots}, {"mount_denied", c.MountDenied}, {"read_write", c.ReadWrite}} {
		for _, p := range l.paths {
			if !cleanPath(p) {
				return fmt.Errorf("%s: %q is not an absolute clean path", l.name, p)
			}
		}
	}
	for _, p := range c.NetworkDenied {
		if _, err := ParsePrefix(p); err != nil {
			return fmt.Errorf("network_denied: %w", err)
		}
	}
	for _, k := range c.Roots {
		if k != RootHost && k != RootDir && k != RootPaths {
			return fmt.Errorf("roots: %q is unknown", k)
		}
	}
	for _, name := range c.Capabilities {
		if _, known := capabilities[name]; !known {
			return fmt.Errorf("capabilities: %q is unknown", name)
		}
		if why := ungrantable[name]; why != "" {
			return fmt.Errorf("capabilities: %s can never be granted, %s", name, why)
		}
	}
	if low, high := c.uids(); low > high || high >= InitUID {
		return fmt.Errorf("uids: %v is not a range below %d", c.UIDs, InitUID)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"memory_bytes", c.MemoryBytes}, {"cpu_millis", c.CPUMillis}, {"pids", c.PIDs}, {"files", c.Files},
		{"scratch_bytes", c.ScratchBytes}, {"mounts", c.Mounts}, {"ttl_ns", c.TTLNS}, {"timeout_ns", c.TimeoutNS},
		{"output_bytes", c.OutputBytes}, {"inline_bytes", c.InlineBytes}, {"executions", c.Executions},
		{"sessions", c.Sessions}, {"sessions_per_principal", c.SessionsPerPrincipal},
		{"executions_per_principal", c.ExecutionsPerPrincipal}, {"idle_ns", c.IdleNS}, {"cpu_time_ns", c.CPUTimeNS},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s: %d is negative", n.name, n.value)
		}
	}
	return nil
}

// Check reports the first thing in which a valid Spec is more than the operator allows,
// as an *Error with CodeCeiling. The members that only the daemon can know (ttl,
// time-outs, output, counts) are the daemon's to check.
func (c Ceiling) Check(s Spec) error {
	if !allows(c.Roots, s.Root.Kind) {
		return Errorf(CodeCeiling, "root %s is not allowed", s.Root.Kind)
	}
	if !allows(c.Seccomp, s.Seccomp) {
		return Errorf(CodeCeiling, "seccomp profile %s is not allowed", s.Seccomp)
	}
	if !allows(c.Networks, s.Network.Mode) {
		return Errorf(CodeCeiling, "network %s is not allowed", s.Network.Mode)
	}
	for _, name := range s.Identity.Capabilities {
		if !allows(c.Capabilities, name) {
			return Errorf(CodeCeiling, "capability %s is not allowed", name)
		}
	}
	low, high := c.uids()
	for _, id := range append([]uint32{s.Identity.UID, s.Identity.GID}, s.Identity.Groups...) {
		if id < low || id > high {
			return Errorf(CodeCeiling, "id %d is not in %d..%d", id, low, high)
		}
	}
	for _, d := range s.Network.Allow {
		if c.Denies(d) {
			return Errorf(CodeCeiling, "destination %s is in a range that is never reached", d.CIDR)
		}
	}
	if err := c.checkSources(s); err != nil {
		return err
	}
	for _, l := range []struct {
		name           string
		asked, allowed int64
	}{
		{"memory", s.Limits.MemoryBytes, c.MemoryBytes},
		{"cpu", s.Limits.CPUMillis, c.CPUMillis},
		{"pids", s.Limits.PIDs, c.PIDs},
		{"files", s.Limits.Files, c.Files},
		{"cpu time", int64(s.Limits.CPUTime), c.CPUTimeNS},
		{"scratch", s.privateBytes(), c.ScratchBytes},
		{"mounts", int64(len(s.Mounts) + len(s.Root.Paths)), c.Mounts},
	} {
		if l.allowed != 0 && l.asked > l.allowed {
			return Errorf(CodeCeiling, "%s: %d is more than %d", l.name, l.asked, l.allowed)
		}
	}
	return nil
}

// Denies reports that all of a destination lies in a range that no session reaches. One that is wider
// is no refusal: the relay leaves out of it what is denied. So it does with the addresses of names.
func (c Ceiling) Denies(d Destination) bool {
	p, err := ParsePrefix(d.CIDR)
	return err == nil && slices.ContainsFunc(c.NetworkDenied, func(s string) bool {
		denied, err := ParsePrefix(s)
		return err == nil && holds(denied, p)
	})
}

// checkSources judges resolved paths, never the ones that were asked for (R095, R096).
func (c Ceiling) checkSources(s Spec) error {
	sources := slices.Clone(s.Root.Paths)
	if s.Root.Dir != nil {
		sources = append(sources, *s.Root.Dir)
	}
	for _, m := range s.Mounts {
		sources = append(sources, m.Source)
		if !m.ReadOnly && !below(c.ReadWrite, m.Source.Resolved) {
			return Errorf(CodeCeiling, "%s may not be mounted rw", m.Source.Resolved)
		}
	}
	for _, src := range sources {
		if !below(c.MountRoots, src.Resolved) {
			return Errorf(CodeCeiling, "%s is not below an allowed mount root", src.Resolved)
		}
		for _, denied := range c.MountDenied {
			// The other way round too: a parent brings the denied directory along.
			if Within(src.Resolved, denied) || Within(denied, src.Resolved) {
				return Errorf(CodeCeiling, "%s reaches %s, which is never mounted", src.Resolved, denied)
			}
		}
	}
	return nil
}

// uids is the range with its documented zero filled in.
func (c Ceiling) uids() (low, high uint32) {
	if c.UIDs == [2]uint32{} {
		return 1, InitUID - 1
	}
	return c.UIDs[0], c.UIDs[1]
}

// allows reads a list as C19 has it: absent leaves everything, empty allows nothing.
func allows[T comparable](list []T, v T) bool { return list == nil || slices.Contains(list, v) }

// below is allows for directories.
func below(dirs []string, p string) bool {
	return dirs == nil || slices.ContainsFunc(dirs, func(dir string) bool { return Within(p, dir) })
}

// privateBytes is the room of all scratch and overlays. The sum cannot overflow in a valid Spec, and
// saturates in another.
func (s Spec) privateBytes() int64 {
	var sum int64
	add := func(n int64) {
		if n > math.MaxInt64-sum {
			n = math.MaxInt64 - sum
		}
		sum += n
	}
	for _, t := range s.Scratch {
		add(t.Bytes)
	}
	for _, m := range s.Mounts {
		if m.Overlay != nil {
			add(m.Overlay.Bytes)
		}
	}
	return sum
}

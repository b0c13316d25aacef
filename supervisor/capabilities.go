package supervisor

import (
	"context"
	"slices"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Capabilities says what a session can be held by here, as far as host and operator go. What policy makes of it, Decide
// says.
func (s *Supervisor) Capabilities(ctx context.Context, req *api.Request) (*api.Capabilities, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	return capabilities(s.host, s.ceiling), nil, nil
}

// capabilities meets what a host can do with what its operator allows. It is pure.
func capabilities(h sandbox.Host, c sandbox.Ceiling) *api.Capabilities {
	out := &api.Capabilities{
		Kernel:     h.Kernel,
		Arch:       h.Arch,
		Cgroup:     h.Cgroup,
		Layers:     h.Layers,
		Degradable: sandbox.Degradable,
		Roots:      []string{},
		Profiles:   allowed(c.Seccomp, "default", "build", "strict"),
		Networks:   []string{},
		MountModes: []string{"ro"},
		Ceilings:   []api.CeilingKind{},
	}
	for _, l := range h.Missing() {
		out.Missing = append(out.Missing, l.Name)
	}
	out.Sessions = len(out.Missing) == 0
	for _, name := range sandbox.Degradable {
		if !h.Has(name) {
			out.Degraded = append(out.Degraded, name)
		}
	}
	for _, root := range allowed(c.Roots, sandbox.RootHost, sandbox.RootDir, sandbox.RootPaths) {
		out.Roots = append(out.Roots, string(root))
	}
	for _, mode := range allowed(c.Networks, slices.Clone(sandbox.NetworkModes)...) {
		if mode == "none" || can(h, sandbox.LayerNetwork) {
			out.Networks = append(out.Networks, mode)
		}
	}
	if c.ReadWrite == nil || len(c.ReadWrite) > 0 {
		out.MountModes = append(out.MountModes, "rw")
	}
	if can(h, sandbox.LayerOverlay) {
		out.MountModes = append(out.MountModes, api.ModeOverlay)
	}
	for _, k := range ceilingKinds {
		kind := api.CeilingKind{Name: k.name, Session: true, Execution: k.execution, Max: k.max(c)}
		if k.needs != "" && !can(h, k.needs) {
			kind.Session, kind.Detail = false, "this host lacks: "+k.needs
		}
		if k.grouped && kind.Execution {
			kind.Execution = can(h, sandbox.LayerExecLimits)
			switch {
			case !kind.Execution:
				kind.Detail = "of one execution: this host lacks: " + sandbox.LayerExecLimits
			case h.Cgroup != "v2":
				kind.Detail = "of one execution: its start takes 5 to 15 ms longer"
			}
		}
		out.Ceilings = append(out.Ceilings, kind)
	}
	return out
}

// can reports whether a session can have a layer. One that the runner did not try is found out by the open.
func can(h sandbox.Host, layer string) bool {
	return !slices.ContainsFunc(h.Layers, func(l sandbox.Layer) bool { return l.Name == layer && l.State != "present" })
}

// ceilingKinds are the ceilings that a request can ask for, by member of limits, and what the host must have for them.
var ceilingKinds = []struct {
	name      string
	execution bool   // one execution can have a tighter one
	grouped   bool   // in a group of its own
	needs     string // layer; "" is what every session needs anyway
	max       func(sandbox.Ceiling) int64
}{
	{"memory_bytes", true, true, "", func(c sandbox.Ceiling) int64 { return c.MemoryBytes }},
	{"cpu_millis", true, true, "", func(c sandbox.Ceiling) int64 { return c.CPUMillis }},
	{"pids", true, true, "", func(c sandbox.Ceiling) int64 { return c.PIDs }},
	{"files", true, false, "", func(c sandbox.Ceiling) int64 { return c.Files }},
	{"cpu_time_ns", true, false, "", func(c sandbox.Ceiling) int64 { return c.CPUTimeNS }},
	{"output_bytes", true, false, "", func(c sandbox.Ceiling) int64 { return c.OutputBytes }},
	{"cpu_weight", false, false, "", unbounded},
	{"io_bytes_per_second", false, false, sandbox.LayerIO, unbounded},
	{"disk_bytes", false, false, "", func(c sandbox.Ceiling) int64 { return c.ScratchBytes }},
	{"disk_inodes", false, false, "", unbounded},
}

func unbounded(sandbox.Ceiling) int64 { return 0 }

// allowed are the names that a list of the operator's admits; absent admits all (C19).
func allowed[T comparable](list []T, names ...T) []T {
	return slices.DeleteFunc(names, func(name T) bool { return list != nil && !slices.Contains(list, name) })
}

package sandbox

import "slices"

// Host is what this kernel and this place offer, probed once by sandbox/host and
// passed in from then on. "An old kernel without X" is a value here, never an if
// in the middle of a set-up.
type Host struct {
	Kernel string  `json:"kernel"`
	Arch   string  `json:"arch"`
	Cgroup string  `json:"cgroup"` // "v1", "v2" or "hybrid"
	Layers []Layer `json:"layers"` // every layer that a session rests on, and what it costs to miss it
	CPUs   int     `json:"cpus"`
	Memory int64   `json:"memory_bytes"`
}

// Layer is one protection, and whether it can be had here. A session without a required one is
// refused; one that is [Degradable] is left out where the caller does without it and policy lets him.
type Layer struct {
	Name     string `json:"name"`  // e.g. "idmapped mounts"
	State    string `json:"state"` // "present", "missing" or "unknown"
	Required bool   `json:"required"`
	Detail   string `json:"detail,omitempty"` // what was found: a version, an ABI, an errno
	Remedy   string `json:"remedy,omitempty"` // what would grant it
}

// Degradable are the layers that a session can be built without. Each is a second wall.
var Degradable = []string{LayerLandlock, LayerTimeNS, LayerNotify}

// Layers by the names that others than the probes need.
const (
	LayerLandlock = "landlock"
	LayerTimeNS   = "time namespace"
	LayerNotify   = "seccomp notification"

	// Those that a Spec or an Exec may demand.
	LayerOverlay    = "overlayfs"
	LayerNetwork    = "nftables"
	LayerIO         = "io controller"
	LayerExecLimits = "per-execution ceilings"
)

// Has reports whether a layer is present.
func (h Host) Has(name string) bool {
	return slices.ContainsFunc(h.Layers, func(l Layer) bool { return l.Name == name && l.State == "present" })
}

// Missing returns the required layers that are not present, and not among those that can be done without.
func (h Host) Missing(without ...string) []Layer {
	var out []Layer
	for _, l := range h.Layers {
		degraded := slices.Contains(without, l.Name) && slices.Contains(Degradable, l.Name)
		if l.Required && l.State != "present" && !degraded {
			out = append(out, l)
		}
	}
	return out
}

package sandbox

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

// Layer is one protection, and whether it can be had here.
type Layer struct {
	Name     string `json:"name"`  // e.g. "idmapped mounts"
	State    string `json:"state"` // "present", "missing" or "unknown"
	Required bool   `json:"required"`
	Detail   string `json:"detail,omitempty"` // what was found: a version, an ABI, an errno
	Remedy   string `json:"remedy,omitempty"` // what would grant it
}

// Missing returns the required layers that are not present.
func (h Host) Missing() []Layer {
	var out []Layer
	for _, l := range h.Layers {
		if l.Required && l.State != "present" {
			out = append(out, l)
		}
	}
	return out
}

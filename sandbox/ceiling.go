package sandbox

// Ceiling is the operator's bound on everything, whatever policy says: the daemon
// meets every grant with it, and the runner checks every Spec against it again. It
// is read from a JSON file (see [LoadCeiling]); the zero value of a member means
// unconstrained by this layer, an empty list means nothing (C19).
type Ceiling struct {
	Roots                  []RootKind `json:"roots,omitzero"`          // kinds that may be used
	MountRoots             []string   `json:"mount_roots,omitzero"`    // host directories below which sources of mounts, dir and paths roots must resolve
	MountDenied            []string   `json:"mount_denied,omitzero"`   // host directories that no source may reach, from below or from above, whatever mount_roots says
	ReadWrite              []string   `json:"read_write,omitzero"`     // host directories below which rw mounts must resolve
	UIDs                   [2]uint32  `json:"uids,omitzero"`           // lowest and highest inside uid and gid; [0,0] = 1..65534
	Capabilities           []string   `json:"capabilities,omitzero"`   // that may be granted; CAP_SYS_ADMIN never
	Seccomp                []string   `json:"seccomp,omitzero"`        // profiles that may be used
	Networks               []string   `json:"networks,omitzero"`       // modes that may be used
	NetworkDenied          []string   `json:"network_denied,omitzero"` // prefixes that no session reaches, by name or by address, whatever is granted
	MemoryBytes            int64      `json:"memory_bytes,omitzero"`
	CPUMillis              int64      `json:"cpu_millis,omitzero"`
	PIDs                   int64      `json:"pids,omitzero"`
	Files                  int64      `json:"files,omitzero"`
	CPUTimeNS              int64      `json:"cpu_time_ns,omitzero"`              // of one session
	ScratchBytes           int64      `json:"scratch_bytes,omitzero"`            // of all scratch and overlays of one session
	Mounts                 int64      `json:"mounts,omitzero"`                   // number of mounts of one session
	TTLNS                  int64      `json:"ttl_ns,omitzero"`                   // daemon only
	IdleNS                 int64      `json:"idle_ns,omitzero"`                  // a session may be without activity for so long; daemon only
	TimeoutNS              int64      `json:"timeout_ns,omitzero"`               // of one execution; daemon only
	OutputBytes            int64      `json:"output_bytes,omitzero"`             // per stream; daemon only
	InlineBytes            int64      `json:"inline_bytes,omitzero"`             // daemon only
	Executions             int64      `json:"executions,omitzero"`               // live in one session; daemon only
	Sessions               int64      `json:"sessions,omitzero"`                 // live at once
	SessionsPerPrincipal   int64      `json:"sessions_per_principal,omitzero"`   // daemon only
	ExecutionsPerPrincipal int64      `json:"executions_per_principal,omitzero"` // live, of one uid over all its sessions; daemon only
}

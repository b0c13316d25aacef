package sandbox

// Ceiling is the operator's bound on everything, whatever policy says: the daemon
// meets every grant with it, and the runner checks every Spec against it again. It
// is read from a JSON file; the zero value of a member means unconstrained by this
// layer, an empty list means nothing (C19).
type Ceiling struct {
	Roots                []RootKind `json:"roots"`        // kinds that may be used
	MountRoots           []string   `json:"mount_roots"`  // host directories below which sources of mounts, dir and paths roots must resolve
	ReadWrite            []string   `json:"read_write"`   // host directories below which rw mounts must resolve
	UIDs                 [2]uint32  `json:"uids"`         // lowest and highest inside uid and gid; [0,0] = 1..65534
	Capabilities         []string   `json:"capabilities"` // that may be granted; CAP_SYS_ADMIN never
	Seccomp              []string   `json:"seccomp"`      // profiles that may be used
	Networks             []string   `json:"networks"`     // modes that may be used
	MemoryBytes          int64      `json:"memory_bytes"`
	CPUMillis            int64      `json:"cpu_millis"`
	PIDs                 int64      `json:"pids"`
	Files                int64      `json:"files"`
	ScratchBytes         int64      `json:"scratch_bytes"`          // of all scratch of one session
	Mounts               int64      `json:"mounts"`                 // number of mounts of one session
	TTLNS                int64      `json:"ttl_ns"`                 // daemon only
	TimeoutNS            int64      `json:"timeout_ns"`             // of one execution; daemon only
	OutputBytes          int64      `json:"output_bytes"`           // per stream; daemon only
	InlineBytes          int64      `json:"inline_bytes"`           // daemon only
	Executions           int64      `json:"executions"`             // live in one session; daemon only
	Sessions             int64      `json:"sessions"`               // live at once
	SessionsPerPrincipal int64      `json:"sessions_per_principal"` // daemon only
}

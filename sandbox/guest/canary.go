package guest

import "errors"

// Canary is one thing that is tried from inside, and how it must end.
type Canary struct {
	Name string // what is tried, and with which object: "write /usr"
	Want string // an errno's name, or "ok"
	Got  string // the same, once it has been tried
}

// Inside is what the canaries need to know of a session.
type Inside struct {
	ReadOnly     []string // paths that are mounted read-only
	Masked       []string // paths that show nothing
	PIDs         int64    // of executions
	Capabilities uint64   // granted
	Filter       bool     // there is a seccomp filter
	Landlock     bool
}

// Canaries are the things that must fail in such a session, and the few that must not.
func Canaries(in Inside) []Canary { return nil }

// Judge returns canaries with what the output of a Command that tried them says of each.
func Judge(canaries []Canary, output []byte) ([]Canary, error) {
	return nil, errors.ErrUnsupported
}

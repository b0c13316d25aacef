package api

import (
	"slices"
	"strings"
)

// Orders of a list of receipts.
const (
	NewestFirst = "newest"
	OldestFirst = "oldest"
)

// Fits reports whether a receipt is one of those that f asks for. Whoever lists receipts asks this, of a journal as of a
// supervisor. Whose they may be is not asked here.
func (f *Read) Fits(r *Receipt) bool {
	return same(f.SessionID, r.SessionID) && same(f.ExecID, r.ExecID) && same(f.IntentID, r.IntentID) &&
		same(f.Op, r.Op) && same(f.Outcome, r.Outcome) && f.fitsContent(r)
}

// Inside reports whether f asks for something that only the receipts themselves say.
func (f *Read) Inside() bool {
	return f.SinceNS != 0 || f.UntilNS != 0 || f.UID != nil || f.AgentID+f.WorldID+f.ChatID+string(f.Code)+f.Rule+f.Path != ""
}

func (f *Read) fitsContent(r *Receipt) bool {
	scope := r.Principal.Scope
	return (f.SinceNS == 0 || r.SettledAtNS >= f.SinceNS) && (f.UntilNS == 0 || r.SettledAtNS < f.UntilNS) &&
		(f.UID == nil || int64(r.Principal.UID) == *f.UID) &&
		same(f.AgentID, scope.AgentID) && same(f.WorldID, scope.WorldID) && same(f.ChatID, scope.ChatID) &&
		(f.Code == "" || slices.Contains(r.Codes(), f.Code)) &&
		(f.Rule == "" || r.ruled(f.Rule)) &&
		(f.Path == "" || slices.ContainsFunc(r.Paths(), func(path string) bool { return atOrBelow(path, f.Path) }))
}

// same compares with a filter, of which the zero value fits everything.
func same[T ~string](filter, value T) bool { return filter == "" || filter == value }

// Codes are those with which a receipt says why something was refused, failed, or was ended.
func (r *Receipt) Codes() []Code {
	var codes []Code
	add := func(c Code) {
		if c != "" && !slices.Contains(codes, c) {
			codes = append(codes, c)
		}
	}
	add(r.ErrorCode)
	for _, d := range r.Deny {
		add(d.Code)
	}
	p := r.Payload
	if p.Open != nil {
		add(p.Open.ErrorCode)
	}
	if p.Exec != nil {
		add(p.Exec.ErrorCode)
		for _, hit := range p.Exec.LimitsHit {
			add(hit.Code)
		}
	}
	if p.Signal != nil {
		add(p.Signal.ErrorCode)
	}
	if p.Space != nil {
		add(p.Space.ErrorCode)
	}
	if p.File != nil && p.File.Outcome() != nil {
		add(Code(p.File.Outcome().Code))
	}
	return codes
}

// ruled reports whether a rule that decided, or the code of a denial, has text in it.
func (r *Receipt) ruled(text string) bool {
	return slices.ContainsFunc(r.Policy.Rules, func(rule string) bool { return strings.Contains(rule, text) }) ||
		slices.ContainsFunc(r.Deny, func(d Deny) bool { return strings.Contains(string(d.Code), text) })
}

// Paths are those that a receipt names: what was refused, what was mounted and where, and what was read, changed or kept.
// Those below a mount are said from its root, as its overlay has them, and are not among them.
func (r *Receipt) Paths() []string {
	var paths []string
	add := func(path string) {
		if strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	for _, d := range r.Deny {
		_, object, found := strings.Cut(d.Subject, ":")
		if !found {
			object = d.Subject
		}
		add(object)
	}
	if o := r.Payload.Open; o != nil {
		if o.Grant != nil {
			for _, m := range o.Grant.Mounts {
				add(m.HostPath)
				add(m.GuestPath)
			}
		}
		for _, in := range o.Inputs {
			add(in.Path)
		}
	}
	if x := r.Payload.Exec; x != nil {
		for _, out := range x.Outputs {
			add(out.Path)
		}
		for _, d := range x.Denials {
			add(d.Object)
		}
	}
	if s := r.Payload.Space; s != nil {
		add(s.GuestPath)
	}
	if f := r.Payload.File; f != nil {
		for _, path := range f.Paths() {
			add(path)
		}
	}
	return paths
}

// atOrBelow reports whether path is dir or lies below it.
func atOrBelow(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return path == dir || strings.HasPrefix(path, dir+"/")
}

package rego

import (
	"cmp"
	"slices"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// HostPaths are the host paths that an open names, its root's and its mounts', each
// once. Facts about each are what policy needs.
func HostPaths(r *api.Request) []string {
	paths := rootSources(r)
	if r.Open != nil && r.Open.Target.Local != nil {
		for _, m := range r.Open.Target.Local.Mounts {
			paths = append(paths, m.HostPath)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// rootSources are the host paths that a request's root is made of.
func rootSources(r *api.Request) []string {
	if r == nil || r.Open == nil || r.Open.Target.Local == nil {
		return nil
	}
	switch root := r.Open.Target.Local.Root; {
	case root.Dir != nil:
		return []string{root.Dir.Path}
	case root.Paths != nil:
		return slices.Clone(root.Paths.Paths)
	}
	return nil
}

// askedNetwork is the network that a request wants, with its default.
func askedNetwork(l *api.Local) api.GrantNetwork {
	return api.GrantNetwork{Mode: cmp.Or(l.NetworkMode, "none"), Allow: l.Egress}
}

// askedMount is a mount of a request, and where it stands there.
type askedMount struct {
	api.Mount
	index int
}

// askedMounts are the mounts that a request asks for, by their two paths.
func askedMounts(r *api.Request) map[[2]string]askedMount {
	asked := map[[2]string]askedMount{}
	if r != nil && r.Open != nil && r.Open.Target.Local != nil {
		for i, m := range r.Open.Target.Local.Mounts {
			asked[[2]string{m.HostPath, m.GuestPath}] = askedMount{m, i}
		}
	}
	return asked
}

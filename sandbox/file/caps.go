package file

import (
	"path"
	"slices"
	"strings"
)

// Caps is what the file tools of a session may do. An absent member does not constrain (C18),
// an empty list allows nothing (C19).
type Caps struct {
	Ops             []Class  `json:"allowed_fs_ops,omitzero"`
	Roots           []string `json:"fs_roots,omitzero"` // absolute, clean; compared by component with the resolved path
	MaxReadBytes    *int64   `json:"max_read_bytes,omitzero"`
	MaxWriteBytes   *int64   `json:"max_write_bytes,omitzero"`
	MaxPatchBytes   *int64   `json:"max_patch_bytes,omitzero"`
	MaxInlineBytes  *int64   `json:"max_inline_bytes,omitzero"`
	MaxGrepResults  *int64   `json:"max_grep_results,omitzero"`
	MaxGlobResults  *int64   `json:"max_glob_results,omitzero"` // of list_dir too
	MaxScanFiles    *int64   `json:"max_scan_files,omitzero"`
	MaxScanBytes    *int64   `json:"max_scan_bytes,omitzero"`
	PatchFormats    []string `json:"allowed_patch_formats,omitzero"`
	MaxChangedFiles *int64   `json:"max_changed_files,omitzero"`
	MaxReplacements *int64   `json:"max_edit_replacements,omitzero"`
	FollowSymlinks  string   `json:"follow_symlinks,omitempty"` // see the Follow constants; "" is within_root_only
	OutputModes     []string `json:"allowed_output_modes,omitzero"`
	WriteRoots      []string `json:"write_roots,omitzero"`     // ext: where alone something is changed; within the roots
	ProtectedPaths  []string `json:"protected_paths,omitzero"` // ext: neither changed, created, moved nor replaced, by themselves or with a parent
}

// The symlink policies. A link is a name in the sandbox, and is never followed out of it.
const (
	FollowDeny   = "deny"             // no path leads over a link
	FollowWithin = "within_root_only" // links inside the roots, to what is inside
	FollowAllow  = "allow"            // links anywhere, to what is inside the roots
)

// Min is the smaller of what is asked and what is allowed, with the clamp to report. Asked nil and allowed nil is
// without limit, -1.
func Min(field string, asked, allowed *int64, source string) (int64, *Clamp) {
	switch {
	case allowed == nil && asked == nil:
		return -1, nil
	case allowed == nil:
		return *asked, nil
	case asked == nil:
		return *allowed, nil
	case *asked <= *allowed:
		return *asked, nil
	}
	return *allowed, &Clamp{Field: field, Requested: *asked, Effective: *allowed, Source: source}
}

// Check reports whether an operation of this class is among the allowed ones.
func (c *Caps) Check(class Class) bool { return c.Ops == nil || slices.Contains(c.Ops, class) }

// Admits reports whether a resolved path lies in the roots.
func (c *Caps) Admits(resolved string) bool { return c.Roots == nil || inAny(resolved, c.Roots) }

// AdmitsChange reports whether what is at a resolved path may be changed, by the roots alone.
func (c *Caps) AdmitsChange(resolved string) bool {
	return c.Admits(resolved) && (c.WriteRoots == nil || inAny(resolved, c.WriteRoots))
}

// Protects names the protected path that a change at a resolved path would touch: one that is there, below
// it, or above it; "" when there is none. Whole says that what is below comes along, as when a directory is moved.
func (c *Caps) Protects(resolved string, whole bool) string {
	for _, p := range c.ProtectedPaths {
		if Within(resolved, p) || whole && Within(p, resolved) {
			return p
		}
	}
	return ""
}

func inAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return Within(p, root) })
}

// Within reports whether a clean absolute path is root or lies below it, by component.
func Within(p, root string) bool {
	return root == "/" || p == root || strings.HasPrefix(p, root) && p[len(root)] == '/'
}

// Fault says what of the capabilities is not well formed; "" when all is.
func (c *Caps) Fault() (Code, string) {
	for _, list := range []struct {
		name  string
		paths []string
	}{
		{"fs_roots", c.Roots}, {"write_roots", c.WriteRoots}, {"protected_paths", c.ProtectedPaths},
	} {
		for _, p := range list.paths {
			if !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.Contains(p, "\x00") {
				return CodeInvalidParams, list.name + ": " + Quote(p) + " is not an absolute, clean path"
			}
		}
	}
	for _, l := range []struct {
		name  string
		value *int64
	}{
		{"max_read_bytes", c.MaxReadBytes}, {"max_write_bytes", c.MaxWriteBytes}, {"max_patch_bytes", c.MaxPatchBytes},
		{"max_inline_bytes", c.MaxInlineBytes}, {"max_grep_results", c.MaxGrepResults}, {"max_glob_results", c.MaxGlobResults},
		{"max_scan_files", c.MaxScanFiles}, {"max_scan_bytes", c.MaxScanBytes}, {"max_changed_files", c.MaxChangedFiles},
		{"max_edit_replacements", c.MaxReplacements},
	} {
		if l.value != nil && *l.value < 0 {
			return CodeInvalidParams, l.name + " is negative"
		}
	}
	if !slices.Contains([]string{"", FollowDeny, FollowWithin, FollowAllow}, c.FollowSymlinks) {
		return CodeInvalidFollow, "follow_symlinks: not deny, within_root_only or allow"
	}
	for _, class := range c.Ops {
		if !slices.ContainsFunc(Ops, func(row struct {
			Op      Op
			Class   Class
			Changes bool
		}) bool {
			return row.Class == class
		}) {
			return CodeInvalidParams, "allowed_fs_ops: " + Quote(string(class)) + " is none"
		}
	}
	return "", ""
}

package stockade.fs_test

import data.stockade.fs

base := {
	"request": {"principal": {"uid": 1000, "gid": 1000}},
	"session": {"principal": {"uid": 1000}, "grant": {"fs": {
		"ops": ["read", "write", "edit", "patch"],
		"roots": ["/workspace", "/inputs/"],
		"follow_symlinks": "within_root_only",
		"patch_formats": ["v4a"],
		"max_write_bytes": 10, "max_patch_bytes": 20, "max_changed_files": 2, "max_edit_replacements": 3,
	}}},
	"file": {"op": "read", "paths": [{"path": "a.go", "resolved": "/workspace/a.go"}]},
	"now_ns": 100,
}

file(changes) := json.patch(base, [{"op": "add", "path": concat("", ["/file", path]), "value": value} | some path, value in changes])

grant(changes) := json.patch(base, [{"op": "add", "path": concat("", ["/session/grant", path]), "value": value} | some path, value in changes])

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := fs.decision with input as document
}

allowed(document) if {
	decision := fs.decision with input as document
	decision.allow == true
}

test_a_granted_tool_works_below_a_root if {
	allowed(base)
	allowed(file({"/op": "write", "/bytes": 10, "/paths/0/write": true}))
}

# R094
test_what_is_not_granted_is_denied if {
	codes(file({"/op": "search"})) == {"fs_op_not_allowed"}
	codes(file({"/op": "READ"})) == {"fs_op_not_allowed"}
	codes(grant({"/fs/ops": []})) == {"fs_op_not_allowed"}
	"fs_op_not_allowed" in codes(json.remove(base, ["/session/grant/fs"]))
}

test_reading_writes_nothing if {
	codes(file({"/paths/0/write": true})) == {"path_not_allowed"}
	codes(file({"/paths/0/write": "yes"})) == {"path_not_allowed"}
}

# R095, R096, R114: every path, by what it leads to.
test_paths_are_below_a_root if {
	every resolved in ["/workspacex/a", "/work", "/", "/etc/passwd", "/workspace/../etc", "workspace/a", "", "/inputsx"] {
		codes(file({"/paths/0/resolved": resolved})) == {"path_not_allowed"}
	}
	every resolved in ["/workspace", "/inputs", "/workspace/..a/b"] {
		allowed(file({"/paths/0/resolved": resolved}))
	}
	codes(file({"/op": "patch", "/paths/1": {"path": "b", "resolved": "/etc/b", "write": true}})) == {"path_not_allowed"}
	allowed(json.remove(grant({}), ["/session/grant/fs/roots"]))
	codes(grant({"/fs/roots": []})) == {"path_not_allowed"}
}

# R095
test_changes_are_below_a_root_for_them if {
	allowed(written("/workspace/src/x"))
	codes(written("/workspace/x")) == {"path_not_allowed"}
	codes(written("/workspace/src/../x")) == {"path_not_allowed"}
	codes(written("/workspace/srcs")) == {"path_not_allowed"}
	allowed(grant({"/fs/write_roots": ["/workspace/src/"]}))
	codes(json.patch(written("/workspace/src/x"), [{"op": "replace", "path": "/session/grant/fs/write_roots", "value": []}])) == {"path_not_allowed"}
}

written(path) := json.patch(grant({"/fs/write_roots": ["/workspace/src/"]}), [{"op": "replace", "path": "/file", "value": {"op": "write", "paths": [{"path": "x", "resolved": path, "write": true}]}}])

# R097
test_links if {
	allowed(file({"/paths/0/through_link": true}))
	codes(json.patch(file({"/paths/0/through_link": true}), [{"op": "replace", "path": "/session/grant/fs/follow_symlinks", "value": "deny"}])) == {"path_not_allowed"}
}

# R100, R105, R106
test_sizes_and_counts if {
	codes(file({"/op": "write", "/bytes": 11})) == {"max_write_bytes_exceeded"}
	codes(file({"/op": "patch", "/bytes": 21})) == {"max_patch_bytes_exceeded"}
	codes(file({"/op": "patch", "/changed_files": 3})) == {"max_changed_files_exceeded"}
	codes(file({"/op": "edit", "/replacements": 4})) == {"max_edit_replacements_exceeded"}
	codes(file({"/op": "write", "/bytes": 99999999999999999999})) == {"max_write_bytes_exceeded"}
	allowed(file({"/op": "edit", "/replacements": 3}))
}

# R098: what the grant does not bound is not bounded here.
test_absent_bounds_are_none if allowed(json.remove(file({"/op": "write", "/bytes": 99999999}), ["/session/grant/fs/max_write_bytes"]))

# R104
test_formats_of_patches if {
	allowed(file({"/op": "patch", "/patch_format": "v4a"}))
	codes(file({"/op": "patch", "/patch_format": "unified"})) == {"patch_format_not_allowed"}
	allowed(json.remove(file({"/op": "patch"}), ["/session/grant/fs/patch_formats"]))
	codes(json.remove(file({"/op": "patch", "/patch_format": "unified"}), ["/session/grant/fs/patch_formats"])) == {"patch_format_not_allowed"}
}

# R090, R109
test_whose_and_when if {
	codes(json.patch(base, [{"op": "replace", "path": "/request/principal/uid", "value": 1001}])) == {"operation_not_allowed"}
	codes(grant({"/expires_at_ns": 100})) == {"expired"}
}

# R108
test_what_is_not_said_allows_nothing if {
	every path in ["/request", "/session", "/session/principal", "/session/grant", "/session/grant/fs", "/session/grant/fs/ops", "/file", "/file/op", "/file/paths", "/file/paths/0", "/file/paths/0/resolved"] {
		not allowed(json.remove(base, [path]))
	}
	not allowed({})
}

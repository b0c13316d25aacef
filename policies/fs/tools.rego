package stockade.fs

import data.stockade.paths

# METADATA
# title: The class of the tool is granted
# labels: {concern: fs, requirement: R094}
deny contains {"code": "fs_op_not_allowed", "subject": sprintf("fs:%s", [op]), "message": "no file tool of this class is granted"} if not op_granted

op := object.get(input, ["file", "op"], "")

op_granted if op in granted.ops

# METADATA
# title: Every path leads below a granted root
# description: Judged is what a path leads to. Directories are compared by components (R095).
# labels: {concern: fs, requirement: R095}
deny contains {"code": "path_not_allowed", "subject": sprintf("path:%s", [file.path]), "message": "it leads out of the roots that are granted"} if {
	some file in input.file.paths
	not in_roots(file)
}

in_roots(file) if {
	startswith(file.resolved, "/")
	not paths.climbs(file.resolved)
	not granted.roots
}

in_roots(file) if {
	startswith(file.resolved, "/")
	not paths.climbs(file.resolved)
	paths.inside(file.resolved, paths.dirs(granted.roots))
}

# METADATA
# title: A tool that only looks writes nothing
# labels: {concern: fs, requirement: R094}
deny contains {"code": "path_not_allowed", "subject": sprintf("path:%s", [file.path]), "message": sprintf("%s writes nothing", [op])} if {
	some file in input.file.paths
	not only_seen(file)
	op in {"read", "search", "list", "stat"}
}

only_seen(file) if object.get(file, "write", false) == false

# METADATA
# title: What is changed lies below a root for that
# labels: {concern: fs, requirement: R095}
deny contains {"code": "path_not_allowed", "subject": sprintf("path:%s", [file.path]), "message": "it leads to where nothing may be changed"} if {
	granted.write_roots
	some file in input.file.paths
	not only_seen(file)
	not paths.inside(file.resolved, paths.dirs(granted.write_roots))
}

# METADATA
# title: No symbolic link is on the way
# description: Links that stay below the roots are followed unless the grant denies it; where they lead is in resolved.
# labels: {concern: fs, requirement: R097}
deny contains {"code": "path_not_allowed", "subject": sprintf("path:%s", [file.path]), "message": "a symbolic link is on the way, and none is followed"} if {
	granted.follow_symlinks == "deny"
	some file in input.file.paths
	file.through_link == true
}

# METADATA
# title: The sizes of what is written, and the numbers of what is changed
# description: They are intrinsic, so they are refused and not cut (C17). A read and a scan are cut by who carries them out.
# labels: {concern: fs, requirement: R100}
deny contains {"code": bound.code, "subject": sprintf("fs:%s", [op]), "message": sprintf("%d, at most %d are granted", [bound.asked, most])} if {
	some bound in bounds
	op == bound.op
	most := granted[bound.member]
	bound.asked > most
}

bounds := [
	{"op": "write", "asked": bytes, "member": "max_write_bytes", "code": "max_write_bytes_exceeded"},
	{"op": "patch", "asked": bytes, "member": "max_patch_bytes", "code": "max_patch_bytes_exceeded"},
	{"op": "patch", "asked": object.get(input, ["file", "changed_files"], 0), "member": "max_changed_files", "code": "max_changed_files_exceeded"},
	{"op": "edit", "asked": object.get(input, ["file", "replacements"], 0), "member": "max_edit_replacements", "code": "max_edit_replacements_exceeded"},
]

bytes := object.get(input, ["file", "bytes"], 0)

# METADATA
# title: The format of a patch
# labels: {concern: fs, requirement: R104}
deny contains {"code": "patch_format_not_allowed", "subject": sprintf("fs:%s", [format]), "message": "this format of a patch is not granted"} if {
	op == "patch"
	format := object.get(input, ["file", "patch_format"], "v4a")
	not format in object.get(granted, "patch_formats", ["v4a"])
}

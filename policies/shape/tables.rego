package stockade.shape

# METADATA
# title: The members of a cap, which are those of a profile that can be bounded
cap_members := {
	"targets": "list of texts",
	"roots": "list of texts",
	"networks": "list of texts",
	"egress": "list of destinations",
	"forward.ports": "list of ports",
	"degradable": "list of texts",
	"workdir_prefixes": "list of directories that end in a slash",
	"mounts.max": "count",
	"mounts.modes": "list of texts",
	"mounts.host_roots": "list of directories that end in a slash",
	"mounts.guest_prefixes": "list of directories that end in a slash",
	"mounts.rw_is": ["rw", "overlay"],
	"mounts.protect": "object of texts",
	"mounts.overlay.default.bytes": "count",
	"mounts.overlay.default.inodes": "count",
	"mounts.overlay.max.bytes": "count",
	"mounts.overlay.max.inodes": "count",
	"ceilings.default": "object of ceilings",
	"ceilings.max": "object of ceilings",
	"ttl.default_ns": "count",
	"ttl.max_ns": "count",
	"idle.default_ns": "count",
	"idle.max_ns": "count",
	"env.max": "count",
	"env.allow": "list of texts",
	"background.allowed": "boolean",
	"exec.max_timeout_ns": "count",
	"exec.default_timeout_ns": "count",
	"exec.max_argv": "count",
	"exec.max_arg_bytes": "count",
	"exec.max_inline_bytes": "count",
	"exec.output_modes": "list of texts",
	"exec.signals": "list of texts",
	"exec.cwd_prefixes": "list of directories that end in a slash",
	"exec.output_prefixes": "list of directories that end in a slash",
	"exec.queue": "boolean",
	"exec.shells": "boolean",
	"fs.ops": "list of texts",
	"fs.roots": "list of directories that end in a slash",
	"fs.write_roots": "list of directories that end in a slash",
	"fs.follow_symlinks": ["deny", "within_root_only", "allow"],
	"fs.patch_formats": "list of texts",
	"fs.max_read_bytes": "count",
	"fs.max_write_bytes": "count",
	"fs.max_patch_bytes": "count",
	"fs.max_inline_bytes": "count",
	"fs.max_grep_results": "count",
	"fs.max_glob_results": "count",
	"fs.max_scan_files": "count",
	"fs.max_scan_bytes": "count",
	"fs.max_changed_files": "count",
	"fs.max_edit_replacements": "count",
	"expires_at_ns": "instant",
	"commit": "boolean",
	"verify": ["", "canary"],
	"on_restart": ["", "adopt", "terminate"],
}

# METADATA
# title: The members of a profile
profile := closed(object.union(cap_members, {
	"hermetic": "boolean",
	"default_root": "text",
	"exec.record.bytes": "count",
	"exec.record.input": "boolean",
	"mounts.owner": ["caller", "any"],
	"mounts.class": "text",
	"scratch": "list of places with bytes and inodes",
	"identity.uid": "count",
	"identity.gid": "count",
	"identity.groups": "list of ids",
	"identity.capabilities": "list of texts",
	"seccomp": ["default", "build", "strict"],
	"hostname.default": "text",
	"hostname.fixed": "boolean",
	"home": "text",
	"env.fixed": "object of texts",
	"env.default": "object of texts",
	"background.default": "boolean",
}))

# METADATA
# title: The members that a profile cannot do without
needed := {
	"hermetic", "roots", "networks", "degradable", "seccomp", "home", "scratch",
	"identity.uid", "identity.gid", "hostname.default", "hostname.fixed",
	"mounts.max", "mounts.modes", "mounts.owner", "mounts.class", "mounts.guest_prefixes",
	"ceilings.default", "ceilings.max", "ttl.default_ns", "ttl.max_ns",
	"env.max", "env.fixed", "env.default", "background.allowed", "background.default",
	"exec.max_timeout_ns", "exec.default_timeout_ns", "exec.max_argv", "exec.max_arg_bytes", "exec.max_inline_bytes",
}

principal := closed(object.union(below_cap, {
	"profiles": "list of texts",
	"profile": "text",
	"require_scope": "list of texts",
	"require_labels": "list of texts",
	"tenant": "text",
	"expires_at_ns": "instant",
}))

tenant := closed(object.union(below_cap, {
	"profiles": "list of texts",
	"require_labels": "list of texts",
	"expires_at_ns": "instant",
}))

label_rule := closed(object.union(below_cap, {"match": "object of texts", "profile": "text"}))

exception := closed({
	"code": "text",
	"subjects": "list of texts",
	"uids": "list of ids",
	"tenants": "list of texts",
	"from_ns": "instant",
	"until_ns": "instant",
	"reason": "text",
})

below_cap := {sprintf("cap.%s", [name]): kind | some name, kind in cap_members}

# METADATA
# title: What is said of principals, by where it stands
principals := object.union_n([
	{sprintf("principals.uid.%s", [id]): entry | some id, entry in data.principals.uid},
	{sprintf("principals.gid.%s", [id]): entry | some id, entry in data.principals.gid},
	{"principals.default": data.principals["default"]},
])

package stockade.open

import data.stockade.paths
import data.stockade.paths.host

# METADATA
# title: The mounts, as asked
mounts := object.get(local, "mounts", [])

guest_prefixes := paths.dirs(profile.mounts.guest_prefixes)

scratch_paths := {concat("", [s.guest_path, "/"]) | some s in profile.scratch}

# METADATA
# title: The mounts that are granted, by their place in the request
# description: Built from what is right about a mount; deny below is what is left over.
granted_mounts[i] := {
	"host_path": mount.host_path,
	"guest_path": mount.guest_path,
	"mode": mount.mode,
	"class": profile.mounts.class,
} if {
	some i, mount in mounts
	source_granted(mount)
	mode_granted(mount)
	guest_granted(mount)
}

# METADATA
# title: The source may be read, and is the caller's where the profile wants that
source_granted(mount) if {
	host.readable(mount.host_path)
	owned(host.source(mount.host_path))
}

# METADATA
# title: The source belongs to whom the profile wants
# description: The superuser owns what it likes; only the operator's ceiling bounds it.
owned(_) if profile.mounts.owner == "any"

owned(source) if {
	profile.mounts.owner == "caller"
	source.owner_uid == input.request.principal.uid
}

owned(_) if {
	profile.mounts.owner == "caller"
	input.request.principal.uid == 0
}

# METADATA
# title: The mode is one of the profile's; rw is for the owner, where the operator permits writing
mode_granted(mount) if {
	mount.mode == "ro"
	"ro" in profile.mounts.modes
}

mode_granted(mount) if {
	mount.mode == "rw"
	"rw" in profile.mounts.modes
	source := host.source(mount.host_path)
	source.owner_uid == input.request.principal.uid
	host.within_read_write(source.resolved)
}

# METADATA
# title: The place inside is one for mounts, and none that scratch takes
guest_granted(mount) if {
	paths.inside(mount.guest_path, guest_prefixes)
	not paths.inside(mount.guest_path, scratch_paths)
	not paths.covers(mount.guest_path, scratch_paths)
}

# METADATA
# title: The number of mounts
deny contains {
	"code": "mount_limit_exceeded",
	"subject": "mounts",
	"message": sprintf("%d mounts, at most %d are granted", [count(mounts), max_mounts]),
} if {
	count(mounts) > max_mounts
}

max_mounts := least(profile.mounts.max, object.get(input.ceiling, "mounts", 0))

# METADATA
# title: The host path of a mount
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s %s", [mount.host_path, host_path_reason(mount)]),
} if {
	some mount in mounts
	not source_granted(mount)
}

# METADATA
# title: Why the host path of a mount is refused
default host_path_reason(_) := "is not granted"

host_path_reason(mount) := host.reason(mount.host_path) if {
	not host.readable(mount.host_path)
} else := sprintf("belongs to uid %d, not to the caller", [host.source(mount.host_path).owner_uid])

# METADATA
# title: The mode of a mount
deny contains {
	"code": "mount_mode_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s: profile %s mounts %s; rw needs a source that the caller owns, below the operator's read_write directories", [mount.mode, profile_name, concat(", ", profile.mounts.modes)]),
} if {
	some mount in mounts
	not mode_granted(mount)
}

# METADATA
# title: The inside path of a mount
deny contains {
	"code": "mount_guest_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.guest_path]),
	"message": sprintf("mounts belong below %s, and not at or over the scratch", [concat(", ", profile.mounts.guest_prefixes)]),
} if {
	some mount in mounts
	not guest_granted(mount)
}

# METADATA
# title: Whatever else keeps a mount from being granted
# description: The complement over the request, so that a rule that is undefined above refuses.
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": "the profile does not say how to mount it",
} if {
	some i, mount in mounts
	source_granted(mount)
	mode_granted(mount)
	guest_granted(mount)
	not granted_mounts[i]
}

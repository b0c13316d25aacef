package stockade.open

import data.stockade.paths.host

# METADATA
# title: The mounts, as asked
mounts := object.get(local, "mounts", [])

# METADATA
# title: The mounts that are granted
# description: Built from what is right about a mount; what is left over is refused below.
granted_mounts := [object.union(mount, {"class": profile.mounts.class}) |
	some mount in mounts
	source := host.sources[mount.host_path]
	source.owner_uid in owners
	source.resolved in usable[mount.mode]
	mount.guest_path in guests
]

# METADATA
# title: The mounts that are not
refused_mounts := [] if count(granted_mounts) == count(mounts)

refused_mounts := mounts if count(granted_mounts) != count(mounts)

# METADATA
# title: Whose directories may be mounted
# description: The superuser may mount anybody's; the operator's ceiling bounds it all the same.
owners := {source.owner_uid | some source in host.sources} if anybodys

owners := {input.request.principal.uid} if not anybodys

anybodys if profile.mounts.owner == "any"

anybodys if input.request.principal.uid == 0

# METADATA
# title: What may be mounted to be read
usable.ro := host.readable if "ro" in profile.mounts.modes

# METADATA
# title: What may be mounted to be written
# description: Only what the caller owns, the superuser included, and where the operator permits it.
usable.rw := {source.resolved |
	some source in host.sources
	source.owner_uid == input.request.principal.uid
	source.resolved in host.readable
	source.resolved in host.writable
} if {
	"rw" in profile.mounts.modes
}

# METADATA
# title: The inside paths that may be mount points
# description: Below one of the profile's prefixes, and neither at, below nor above the scratch.
guests := {mount.guest_path |
	some mount in mounts
	guest := concat("", [mount.guest_path, "/"])
	strings.any_prefix_match(guest, profile.mounts.guest_prefixes)
	not strings.any_prefix_match(guest, scratch_paths)
	not strings.any_prefix_match(scratch_paths, guest)
}

scratch_paths := {concat("", [part.guest_path, "/"]) | some part in profile.scratch}

# METADATA
# title: The number of mounts
deny contains {
	"code": "mount_limit_exceeded",
	"subject": "mounts",
	"message": sprintf("%d mounts, at most %d are granted", [count(mounts), max_mounts]),
} if {
	count(mounts) > max_mounts
}

max_mounts := min({profile.mounts.max, object.get(input.ceiling, "mounts", profile.mounts.max)})

# METADATA
# title: The host path of a mount
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s %s", [mount.host_path, host.reason(mount.host_path)]),
} if {
	some mount in refused_mounts
	not host.sources[mount.host_path].resolved in host.readable
}

# METADATA
# title: The owner of a mount's source
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s belongs to uid %d; profile %s mounts the caller's own directories", [mount.host_path, source.owner_uid, profile_name]),
} if {
	some mount in refused_mounts
	source := host.sources[mount.host_path]
	not source.owner_uid in owners
}

# METADATA
# title: The mode of a mount
deny contains {
	"code": "mount_mode_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s: profile %s mounts %s, and rw needs a source that the caller owns where the operator permits writing", [mount.mode, profile_name, concat(", ", profile.mounts.modes)]),
} if {
	some mount in refused_mounts
	resolved := host.sources[mount.host_path].resolved
	resolved in host.readable
	not resolved in object.get(usable, mount.mode, set())
}

# METADATA
# title: The inside path of a mount
deny contains {
	"code": "mount_guest_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.guest_path]),
	"message": sprintf("mounts belong below %s, and neither at, below nor above the scratch", [concat(" ", profile.mounts.guest_prefixes)]),
} if {
	some mount in refused_mounts
	not mount.guest_path in guests
}

# METADATA
# title: Whatever else keeps a mount from being granted
# description: The complement over the request, so that a part that is undefined refuses.
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": "the profile does not grant it",
} if {
	some mount in refused_mounts
	not granted_guests[mount.guest_path]
}

granted_guests := {mount.guest_path: true | some mount in granted_mounts}

package stockade.open

import data.stockade.paths
import data.stockade.paths.host

# METADATA
# title: The mounts, as asked
mounts := object.get(local, "mounts", [])

# METADATA
# title: The mounts that are granted
# description: Built from what is right about a mount; what is left over is refused below.
granted_mounts := [object.union(mount, beside[mode]) |
	some mount in mounts
	mode := mount.mode
	from[mode][mount.host_path]
] if {
	as_asked
	from := asked_sources
	beside := plain
}

granted_mounts := [object.union(mount, given(mount)) |
	some mount in mounts
	from[mount.mode][mount.host_path]
	places[mount.guest_path]
] if {
	not as_asked
	from := asked_sources
	places := guests
}

# METADATA
# title: Each mount has a place of its own that is right, and none is laid over
# description: Then no mount is looked at for that by itself.
as_asked if {
	count(guests) == count(mounts)
	not laid_over
}

modes := {mode | mode := mounts[_].mode}

asked_sources := {mode: sources[mode] | some mode in modes}

# METADATA
# title: A mount is to be an overlay, whose room depends on what was asked for it
laid_over if modes & overlays != set()

# METADATA
# title: What is granted of a mount beside what was asked for
# description: |
#   A mode that writes keeps the paths below it that the profile protects. Where the profile says so,
#   whoever asks for rw gets an overlay, and is told.
given(mount) := plain[mount.mode] if not overlays[mount.mode]

given(mount) := object.union_n([written, {"mode": "overlay"}, room(mount)]) if overlays[mount.mode]

plain := {"ro": {"class": profile.mounts.class}, "rw": written}

written := {"class": profile.mounts.class, "protect": protected}

overlays := {"overlay"} if not in_place_of_rw

overlays := {"overlay", "rw"} if in_place_of_rw

in_place_of_rw if profile.mounts.rw_is == "overlay"

# METADATA
# title: The room of an overlay, as asked up to the profile's maximum, or its default
room(mount) := {name: least_room(mount, name, usual) | some name, usual in profile.mounts.overlay["default"]}

least_room(mount, name, _) := min({mount[name], profile.mounts.overlay.max[name]}) if mount[name]

least_room(mount, name, usual) := usual if not mount[name]

# METADATA
# title: The paths that nobody inside changes
# description: |
#   The engine refuses a mount that is written to and is itself such a path, or leads to one: .git by itself
#   would have its hooks at another place than the one that is protected.
protected := object.keys(object.get(profile.mounts, "protect", {}))

# METADATA
# title: The mounts that are not
refused_mounts := [] if count(granted_mounts) == count(mounts)

refused_mounts := mounts if count(granted_mounts) != count(mounts)

# METADATA
# title: The host paths that may be mounted to be read
sources["ro"] := {path |
	some path, source in input.facts.sources
	of[source.owner_uid]
	may_read[source.resolved]
} if {
	"ro" in profile.mounts.modes
	of := owners
	may_read := readable
}

# METADATA
# title: The profile mounts from here
# description: Judged is what the path led to. A profile without host_roots leaves it to the operator.
in_host_roots(_) if not profile.mounts.host_roots

in_host_roots(resolved) if paths.inside(resolved, profile.mounts.host_roots)

# METADATA
# title: The host paths that may be mounted to be written
# description: |
#   Only what the caller owns, the superuser included, and where the operator permits it. An overlay is
#   no less: what is written to it is committed.
sources["rw"] := own if {
	"rw" in profile.mounts.modes
	not in_place_of_rw
}

sources["rw"] := own_directories if {
	"rw" in profile.mounts.modes
	in_place_of_rw
}

sources["overlay"] := own_directories if "overlay" in profile.mounts.modes

own := {path |
	some path, source in input.facts.sources
	source.owner_uid == input.request.principal.uid
	may_write[source.resolved]
} if {
	may_write := writable
}

readable := host.readable if not profile.mounts.host_roots

readable := {path | some path in host.readable; in_host_roots(path)} if profile.mounts.host_roots

writable := readable & host.writable

own_directories := {path | some path in own; input.facts.sources[path].kind == "dir"}

# METADATA
# title: Whose directories may be mounted
# description: The superuser may mount anybody's; the operator's ceiling bounds it all the same.
owners := {uid | uid := input.facts.sources[_].owner_uid} if anybodys

owners := {input.request.principal.uid} if not anybodys

anybodys if profile.mounts.owner == "any"

anybodys if input.request.principal.uid == 0

# METADATA
# title: The inside paths that may be mount points
# description: Below one of the profile's prefixes, and neither at, below nor above the scratch.
guests := stockade.below(guest_paths, profile.mounts.guest_prefixes) - taken

guest_paths := {path | path := mounts[_].guest_path}

taken := {path | some path in guest_paths; overlaps(paths.slashed(path))} if {
	overlaps(stockade.slashed(guest_paths))
} else := set()

overlaps(guest) if strings.any_prefix_match(guest, scratch_paths)

overlaps(guest) if strings.any_prefix_match(scratch_paths, guest)

scratch_paths := stockade.slashed([path | path := profile.scratch[_].guest_path])

# METADATA
# title: The number of mounts
# labels: {concern: mounts, requirement: R083}
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
# labels: {concern: mounts, requirement: R083}
mount_faults contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s %s", [mount.host_path, host.reason(mount.host_path)]),
} if {
	some mount in refused_mounts
	not host.may_read(mount.host_path)
}

# METADATA
# title: The owner of a mount's source
# labels: {concern: mounts, requirement: R083}
mount_faults contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s belongs to uid %d; profile %s mounts the caller's own directories", [mount.host_path, source.owner_uid, profile_name]),
} if {
	some mount in refused_mounts
	source := input.facts.sources[mount.host_path]
	host.readable[source.resolved]
	not owners[source.owner_uid]
}

# METADATA
# title: The place of a mount's source
# labels: {concern: mounts, requirement: R083}
mount_faults contains {
	"code": "mount_host_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s resolves to %s; profile %s mounts from %s", [mount.host_path, source.resolved, profile_name, concat(" ", profile.mounts.host_roots)]),
} if {
	some mount in refused_mounts
	source := input.facts.sources[mount.host_path]
	host.readable[source.resolved]
	not in_host_roots(source.resolved)
}

# METADATA
# title: The mode of a mount
# labels: {concern: mounts, requirement: R083}
mount_faults contains {
	"code": "mount_mode_not_allowed",
	"subject": sprintf("mount:%s", [mount.host_path]),
	"message": sprintf("%s: profile %s mounts %s; rw and overlay need a source that the caller owns, where the operator permits writing, not among the host's programs; an overlay needs a directory", [mount.mode, profile_name, concat(", ", profile.mounts.modes)]),
} if {
	some mount in refused_mounts
	host.may_read(mount.host_path)
	owners[input.facts.sources[mount.host_path].owner_uid]
	in_host_roots(input.facts.sources[mount.host_path].resolved)
	not sources[mount.mode][mount.host_path]
}

# METADATA
# title: The inside path of a mount
# labels: {concern: mounts, requirement: R083}
mount_faults contains {
	"code": "mount_guest_path_not_allowed",
	"subject": sprintf("mount:%s", [mount.guest_path]),
	"message": sprintf("mounts belong below %s, and neither at, below nor above the scratch", [concat(" ", profile.mounts.guest_prefixes)]),
} if {
	some mount in refused_mounts
	not guests[mount.guest_path]
}

# METADATA
# title: Whatever else keeps a mount from being granted
# description: |
#   The complement over the request: a mount that no rule above speaks against, and that is
#   not granted, is refused too.
# labels: {concern: mounts, requirement: R083}
deny contains {
	"code": "mount_host_path_not_allowed",
	"subject": "mounts",
	"message": sprintf("%d of %d mounts are granted", [count(granted_mounts), count(mounts)]),
} if {
	profile # without one, that is the reason
	count(granted_mounts) != count(mounts)
	count(mount_faults) == 0
}

# METADATA
# title: Every reason against a mount is one against the session
# labels: {concern: mounts, requirement: R083}
deny contains fault if some fault in mount_faults

package stockade.open

# METADATA
# title: The limits, as asked
limits := object.get(input.request.open, "limits", {})

# METADATA
# title: The ceilings that are granted
# description: |
#   Where the caller is silent, the profile's default. Where the caller asks, up to the
#   profile's maximum: the supervisor clamps to what was asked, and says where that was
#   more (C17). Never more than the operator's ceiling.
ceilings := object.union(usual_ceilings, asked_ceilings)

usual_ceilings := stockade.capped(profile.ceilings["default"], input.ceiling)

asked_ceilings := {name: min({most, object.get(input.ceiling, name, most)}) |
	some name, asked in limits
	most := object.get(profile.ceilings.max, name, object.get(input.ceiling, name, at_most(name, asked)))
}

# METADATA
# title: What nobody bounds only tightens, but for a share, which is taken from others
at_most(name, asked) := asked if name != "cpu_weight"

at_most("cpu_weight", asked) := min({asked, 100})

# METADATA
# title: How long the session may live
# description: |
#   Asked for more than the maximum, it is clamped and said so (C17). Never longer than what grants it.
ttl_ns := min({wanted, object.get(input.ceiling, "ttl_ns", wanted), left(wanted)}) if {
	wanted := profile.ttl[ttl_bound]
}

left(wanted) := wanted if expires == 0

left(wanted) := min({wanted, expires - input.now_ns}) if expires != 0

ttl_bound := "max_ns" if {
	input.request.open.session_ttl_ns
} else := "default_ns"

# METADATA
# title: How long the session may be without activity
# description: |
#   0 sets no bound, here as in a grant. A profile without the member sets none. Asked for
#   more than the maximum, it is clamped and said so (C17).
idle_ns := min({wanted, object.get(input.ceiling, "idle_ns", wanted)}) if {
	wanted := object.get(profile, ["idle", idle_bound], 0)
}

idle_bound := "max_ns" if {
	input.request.open.idle_timeout_ns
} else := "default_ns"

# METADATA
# title: What becomes of the session when the supervisor restarts
# description: terminate where the profile says so; otherwise the caller chooses.
on_restart := object.get(profile, "on_restart", "")

# METADATA
# title: What one execution may be
granted_exec := object.union(profile.exec, {
	"background": background,
	"max_timeout_ns": min({profile.exec.max_timeout_ns, timeout_ns}),
	"default_timeout_ns": min({profile.exec.default_timeout_ns, timeout_ns}),
	"max_inline_bytes": min({profile.exec.max_inline_bytes, object.get(input.ceiling, "inline_bytes", profile.exec.max_inline_bytes)}),
})

timeout_ns := object.get(input.ceiling, "timeout_ns", profile.exec.max_timeout_ns)

# METADATA
# title: Private writable space, each part cut to its share of what overlays leave
# description: |
#   The operator's scratch_bytes, and the disk ceilings of the session, bound scratch and overlays
#   together. What overlays alone exceed is refused by the engine, which names the numbers.
scratch := profile.scratch if scratch_fits

scratch := [object.union(part, {name: cut(part, name) | some name in ["bytes", "inodes"]}) | some part in profile.scratch] if {
	not scratch_fits
}

scratch_fits if {
	sum([part.bytes | some part in profile.scratch]) <= left_for_scratch.bytes
	sum([part.inodes | some part in profile.scratch]) <= left_for_scratch.inodes
}

cut(part, name) := max({1, min({part[name], floor(left_for_scratch[name] / count(profile.scratch))})})

left_for_scratch := {
	"bytes": min({object.get(input.ceiling, "scratch_bytes", boundless), object.get(ceilings, "disk_bytes", boundless)}) - overlay_room.bytes,
	"inodes": object.get(ceilings, "disk_inodes", boundless) - overlay_room.inodes,
}

overlay_room := {"bytes": sum([bytes | bytes := granted_mounts[_].bytes]), "inodes": sum([inodes | inodes := granted_mounts[_].inodes])}

boundless := 1152921504606846976 # 2^60: more than any disk, and sums of it fit into 64 bits

package stockade.open

# METADATA
# title: The lesser of two bounds, of which 0 is none
least(a, b) := min({a, b}) if {
	a > 0
	b > 0
} else := max({a, b})

# METADATA
# title: The limits, as asked
limits := object.get(input.request.open, "limits", {})

# METADATA
# title: The ceilings that are granted
# description: |
#   Where the caller asks, up to the profile's maximum, and the supervisor clamps to what
#   was asked (C17); where the caller is silent, the profile's default. Never more than
#   the operator's ceiling.
ceilings[name] := least(wanted, object.get(input.ceiling, name, 0)) if {
	some name, usual in profile.ceilings["default"]
	wanted := most(name, usual)
}

most(name, usual) := object.get(profile.ceilings.max, name, 0) if {
	object.get(limits, name, 0) > 0
} else := least(usual, object.get(profile.ceilings.max, name, 0))

# METADATA
# title: How long the session may live
# description: Asked for more than the maximum, it is clamped and said so (C17).
ttl_ns := least(wanted, object.get(input.ceiling, "ttl_ns", 0)) if {
	object.get(input.request.open, "session_ttl_ns", 0) > 0
	wanted := profile.ttl.max_ns
} else := least(profile.ttl.default_ns, object.get(input.ceiling, "ttl_ns", 0))

# METADATA
# title: What one execution may be
granted_exec := object.union(profile.exec, {
	"background": background,
	"max_timeout_ns": max_timeout_ns,
	"default_timeout_ns": least(profile.exec.default_timeout_ns, max_timeout_ns),
	"max_inline_bytes": least(profile.exec.max_inline_bytes, object.get(input.ceiling, "inline_bytes", 0)),
})

max_timeout_ns := least(profile.exec.max_timeout_ns, object.get(input.ceiling, "timeout_ns", 0))

# METADATA
# title: Private writable space, each part cut to its share of the operator's ceiling
scratch := [object.union(s, {"bytes": least(s.bytes, share)}) | some s in profile.scratch]

share := floor(object.get(input.ceiling, "scratch_bytes", 0) / count(profile.scratch))

# METADATA
# title: What narrows a profile
# description: |
#   A cap has the members of a profile, as many as it wants to bound: absent bounds nothing, [] is nothing (C19). Those of
#   the caller, of its tenant and of its labels apply together: numbers go to the least, lists to what all of them
#   have, prefixes to the longest. So their order does not matter, and none can widen anything.
# labels: {concern: caps}
package stockade.caps

import data.stockade.labels
import data.stockade.principals

# METADATA
# title: The caps that apply to this caller and its labels
applied := ({cap | cap := principals.entry.cap} | {cap | cap := principals.tenant.cap}) | {rule.cap | some rule in labels.matching}

# METADATA
# title: A profile with all that applies
# description: Almost always nothing does; then it is the profile itself.
narrowed(profile) := profile if applied == set()

narrowed(profile) := met(profile, applied | {profile}) if applied != set()

# METADATA
# title: The meet of a profile and its caps
met(profile, layers) := object.union_n([
	profile,
	common(layers, [], {"targets", "roots", "degradable"}),
	prefixes(layers, [], {"workdir_prefixes"}),
	network(profile, layers),
	{
		"mounts": object.union_n([
			profile.mounts,
			common(layers, ["mounts"], {"modes"}),
			prefixes(layers, ["mounts"], {"guest_prefixes", "host_roots"}),
			numbers(layers, ["mounts"], {"max"}),
			strictest(layers, ["mounts"], "rw_is", "overlay"),
			{"protect": object.union_n([object.get(layer, ["mounts", "protect"], {}) | some layer in layers])},
			{"overlay": {
				"default": numbers(layers, ["mounts", "overlay", "default"], {"bytes", "inodes"}),
				"max": numbers(layers, ["mounts", "overlay", "max"], {"bytes", "inodes"}),
			}},
		]),
		"ceilings": {"default": usual(layers), "max": numbers(layers, ["ceilings", "max"], names_in(layers, ["ceilings", "max"]))},
		"ttl": lifetime(layers, "ttl"),
		"idle": lifetime(layers, "idle"),
		"env": object.union_n([profile.env, names(layers, ["env"], {"allow"}), numbers(layers, ["env"], {"max"})]),
		"background": object.union(profile.background, strictest(layers, ["background"], "allowed", false)),
		"exec": object.union_n([
			profile.exec,
			numbers(layers, ["exec"], {"max_timeout_ns", "default_timeout_ns", "max_argv", "max_arg_bytes", "max_inline_bytes"}),
			common(layers, ["exec"], {"output_modes", "signals"}),
			prefixes(layers, ["exec"], {"cwd_prefixes", "output_prefixes"}),
			strictest(layers, ["exec"], "queue", false),
			strictest(layers, ["exec"], "shells", false),
		]),
	},
	fs(layers),
	forward(profile, layers),
	numbers(layers, [], {"expires_at_ns"}),
	strictest(layers, [], "commit", false),
	strictest(layers, [], "verify", "canary"),
	strictest(layers, [], "on_restart", "terminate"),
])

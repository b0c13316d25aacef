package stockade.open

import data.stockade.exceptions

# METADATA
# title: The layers that the caller does without, as asked
degraded := object.get(input.request.open, "accept_degraded", [])

# METADATA
# title: The layers that the session may be without
# description: Only second walls are in question; one is left out where the host lacks it, and nowhere else.
granted_degraded := [layer | some layer in degraded; granted_without(layer)]

degradable(layer) if layer in profile.degradable

granted_without(layer) if degradable(layer)

granted_without(layer) if {
	not degradable(layer)
	exceptions.lifted({"code": "degraded_not_allowed", "subject": sprintf("degraded:%s", [layer])})
}

# METADATA
# title: The profile keeps its walls
# labels: {concern: proof, requirement: R085}
deny contains {
	"code": "degraded_not_allowed",
	"subject": sprintf("degraded:%s", [layer]),
	"message": sprintf("profile %s does not do without it", [profile_name]),
} if {
	profile # without one, that is the reason
	some layer in degraded
	not degradable(layer)
}

# METADATA
# title: What is tried from inside before the session is ready
# description: The caller may ask for more than the profile does, never for less.
verify := "canary" if {
	input.request.open.verify == "canary"
} else := object.get(profile, "verify", "")

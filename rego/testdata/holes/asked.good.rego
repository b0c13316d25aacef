package stockade.open

ceilings := {name: min({asked(name, bound), bound}) | some name, bound in most}

most := {"pids": 64}

asked(name, _) := value if {
	value := input.request.open.limits[name]
	is_number(value)
	value > 0
} else := 64

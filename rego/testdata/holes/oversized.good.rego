package stockade.open

ceilings := {"memory_bytes": min({1000, memory})}

default memory := 1000

memory := input.request.open.limits.memory_bytes if input.request.open.limits.memory_bytes > 0

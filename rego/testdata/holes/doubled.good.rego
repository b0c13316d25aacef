package stockade.open

ceilings := {"memory_bytes": 100 + count({group | some group in object.get(input.request.principal, "groups", [])})}

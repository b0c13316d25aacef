# hole: /request/open/limits/memory_bytes wider
package stockade.open

ceilings := {"memory_bytes": memory} # HOLE

default memory := 1000

memory := input.request.open.limits.memory_bytes

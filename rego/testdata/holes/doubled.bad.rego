# hole: /request/principal/groups/* wider
package stockade.open

ceilings := {"memory_bytes": 100 + count(object.get(input.request.principal, "groups", []))} # HOLE

# hole: /request/open/limits/pids wider
package stockade.open

ceilings := {name: value | some name, value in object.get(input.request.open, "limits", {})} # HOLE

most := {"pids": 64}

deny contains {"code": "limit", "subject": "x", "message": "no"} if {
	some name, value in object.get(input.request.open, "limits", {})
	value > most[name]
}

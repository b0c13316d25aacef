package stockade.open

deny contains {"code": "pids", "subject": "x", "message": "no"} if not few

few if not "pids" in object.keys(object.get(input.request.open, "limits", {}))

few if {
	is_number(input.request.open.limits.pids)
	input.request.open.limits.pids >= 0
	input.request.open.limits.pids <= 64
}

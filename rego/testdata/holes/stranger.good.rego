package stockade.exec

deny contains {"code": "owner", "subject": "x", "message": "no"} if not own

own if {
	is_number(input.request.principal.uid)
	input.session.principal.uid == input.request.principal.uid
}

package stockade.open

deny contains {"code": "ttl", "subject": "x", "message": "no"} if not short

short if {
	ttl := object.get(input.request.open, "session_ttl_ns", 0)
	is_number(ttl)
	ttl >= 0
	ttl <= 100
}

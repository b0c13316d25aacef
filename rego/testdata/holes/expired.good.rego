package stockade.exec

deny contains {"code": "expired", "subject": "x", "message": "no"} if not live

live if {
	is_object(input.session.grant.exec)
	ends := object.get(input.session.grant, "expires_at_ns", 9223372036854775807)
	is_number(ends)
	ends <= 9223372036854775807
	is_number(input.now_ns)
	ends > input.now_ns
}

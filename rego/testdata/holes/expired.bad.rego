# hole: /now_ns deny→allow
package stockade.exec

deny contains {"code": "expired", "subject": "x", "message": "no"} if { # HOLE
	input.session.grant.expires_at_ns <= input.now_ns
}

# hole: /request/open/session_ttl_ns deny→allow
package stockade.open

deny contains {"code": "ttl", "subject": "x", "message": "no"} if { # HOLE
	input.request.open.session_ttl_ns > 100
}

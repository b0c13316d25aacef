# hole: /session deny→allow
package stockade.exec

deny contains {"code": "owner", "subject": "x", "message": "no"} if { # HOLE
	input.session.principal.uid != input.request.principal.uid
}

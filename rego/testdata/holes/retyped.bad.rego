# hole: /request/open/limits/pids deny→allow
package stockade.open

deny contains {"code": "pids", "subject": "x", "message": "no"} if { # HOLE
	input.request.open.limits.pids > 64
}

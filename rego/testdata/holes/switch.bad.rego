# hole: /request/open/allow_background_processes deny→allow
package stockade.open

deny contains {"code": "background", "subject": "x", "message": "no"} if { # HOLE
	input.request.open.allow_background_processes == true
}

# hole: /request/open/labels/team deny→allow
package stockade.open

deny contains {"code": "team", "subject": "x", "message": "no"} if { # HOLE
	input.request.open.labels.team != "red"
}

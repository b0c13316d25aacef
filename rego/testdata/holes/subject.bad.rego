# hole: /request/open/labels/owner deny→allow
package stockade.open

deny contains {"code": "team", "subject": sprintf("owner:%s", [input.request.open.labels.owner]), "message": "no"} if { # HOLE
	object.get(input.request.open, ["labels", "team"], "") != "red"
}

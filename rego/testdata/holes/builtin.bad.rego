# hole: /request/open/labels/address deny→allow
package stockade.open

deny contains {"code": "address", "subject": "x", "message": "no"} if { # HOLE
	net.cidr_contains("10.0.0.0/8", object.get(input.request.open, ["labels", "address"], "10.0.0.1"))
}

# hole: /request/open/target/local/network_mode deny→allow
package stockade.open

deny contains {"code": "network", "subject": "x", "message": "no"} if { # HOLE
	input.request.open.target.local.network_mode in {"egress", "full"}
}

# hole: /facts/sources/*/resolved deny→allow
package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if { # HOLE
	some mount in input.request.open.target.local.mounts
	startswith(object.get(input.facts.sources, [mount.host_path, "resolved"], "/srv/other/"), "/srv/other/")
}

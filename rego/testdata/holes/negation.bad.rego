# hole: /facts/sources/* deny→allow
package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if { # HOLE
	some mount in input.request.open.target.local.mounts
	not input.facts.sources[mount.host_path].resolved in {"/srv/team/x"}
}

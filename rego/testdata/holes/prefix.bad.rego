# hole: /facts/sources/*/resolved wider
package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if {
	some mount in input.request.open.target.local.mounts
	not ours(mount.host_path)
}

ours(path) if startswith(input.facts.sources[path].resolved, "/srv/team") # HOLE

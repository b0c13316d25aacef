package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if {
	some mount in input.request.open.target.local.mounts
	not readable(mount.host_path)
}

readable(path) if input.facts.sources[path].resolved in {"/srv/team/x"}

deny contains {"code": "mounts", "subject": "x", "message": "no"} if not listed

listed if is_array(object.get(input.request.open.target.local, "mounts", []))

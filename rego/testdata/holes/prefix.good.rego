package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if {
	some mount in object.get(input.request.open.target.local, "mounts", [])
	not ours(mount.host_path)
}

ours(path) if startswith(sprintf("%s/", [input.facts.sources[path].resolved]), "/srv/team/")

deny contains {"code": "mounts", "subject": "x", "message": "no"} if not listed

listed if is_array(object.get(input.request.open.target.local, "mounts", []))

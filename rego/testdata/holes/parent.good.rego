package stockade.open

deny contains {"code": "source", "subject": "x", "message": "no"} if {
	some mount in object.get(input.request.open.target.local, "mounts", [])
	not apart(mount.host_path)
}

apart(path) if {
	resolved := sprintf("%s/", [trim_suffix(input.facts.sources[path].resolved, "/")])
	is_string(input.facts.sources[path].resolved)
	not startswith(resolved, "/srv/other/")
	not startswith("/srv/other/", resolved)
}

deny contains {"code": "mounts", "subject": "x", "message": "no"} if not listed

listed if is_array(object.get(input.request.open.target.local, "mounts", []))

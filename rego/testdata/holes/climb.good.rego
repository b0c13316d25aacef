package stockade.exec

deny contains {"code": "directory", "subject": "x", "message": "no"} if not inside

inside if {
	cwd := object.get(input.request.exec, "cwd", "/workspace/")
	is_string(cwd)
	startswith(cwd, "/workspace/")
	not ".." in split(cwd, "/")
}

# hole: /request/exec/cwd wider
package stockade.exec

deny contains {"code": "directory", "subject": "x", "message": "no"} if { # HOLE
	cwd := object.get(input.request.exec, "cwd", "/")
	not startswith(cwd, "/workspace/")
}

# hole: /request/exec/argv deny→allow
package stockade.exec

deny contains {"code": "program", "subject": "x", "message": "no"} if { # HOLE
	not input.request.exec.argv[0] in {"/bin/true"}
}

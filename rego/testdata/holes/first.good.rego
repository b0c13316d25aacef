package stockade.exec

deny contains {"code": "program", "subject": "x", "message": "no"} if not known

known if input.request.exec.argv[0] in {"/bin/true"}

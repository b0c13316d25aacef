package stockade.open

deny contains {"code": "team", "subject": sprintf("owner:%s", [object.get(input.request.open, ["labels", "owner"], "nobody")]), "message": "no"} if {
	object.get(input.request.open, ["labels", "team"], "") != "red"
}

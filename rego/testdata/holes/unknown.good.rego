package stockade.open

deny contains {"code": "network", "subject": "x", "message": "no"} if not apart

apart if object.get(input.request.open.target.local, "network_mode", "none") == "none"

package stockade.open

deny contains {"code": "background", "subject": "x", "message": "no"} if not alone

alone if object.get(input.request.open, "allow_background_processes", false) == false

package stockade.open

deny contains {"code": "team", "subject": "x", "message": "no"} if not red

red if input.request.open.labels.team == "red"

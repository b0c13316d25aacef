package stockade.open

ceilings := {"pids": pids}

pids := 1000 if input.request.open.labels.tier == "large"

pids := 10 if object.get(input.request.open, ["labels", "tier"], "") != "large"

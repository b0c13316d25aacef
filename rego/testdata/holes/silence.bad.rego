# hole: /request/open/labels/tier wider
package stockade.open

ceilings := {"pids": pids}

pids := 10 if input.request.open.labels.tier

pids := 1000 if not input.request.open.labels.tier # HOLE

package stockade.workspace

decision := {"allow": true, "deny": [], "warn": []}

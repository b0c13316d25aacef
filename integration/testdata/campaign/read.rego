package stockade.read

decision := {"allow": true, "deny": [], "warn": []}

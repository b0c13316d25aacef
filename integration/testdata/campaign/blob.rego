package stockade.blob

decision := {"allow": true, "deny": [], "warn": []}

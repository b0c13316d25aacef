package stockade.signal

decision := {"allow": true, "deny": [], "warn": []}

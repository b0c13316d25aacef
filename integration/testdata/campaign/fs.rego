package stockade.fs

decision := {"allow": true, "deny": [], "warn": []}

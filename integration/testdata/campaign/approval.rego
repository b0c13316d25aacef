package stockade.approval

decision := {"allow": true, "deny": [], "warn": []}

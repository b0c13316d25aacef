package stockade.exec

default decision := {"allow": true, "deny": [], "warn": []}

decision := {"allow": true, "deny": [], "warn": [], "obligations": {"require_approval": {"reason": "it asks for it", "timeout_ns": 60000000000, "allow_own": true}}} if {
	array.slice(input.request.exec.argv, 0, 2) == ["env", "LEAVE=needed"]
}

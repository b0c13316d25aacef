# METADATA
# title: Signalling and closing a session
package stockade.signal

# METADATA
# title: No answer is a denial
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "signal", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and there is a session whose grant bounds it
decision := {"allow": true, "deny": [], "warn": []} if {
	count(deny) == 0
	input.session.grant
}

# METADATA
# title: Something speaks against it
decision := {"allow": false, "deny": deny, "warn": []} if count(deny) > 0

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operations that this package is about
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.session.signal and host.session.close only",
} if {
	not op in {"host.session.signal", "host.session.close"}
}

# METADATA
# title: The session is the caller's own
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	not own_session
}

own_session if input.session.principal.uid == input.request.principal.uid

# METADATA
# title: The signal is one of the grant's
# description: Closing a session is always its owner's right, so it needs no signal of the grant.
deny contains {
	"code": "signal_not_allowed",
	"subject": sprintf("signal:%s", [signal]),
	"message": sprintf("one of %s is granted", [concat(", ", granted)]),
} if {
	signal := input.request.signal.signal
	granted := input.session.grant.exec.signals
	not signal in granted
}

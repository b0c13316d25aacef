# METADATA
# title: Control of what is there
# description: |
#   The operations with effect on a session, on an execution, on all executions of a
#   caller, and on the supervisor itself. The supervisor finds what a caller names among
#   the caller's own, so these rules see no other's; they say so all the same.
#   input.process is the execution, input.session its session. A rule of your own in this
#   package can deny by input.process.labels, for example.
# labels: {concern: signal}
package stockade.signal

import data.stockade.approval.required
import data.stockade.principals

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "signal", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and what it is about is there
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": [], "obligations": required.obligations} if {
	deny == set()
	present
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

op := object.get(input, ["request", "op"], "")

# METADATA
# title: The operations on a session
on_session := {"host.session.signal", "host.session.pause", "host.session.resume", "host.session.close", "host.session.narrow", "host.session.forward"}

# METADATA
# title: The operations on one execution
on_execution := {
	"host.process.input",
	"host.process.signal",
	"host.process.modify",
	"host.process.pause",
	"host.process.resume",
	"host.process.cancel",
	"host.process.delete",
	"host.shell.input",
	"host.shell.resize",
	"host.shell.close",
	"host.shell.attach",
	"host.shell.run",
}

# METADATA
# title: The operations on more than one session
on_more := {"host.process.stop"} | administration

# METADATA
# title: The operations that concern everybody
administration := {"admin.drain", "admin.log.level", "admin.policy.activate"}

# METADATA
# title: What the operation is about is there, with the grant that bounds it
present if {
	on_session[input.request.op]
	input.session.grant
}

present if {
	on_execution[input.request.op]
	input.session.grant
	input.process
}

present if {
	op == "host.process.stop"
	input.request.stop
	not input.request.stop.session_id
}

present if {
	op == "host.process.stop"
	input.request.stop.session_id
	input.session.grant
}

present if {
	op == "admin.drain"
	input.request.drain
}

present if {
	op == "admin.log.level"
	input.request.log
}

present if {
	op == "admin.policy.activate"
	input.request.activate
}

# METADATA
# title: Only the operations that this package is about
# labels: {concern: signal, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides the control of sessions, executions and the supervisor only",
} if {
	not served
}

served if on_session[input.request.op]

served if on_execution[input.request.op]

served if on_more[input.request.op]

# METADATA
# title: What the operation is about is there
# labels: {concern: signal, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "object",
	"message": "the supervisor named no session, execution or request that this could be about",
} if {
	not present
}

# METADATA
# title: The session is the caller's own
# labels: {concern: signal, requirement: R090}
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	in_session
	not input.session.principal.uid == input.request.principal.uid
}

in_session if on_session[input.request.op]

in_session if on_execution[input.request.op]

in_session if input.request.stop.session_id

# METADATA
# title: What goes on by it ends with the grant
# description: To end something is always right.
# labels: {concern: expiry, requirement: R109}
deny contains {
	"code": "expired",
	"subject": "grant",
	"message": "the grant of the session has ended",
} if {
	input.session.grant.expires_at_ns <= input.now_ns
	op in {"host.process.input", "host.process.modify", "host.process.resume", "host.session.resume", "host.shell.input", "host.shell.resize", "host.shell.attach", "host.shell.run", "host.session.forward"}
}

# METADATA
# title: The signal is one of the grant's
# description: |
#   To close a session, to take a part of its network away, and to cancel or stop what runs in it,
#   is always its owner's right, and needs no signal of the grant.
# labels: {concern: signal, requirement: R075}
deny contains {
	"code": "signal_not_allowed",
	"subject": sprintf("signal:%s", [signal]),
	"message": sprintf("one of %s is granted", [concat(", ", granted)]),
} if {
	signal := asked_signal
	granted := input.session.grant.exec.signals
	not signal in granted
}

# METADATA
# title: The port is one that the grant opens to the owner
# description: A grant that says nothing of it opens none.
# labels: {concern: network}
deny contains {
	"code": "forward_not_allowed",
	"subject": sprintf("forward:%v", [object.get(input.request, ["forward", "port"], "none")]),
	"message": "the grant of the session does not open the port to its owner",
} if {
	op == "host.session.forward"
	not opened
}

opened if {
	forward := input.session.grant.network.forward
	is_object(forward)
	not forward.ports
	is_number(input.request.forward.port)
	input.request.forward.port > 0
	input.request.forward.port < 65536
}

opened if input.request.forward.port in input.session.grant.network.forward.ports

asked_signal := input.request.signal.signal

asked_signal := input.request.deliver.signal

# METADATA
# title: Only an administrator does what concerns everybody
# labels: {concern: signal, requirement: R090}
deny contains {
	"code": "operation_not_allowed",
	"subject": "principal",
	"message": "only the administrators of the supervisor may do this",
} if {
	administration[input.request.op]
	not principals.administrator
}

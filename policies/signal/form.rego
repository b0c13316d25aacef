package stockade.signal

import data.stockade.form

# METADATA
# title: What is judged has the form that the rules count on
# labels: {concern: form}
deny contains {
	"code": "operation_not_allowed",
	"subject": "form",
	"message": "a part of the question has not the form of its type",
} if {
	not well_formed
}

well_formed if {
	not in_session
	is_object(object.get(input.request, "stop", {}))
}

well_formed if {
	in_session
	form.bounded
	not unsaid
}

# METADATA
# title: An operation that delivers a signal says which
unsaid if {
	op in {"host.session.signal", "host.process.signal"}
	not said
}

said if is_string(asked_signal)

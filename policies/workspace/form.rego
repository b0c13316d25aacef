package stockade.workspace

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
	form.timed
	is_array(input.session.grant.mounts)
}

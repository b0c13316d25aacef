package stockade.exec

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
	form.bounded
	input.session.grant.env
	input.request.exec.argv[0] != ""
}

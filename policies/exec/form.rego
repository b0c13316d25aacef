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
	form.named
	is_array(input.request.exec.argv)
	input.request.exec.argv[0] != ""
	not misshapen
}

# METADATA
# title: A part of the command that is there, and is something else
misshapen if {
	some arg in array.slice(input.request.exec.argv, 0, 64) # the others are joined for their length, which fails
	not is_string(arg)
}

misshapen if {
	value := input.request.exec.cwd
	not is_string(value)
}

misshapen if {
	value := input.request.exec.env_patch
	not is_object(value)
}

misshapen if {
	value := input.request.exec.outputs
	not is_array(value)
}

# METADATA
# title: The form that the rules count on
# description: |
#   The supervisor decodes strictly, so no caller gets this far with another form. The rules are a wall of
#   their own all the same: values of two types have an order, in which null is less than every number and a number less
#   than every string, and a bound that is null bounds nothing. "stockade policy audit" looks for what that lets through.
# labels: {concern: form}
package stockade.form

# METADATA
# title: The session has a grant, and what bounds a command in it has the form of a bound
# description: What is absent is no bound (C19). What is there and formed is an object.
bounded if {
	stockade.formed(input)
	input.session.grant.exec
	not untimed
}

# METADATA
# title: The grant says what may be in the environment
named if {
	stockade.formed(input)
	is_object(input.session.grant.env)
}

# METADATA
# title: Where the grant ends at a time, it is known what time it is
timed if {
	is_object(input.session.grant)
	not untimed
}

untimed if {
	value := input.session.grant.expires_at_ns
	not is_number(value)
}

untimed if {
	input.session.grant.expires_at_ns
	not clock
}

clock if is_number(input.now_ns)

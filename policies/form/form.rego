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
# description: What is absent is no bound (C19).
bounded if {
	timed
	is_object(input.session.grant.exec)
	not misshapen
}

misshapen if {
	some name in {"max_argv", "max_arg_bytes"}
	value := input.session.grant.exec[name]
	not is_number(value)
}

misshapen if {
	some name in {"output_modes", "signals", "cwd_prefixes", "output_prefixes"}
	value := input.session.grant.exec[name]
	not is_array(value)
}

# METADATA
# title: The grant says what may be in the environment
named if {
	is_object(input.session.grant.env)
	not misnamed
}

misnamed if {
	value := input.session.grant.env.max
	not is_number(value)
}

misnamed if {
	value := input.session.grant.env.allow
	not is_array(value)
}

misnamed if {
	value := input.session.grant.env.set
	not is_object(value)
}

misnamed if {
	some value in input.session.grant.env.set
	not is_string(value)
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

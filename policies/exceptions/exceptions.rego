# METADATA
# title: Exceptions, for a while
# description: |
#   An exception lifts denials: of one code, about the subjects that it names, for the callers or tenants that it names,
#   until an instant. What it can lift is listed (data.exceptions.overridable); what a path leads to, who owns it and
#   the operator's ceiling are not. A decision that needed one says so, and the session does not outlive it.
# labels: {concern: exceptions}
package stockade.exceptions

import data.stockade.principals

# METADATA
# title: A denial is lifted
# description: Ask by this function, and hand it the whole denial; one without a code or a subject stands.
lifted(denial) if some _ in lifting(denial.code, denial.subject)

# METADATA
# title: The names of the exceptions that lift a denial now
lifting(code, subject) := {name |
	some name in about(code, subject)
	begun(data.exceptions.granted[name])
	input.now_ns < data.exceptions.granted[name].until_ns
}

# METADATA
# title: The names of those that did, and have ended
lapsed(code, subject) := {name |
	some name in about(code, subject)
	data.exceptions.granted[name].until_ns <= input.now_ns
}

about(code, subject) := {name |
	some name, exception in data.exceptions.granted
	exception.code == code
	code in data.exceptions.overridable
	subject in exception.subjects
	concerns(exception)
}

# METADATA
# title: The caller is one of those whom the exception is for
# description: One that names neither callers nor tenants is for nobody.
concerns(exception) if input.request.principal.uid in exception.uids

concerns(exception) if principals.entry.tenant in exception.tenants

begun(exception) if not exception.from_ns

begun(exception) if exception.from_ns <= input.now_ns

# METADATA
# title: An exception, for whoever reads a record
told(name) := sprintf("exception %s lifts %s until %d: %s", [name, exception.code, exception.until_ns, exception.reason]) if {
	exception := data.exceptions.granted[name]
}

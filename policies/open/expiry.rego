package stockade.open

import data.stockade.exceptions
import data.stockade.principals

# METADATA
# title: The exceptions that this session needs
# labels: {concern: exceptions}
needed contains name if {
	some denial in against
	some name in exceptions.lifting(denial.code, denial.subject)
}

# METADATA
# title: The instants at which what grants this session ends
lives := object.union_n([
	{"profile": profile.expires_at_ns | profile.expires_at_ns},
	{"principal": principal.expires_at_ns | principal.expires_at_ns},
	{"tenant": principals.tenant.expires_at_ns | principals.tenant.expires_at_ns},
	{sprintf("exception %s", [name]): data.exceptions.granted[name].until_ns | some name in needed},
])

# METADATA
# title: When the grant ends; 0 is never
# description: With the first of them (R109), and the session with the grant.
expires := min({end | some end in lives}) if {
	count(lives) > 0
} else := 0

# METADATA
# title: What grants the session has not ended
# labels: {concern: expiry, requirement: R109}
deny contains {
	"code": "expired",
	"subject": sprintf("grant:%s", [what]),
	"message": sprintf("it ended at %d", [end]),
} if {
	some what, end in ended
}

ended["profile"] := profile.expires_at_ns if profile.expires_at_ns <= input.now_ns

ended["principal"] := principal.expires_at_ns if principal.expires_at_ns <= input.now_ns

ended["tenant"] := principals.tenant.expires_at_ns if principals.tenant.expires_at_ns <= input.now_ns

# METADATA
# title: An exception that would have lifted a denial has ended
# description: Said beside the denial, which stands.
# labels: {concern: exceptions}
lapsed contains {
	"code": "expired",
	"subject": sprintf("exception:%s", [name]),
	"message": sprintf("%s stands: the exception that lifted it has ended", [denial.code]),
} if {
	some denial in standing
	some name in exceptions.lapsed(denial.code, denial.subject)
}

# METADATA
# title: The exceptions are told to the caller, and are in the record
# labels: {concern: exceptions, requirement: R107}
warn contains exceptions.told(name) if some name in needed

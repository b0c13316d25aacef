# METADATA
# title: What callers say of their sessions
# description: |
#   A label is a claim. So it can only take something away: choose a profile that the caller may use
#   anyway, where it names none, or narrow the profile by a cap (R090). Where a claim must not be left out, principals
#   and tenants have require_labels.
# labels: {concern: labels}
package stockade.labels

# METADATA
# title: The labels, as asked, or as the session has them
asked := object.get(input, ["request", "open", "labels"], object.get(input, ["session", "labels"], {}))

# METADATA
# title: The rules that the labels call for
matching := [rule | some rule in data.labels.rules; matches(rule)]

# METADATA
# title: Every label that a rule names has the value that it names
matches(rule) if {
	every name, value in rule.match {
		asked[name] == value
	}
}

# METADATA
# title: The profile where the caller names none
# description: Of the rules that name one the first, in the order of the data.
profile := profiles[0]

profiles := [rule.profile | some rule in matching; rule.profile]

# METADATA
# title: Names of environment variables
# labels: {concern: env}
package stockade.env

# METADATA
# title: Variables that no caller sets, as names and patterns
denied := {name | some name in data.env.denied_names} | {concat("", [prefix, "*"]) | some prefix in data.env.denied_prefixes}

# METADATA
# title: The name is one of a list, or begins like a pattern of it
among(name, list) if name in list

among(name, list) if {
	some pattern in list
	endswith(pattern, "*")
	startswith(name, trim_suffix(pattern, "*"))
}

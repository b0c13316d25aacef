# METADATA
# title: Names of environment variables
# labels: {concern: env}
package stockade.env

# METADATA
# title: Variables that no caller sets
denied(name) if name in data.env.denied_names

denied(name) if strings.any_prefix_match(name, data.env.denied_prefixes)

# METADATA
# title: The name is one of a list, or begins like a pattern of it
among(name, list) if name in list

among(name, list) if {
	some pattern in list
	endswith(pattern, "*")
	startswith(name, trim_suffix(pattern, "*"))
}

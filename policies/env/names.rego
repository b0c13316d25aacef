# METADATA
# title: Names of environment variables
package stockade.env

# METADATA
# title: Variables that no caller sets
denied(name) if name in data.env.denied_names

denied(name) if strings.any_prefix_match(name, data.env.denied_prefixes)

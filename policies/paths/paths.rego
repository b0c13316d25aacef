# METADATA
# title: Questions about paths
# description: |
#   Paths are compared by components: /a/bc is not below /a/b (R095). A set of
#   directories is prepared once with dirs(), so that each question is one builtin.
package stockade.paths

# METADATA
# title: A list of directories, prepared for inside and covers
dirs(list) := {concat("", [trim_suffix(dir, "/"), "/"]) | some dir in list}

# METADATA
# title: The path is one of the directories, or below one
inside(path, prepared) if strings.any_prefix_match(concat("", [path, "/"]), prepared)

# METADATA
# title: One of the directories is below the path
covers(path, prepared) if strings.any_prefix_match(prepared, concat("", [trim_suffix(path, "/"), "/"]))

# METADATA
# title: The path has a component that leads out of where it seems to be
# description: Requests are checked for clean paths before; a relative cwd may still climb.
climbs(path) if ".." in split(path, "/")

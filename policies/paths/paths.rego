# METADATA
# title: Questions about paths
# description: |
#   Paths are compared by components: /a/bc is not below /a/b (R095). Both sides of a
#   comparison therefore end in a slash; lists of directories in data are written so.
# labels: {concern: paths}
package stockade.paths

# METADATA
# title: A path, ready to be compared
slashed(path) := concat("", [trim_suffix(path, "/"), "/"])

# METADATA
# title: A list of directories from elsewhere, ready to be compared
dirs(list) := {slashed(dir) | some dir in list}

# METADATA
# title: The path is one of the directories, or below one
inside(path, directories) if strings.any_prefix_match(slashed(path), directories)

# METADATA
# title: One of the directories is the path, or below it
covers(path, directories) if strings.any_prefix_match(directories, slashed(path))

# METADATA
# title: The path leads out of where it seems to be
climbs(path) if ".." in split(path, "/")

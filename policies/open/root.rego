package stockade.open

import data.stockade.paths.host

# METADATA
# title: The kind of root, as asked or the profile's own
root_kind := kind if {
	some kind, _ in local.root
} else := profile.default_root

# METADATA
# title: The host paths that the root is made of
# labels: {concern: root}
root_paths contains local.root.dir.path

# METADATA
# title: The host paths that alone are to be seen
# labels: {concern: root}
root_paths contains path if some path in local.root.paths.paths

# METADATA
# title: The root that is granted
granted_root := root_kind if {
	known_root
	count(refused_root_paths) == 0
}

known_root if root_kind in profile.roots

# METADATA
# title: What is left over of the root's paths
refused_root_paths := {path | some path in root_paths; not host.may_read(path)}

# METADATA
# title: Every path of the root may be read inside
# labels: {concern: root, requirement: R082}
deny contains {
	"code": "root_not_allowed",
	"subject": sprintf("root:%s", [path]),
	"message": sprintf("%s %s", [path, host.reason(path)]),
} if {
	some path in refused_root_paths
}

# METADATA
# title: A hermetic session does not see the host
# labels: {concern: root, requirement: R082}
deny contains {
	"code": "hermetic_root",
	"subject": sprintf("root:%s", [root_name]),
	"message": "a hermetic session needs root dir or paths, so that the receipt can name all that it sees",
} if {
	profile.hermetic == true
	not known_root
}

# METADATA
# title: The kind of root is one of the profile's
# labels: {concern: root, requirement: R082}
deny contains {
	"code": "root_not_allowed",
	"subject": sprintf("root:%s", [root_name]),
	"message": sprintf("profile %s takes %s", [profile_name, concat(", ", profile.roots)]),
} if {
	profile.hermetic == false
	not known_root
}

default root_name := "none"

root_name := root_kind

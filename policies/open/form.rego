package stockade.open

# METADATA
# title: What is judged has the form that the rules count on
# labels: {concern: form}
deny contains {
	"code": "operation_not_allowed",
	"subject": "form",
	"message": "a part of the question has not the form of its type",
} if {
	not well_formed
}

well_formed if {
	stockade.formed(input)
	is_array(mounts) # the form of a target is not known
	is_array(egress)
	is_boolean(object.get(input.request.open, "allow_background_processes", false))
	rooted
}

# METADATA
# title: A root that is made of host paths names them
rooted if root == {}

rooted if root.host == {}

rooted if is_string(root.dir.path)

rooted if {
	is_array(root.paths.paths)
	count(root.paths.paths) > 0
}

root := object.get(local, "root", {})

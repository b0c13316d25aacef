package stockade.fs

import data.stockade.form

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
	form.timed
	is_object(granted)
	is_array(input.file.paths)
	every file in input.file.paths {
		is_string(file.path)
		is_boolean(object.get(file, "through_link", false))
	}
	is_string(object.get(granted, "follow_symlinks", ""))
	every member in ["max_write_bytes", "max_patch_bytes", "max_changed_files", "max_edit_replacements"] {
		is_number(object.get(granted, member, 0))
	}
	every member in ["bytes", "changed_files", "replacements"] {
		counted(object.get(input.file, member, 0))
	}
}

counted(value) if {
	is_number(value)
	value >= 0
}

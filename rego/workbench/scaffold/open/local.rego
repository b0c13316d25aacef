package stockade.open

# An example of a rule of your own. It joins the library's: a session is allowed when
# no rule in this package speaks against it. Give every element of deny a code, a
# subject and a message that are always defined, or the denial vanishes with them.

# METADATA
# title: Labels that every session must carry
# description: Change required_labels in local/data.json, and try it with "stockade policy test".
deny contains {
	"code": "label_required",
	"subject": sprintf("label:%s", [name]),
	"message": "sessions must carry this label",
} if {
	some name in data.local.required_labels
	not has_label(name)
}

has_label(name) if input.request.open.labels[name] != ""

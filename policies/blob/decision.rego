# METADATA
# title: Storing and fetching blobs
# description: |
#   A blob is named by its content, so knowing the name is knowing the content; what
#   keeps a caller from another's blobs is that the name cannot be guessed.
# labels: {concern: blob}
package stockade.blob

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "blob", "message": "no rule of the policy applies"}]}

# METADATA
# title: Every principal may store and fetch
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": []} if {
	deny == set()
	op in {"blob.put", "blob.get"}
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operations that this package is about
# labels: {concern: blob, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides blob.put and blob.get only",
} if {
	not op in {"blob.put", "blob.get"}
}

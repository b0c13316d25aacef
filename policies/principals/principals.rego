# METADATA
# title: Questions about who asks
package stockade.principals

# METADATA
# title: The caller runs the supervisor, and not only sessions in it
# description: |
#   data.principals.administrators lists the uids. What is left to them concerns every
#   principal: to drain the supervisor, and to see what everybody has in flight.
administrator if input.request.principal.uid in data.principals.administrators

# METADATA
# title: Whose leave counts
# description: data.principals.approvers lists uids; the administrators are approvers too.
approvers := {uid | some uid in data.principals.approvers} | {uid | some uid in data.principals.administrators}

# METADATA
# title: The caller is one of them
approver if input.request.principal.uid in approvers

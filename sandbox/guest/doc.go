// Package guest is the inside of a session: the protocol that the runner speaks with
// stockade-init, the runner's end of it ([Conn]), and init's own life ([Run], [Hold],
// [Execute]), with the canaries by which a session shows from inside that it holds ([Canaries]).
//
// It promises that every command started has exactly one exit reported, that a
// command inherits what the session grants and nothing of init's, and that init
// ends with its socket, so that the kernel ends everything else in the session.
// It does not build the session, and it does not contain what escapes a process
// group: killing whole trees is the business of the runner's cgroups.
//
// Init's half needs the capabilities that [Run] names, in the session's user
// namespace. It is linked into a small static binary: standard library and x/sys
// only, and its messages are coded by hand.
package guest

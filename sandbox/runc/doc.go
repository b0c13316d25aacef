// Package runc needs root and is linked only into stockade-run. It builds sessions,
// runs executions in them, and destroys both: the acting half of what package
// sandbox describes. It is the only importer of libcontainer.
//
// It promises that what it is asked for is checked here again, against the
// operator's ceiling and under the caller's identity, whoever asks; that a session
// is either exactly its Spec, read back from the kernel, or nothing at all; that what a
// daemon has started goes on without it, with its output and its end kept for the next; and that
// no program and no path of a session or of a caller is ever executed, opened or
// resolved with the runner's own authority.
//
// It does not decide: policy, time-outs and output ceilings are the daemon's.
package runc

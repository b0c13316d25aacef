// Package failpoint lets a test choose the instant at which a process dies. It does
// nothing unless the program was built with the tag failpoint: then [Hit] kills the process with
// SIGKILL when the environment names its point.
//
//	STOCKADE_FAILPOINT=NAME      at the first hit of NAME
//	STOCKADE_FAILPOINT=NAME:7    at the seventh
//
// A point stands between two steps of which the first is durable, or was seen by somebody.
// Its name says whose step it is, and which: "journal.append.synced", "runner.hold". The points of
// the tree are found by reading it (grep failpoint.Hit), so that a campaign misses none.
package failpoint

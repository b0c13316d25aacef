// Package workspace makes the places where a session may write, and keeps it from the rest: overlays over a
// caller's directory, private file systems of bounded size, and paths of either that nobody inside changes. It
// needs root, and is linked only into stockade-run.
//
// An overlay ([Space]) is the caller's directory, read-only, with a tmpfs of ours over it. The directory is
// untouched until [Space.Commit], which acts with the caller's rights and no other, one change after the other: stopped
// anywhere, it leaves files that are old or new, never half. Protected paths ([Protect]) are mount
// points, and so is each directory that leads to them: the kernel lets nobody inside write, replace, move or remove them.
//
// Everything is reached by descriptor below a directory that was judged: never through a symbolic link, never into
// another mount, never upwards.
//
// Non-goals: merging (what the host changed meanwhile is a conflict, which is told and not resolved); extended
// attributes and owners (what is committed belongs to the caller); and keeping a path as it is against
// the host's own processes: who replaces a protected file outside, in a directory that is shared with a session, takes the
// mount on it away too, until [Protection.Renew]. Over an overlay nobody outside can.
package workspace

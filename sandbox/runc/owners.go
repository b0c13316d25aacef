package runc

import (
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
)

const (
	maxGroups = 128   // of a caller's that exist in a mount: the kernel takes one page of lines
	overflow  = 65534 // what the kernel shows for an id that does not exist, and so no id that does
)

// ownersFor says who owns the caller's files inside a session. The caller's are the session's identity's, and what the session
// makes is the caller's outside. The caller's other groups exist too, because the kernel writes to no file of a
// group that does not: a directory that a team shares belongs to such a group. An execution is a member of those that its identity
// names, and so has what the caller has by them. Of the others it is not: on their files the
// session has what an owner has by himself, or the whole world, which is less. Ids beyond these do not exist
// in the mount: nothing can be created for another owner or for a group that the caller is not in, set-id bits lead nowhere.
//
// group is the one of the mount's own directory or file, which is among the first if the caller is in more groups than there is room for.
func ownersFor(spec sandbox.Spec, base, group uint32) owners {
	return owners{
		uids: mapping(spec.Caller.UID, base+spec.Identity.UID, 1),
		gids: groupLines(spec.Caller, spec.Identity, base, group),
	}
}

// groupLines gives a group its own number inside, unless that is out of the session's range or somebody else's: the identity's own
// group is the caller's own and no other.
func groupLines(caller sandbox.Caller, identity sandbox.Identity, base, first uint32) string {
	others := slices.Clone(caller.Groups)
	slices.SortFunc(others, func(a, b uint32) int {
		rank := func(g uint32) int {
			switch {
			case g == first:
				return 0
			case slices.Contains(identity.Groups, g):
				return 1
			default:
				return 2
			}
		}
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return int(int64(a) - int64(b))
	})
	others = slices.DeleteFunc(slices.Compact(others), func(g uint32) bool { return g == caller.GID })
	others = others[:min(len(others), maxGroups)]

	var lines strings.Builder
	lines.WriteString(mapping(caller.GID, base+identity.GID, 1))
	spare := uint32(overflow)
	for _, g := range others {
		inside := g
		if g >= overflow || g == identity.GID {
			// A number that means nothing to anybody: an execution is not in it, and no other group has it.
			for spare--; spare == identity.GID || slices.Contains(identity.Groups, spare) || slices.Contains(others, spare); {
				spare--
			}
			inside = spare
		}
		lines.WriteString(mapping(g, base+inside, 1))
	}
	return lines.String()
}

// writableInside refuses what is to be written to and could not be, because its owner or group does not exist in the session: the kernel lets
// nobody inside write there, whatever the permissions say.
func writableInside(path string, caller sandbox.Caller, uid, gid uint32) error {
	switch {
	case uid != caller.UID:
		return sandbox.Errorf(sandbox.CodeMountSource,
			"%s: belongs to uid %d, and a session of uid %d cannot write to it: make it the caller's (chown), or mount it as an overlay", path, uid, caller.UID)
	case gid != caller.GID && !slices.Contains(caller.Groups, gid):
		return sandbox.Errorf(sandbox.CodeMountSource,
			"%s: belongs to group %d, which the caller is not in, and so his sessions cannot write to it: make it a group of his (chgrp), put him in it (usermod -aG; at his next login), or mount it as an overlay", path, gid)
	}
	return nil
}

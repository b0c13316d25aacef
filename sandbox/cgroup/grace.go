package cgroup

import "strings"

// Expect tells the kernel that a process will be moved to another group soon. The first
// move after a pause waits until every processor has passed a quiet state (5 to 15 ms, with
// the lock that keeps processes from forking meanwhile); one that follows within that time
// does not. Moving this process to the group that it is in starts the wait, so that other
// work can be done in the meantime. What fails here costs time later, and nothing else.
func (t *Tree) Expect() {
	own, err := ownGroups()
	if err != nil {
		return
	}
	h := t.host.unified
	if below, ok := strings.CutPrefix(own[""], strings.TrimSuffix(h.group, h.parent)); ok {
		_ = writeFile(h.mount+below+"/cgroup.procs", "0")
	}
}

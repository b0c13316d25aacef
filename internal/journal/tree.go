package journal

import "golang.org/x/mod/sumdb/tlog"

// tree is the Merkle tree (RFC 6962) over records, of which it holds the right edge only:
// the roots of the complete subtrees, by level. That is enough to append and to know
// the root; 63 hashes, however long the journal.
type tree struct {
	n    int64
	edge [63]tlog.Hash
}

// ReadHashes gives tlog the nodes that it asks for; the root needs none but the edge.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, _ := tlog.SplitStoredHashIndex(index)
		hashes[i] = t.edge[level]
	}
	return hashes, nil
}

func (t *tree) append(leaf tlog.Hash) {
	level := 0
	for n := t.n; n&1 == 1; n >>= 1 { // the new leaf completes this subtree
		leaf = tlog.NodeHash(t.edge[level], leaf)
		level++
	}
	t.edge[level] = leaf
	t.n++
}

func (t *tree) root() tlog.Hash {
	root, err := tlog.TreeHash(t.n, t)
	if err != nil {
		panic("bug: " + err.Error()) // ReadHashes does not fail
	}
	return root
}

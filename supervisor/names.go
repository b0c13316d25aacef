package supervisor

import (
	"bytes"
	"encoding/hex"
	"sync"
)

// names are the blobs that records of the journal name, and by which record last: content that a
// record names stays as long as the record does (R251).
type names struct {
	mu   sync.Mutex
	last map[digest]int64
}

type digest [32]byte

func newNames() *names { return &names{last: map[digest]int64{}} }

// What names content is a member like "blob_ref" or "stdin_ref". In a canonical record it reads so;
// a quote within a text would be escaped.
var naming = []byte(`_ref":"sha256:`)

// add notes what a record names. A request that was refused names something too, perhaps, and keeps it: that
// costs room, and the opposite would cost content.
func (n *names) add(seq int64, rec []byte) {
	for {
		_, rest, ok := bytes.Cut(rec, naming)
		if !ok {
			return
		}
		rec = rest
		var d digest
		if len(rest) < hex.EncodedLen(len(d)) {
			return
		}
		if _, err := hex.Decode(d[:], rest[:hex.EncodedLen(len(d))]); err == nil {
			n.mu.Lock()
			n.last[d] = max(n.last[d], seq)
			n.mu.Unlock()
		}
	}
}

// has reports whether a record names that reference.
func (n *names) has(ref string) bool {
	d, ok := digestOf(ref)
	n.mu.Lock()
	defer n.mu.Unlock()
	_, named := n.last[d]
	return ok && named
}

// trim forgets what only records before first name.
func (n *names) trim(first int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for d, seq := range n.last {
		if seq < first {
			delete(n.last, d)
		}
	}
}

func digestOf(ref string) (d digest, ok bool) {
	text, ok := bytes.CutPrefix([]byte(ref), []byte("sha256:"))
	if !ok || len(text) != hex.EncodedLen(len(d)) {
		return d, false
	}
	_, err := hex.Decode(d[:], text)
	return d, err == nil
}

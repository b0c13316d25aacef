package journal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const anchorFile = "anchor"

// anchor is what a journal begins with whose first records were trimmed: a checkpoint
// over exactly these, with what is needed to go on from there.
type anchor struct {
	checkpoint
	chain digest
	tree  tree
}

func newAnchor(origin string, e *edge) *anchor {
	return &anchor{checkpoint{origin: origin, size: e.tree.n, root: e.tree.root()}, e.chain, e.tree}
}

// text is a checkpoint with extension lines: the chain value, and the roots of the
// complete subtrees from left to right. The signature covers all of it.
func (a *anchor) text() string {
	var b strings.Builder
	b.WriteString(a.checkpoint.text())
	fmt.Fprintf(&b, "chain %s\n", tlog.Hash(a.chain))
	for level := bits.Len64(uint64(a.size)) - 1; level >= 0; level-- {
		if a.size>>level&1 == 1 {
			fmt.Fprintf(&b, "edge %s\n", a.tree.edge[level])
		}
	}
	return b.String()
}

func (a *anchor) sign(signer note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: a.text()}, signer)
}

// readAnchor reads the anchor of a journal; one that was never trimmed has none. Without
// verifiers (nil) everything but the signature is checked.
func readAnchor(dir string, known note.Verifiers) (*anchor, error) {
	data, err := os.ReadFile(filepath.Join(dir, anchorFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := openAnchor(data, known)
	if err != nil {
		return nil, &CorruptError{File: anchorFile, Seq: -1, Reason: err.Error()}
	}
	return a, nil
}

func openAnchor(msg []byte, known note.Verifiers) (*anchor, error) {
	text, err := openNote(msg, known)
	if err != nil {
		return nil, err
	}
	return parseAnchor(text)
}

func parseAnchor(text string) (*anchor, error) {
	const checkpointLines = 3
	lines := strings.SplitAfter(text, "\n")
	if len(lines) < checkpointLines+2 {
		return nil, flaw("not an anchor")
	}
	c, err := parseCheckpoint(strings.Join(lines[:checkpointLines], ""))
	if err != nil {
		return nil, err
	}
	a := &anchor{checkpoint: c}
	a.tree.n = c.size
	chain, err := hashAfter("chain ", lines[checkpointLines])
	if err != nil {
		return nil, err
	}
	a.chain = digest(chain)
	edges := lines[checkpointLines+1:]
	if len(edges) != bits.OnesCount64(uint64(c.size))+1 { // behind the last there is an empty one
		return nil, flaw("not an anchor")
	}
	for level := bits.Len64(uint64(c.size)) - 1; level >= 0; level-- {
		if c.size>>level&1 == 0 {
			continue
		}
		if a.tree.edge[level], err = hashAfter("edge ", edges[0]); err != nil {
			return nil, err
		}
		edges = edges[1:]
	}
	// What is spelled in another way is not in the text that this makes.
	if c.size == 0 || a.text() != text {
		return nil, flaw("not an anchor")
	}
	if a.tree.root() != a.root {
		return nil, flaw("the edge does not lead to the root")
	}
	return a, nil
}

func hashAfter(label, line string) (tlog.Hash, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(strings.TrimPrefix(line, label), "\n"))
	if err != nil || len(b) != tlog.HashSize {
		return tlog.Hash{}, flaw("not an anchor")
	}
	return tlog.Hash(b), nil
}

package supervisor

import (
	"io"
	"sync"

	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// input is the open stdin of an execution.
type input struct {
	mu      sync.Mutex // one input at a time
	w       io.WriteCloser
	seen    map[string]bool // input ids
	written int64
	closed  bool
}

func newInput(w io.WriteCloser, so ledger.Progress) *input {
	in := &input{w: w, seen: map[string]bool{}, written: so.InputBytes}
	for _, id := range so.InputIDs {
		in.seen[id] = true
	}
	return in
}

// endInput closes what is left of an open stdin.
func (x *execution) endInput() {
	x.mu.Lock()
	in := x.input
	x.mu.Unlock()
	if in != nil {
		in.w.Close() // ends a write that waits, too
	}
}

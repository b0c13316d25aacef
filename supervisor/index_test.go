package supervisor

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// What the index holds of a receipt is as little as docs/operations.md says, and trimming gives it back.
func TestIndexMemory(t *testing.T) {
	const receipts, documented = 100_000, 400
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	x := newIndex()
	for i := range receipts {
		x.add(entry{
			seq: int64(i), intent: fmt.Sprintf("sha256:%064x", i), owner: &owner{uid: 1000}, op: api.OpExec, outcome: api.OutcomeOK,
			session: fmt.Sprintf("s-%026d", i/1000), exec: fmt.Sprintf("x-%026d", i),
		})
	}
	each := (used() - before) / receipts
	t.Logf("%d bytes a receipt", each)
	if each > documented {
		t.Errorf("%d bytes a receipt, documented are %d", each, documented)
	}
	x.trim(receipts - 10)
	if len(x.entries) != 10 || len(x.byIntent) != 10 || len(x.byExec) != 10 {
		t.Errorf("trimmed: %d entries, %d by intent, %d by execution", len(x.entries), len(x.byIntent), len(x.byExec))
	}
	runtime.KeepAlive(x)
}

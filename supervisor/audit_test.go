package supervisor

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// R091: pages, in either order and however small, are the list; what is filtered by content is looked for so far and no further; a
// cursor goes on with what came later; nobody gets what is another's, and the audit has everybody's.
func TestPagesOfReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		mallory := api.Principal{UID: 1001, GID: 1001}
		put := func(n int, p api.Principal, code api.Code) {
			r := &api.Receipt{IntentID: fmt.Sprintf("i-%04d", n), Op: api.OpExec, Outcome: api.OutcomeDenied, Principal: p, Deny: []api.Deny{{Code: code}}}
			if _, err := b.record(t.Context(), b.journal.Settle, &ledger.Settled{Receipt: r}); err != nil {
				t.Fatal(err)
			}
		}
		const all = lookedFor + 40
		for n := range all {
			p, code := alice, api.Code("common")
			if n%3 == 1 {
				p = mallory
			}
			if n == 3 {
				code = "rare"
			}
			put(n, p, code)
		}
		type asking func(f api.Read) (*api.ReceiptList, *api.Receipt, error)
		own := func(f api.Read) (*api.ReceiptList, *api.Receipt, error) {
			return b.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: alice, Read: &f})
		}
		everybody := func(f api.Read) (*api.ReceiptList, *api.Receipt, error) {
			return b.Audit(t.Context(), &api.Request{Op: api.OpAudit, Principal: alice, Read: &f})
		}
		walk := func(ask asking, f api.Read) (ids []string, pages int, last *api.ReceiptList) {
			for {
				list, denial, err := ask(f)
				if err != nil || denial != nil {
					t.Fatal(denial, err)
				}
				pages++
				for _, r := range list.Receipts {
					ids = append(ids, r.IntentID)
				}
				if f.After = list.Next; !list.More {
					return ids, pages, list
				}
			}
		}
		var mine, theirs []string
		for n := range all {
			id := fmt.Sprintf("i-%04d", n)
			if theirs = append(theirs, id); n%3 != 1 {
				mine = append(mine, id)
			}
		}
		for _, row := range []struct {
			ask  asking
			want []string
		}{{own, mine}, {everybody, theirs}} {
			for _, limit := range []int64{7, 1000} {
				got, _, _ := walk(row.ask, api.Read{Order: api.OldestFirst, Limit: limit})
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("oldest first by %d: %s", limit, diff)
				}
				got, _, _ = walk(row.ask, api.Read{Order: api.NewestFirst, Limit: limit})
				for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 {
					got[i], got[j] = got[j], got[i]
				}
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("newest first by %d: %s", limit, diff)
				}
			}
		}
		// The first page says where it has come to although it has found nothing.
		first, _, err := everybody(api.Read{Code: "rare", Limit: 1})
		if err != nil || len(first.Receipts) != 0 || !first.More || first.Next == "" {
			t.Errorf("%+v %v", first, err)
		}
		if got, pages, _ := walk(everybody, api.Read{Code: "rare", Limit: 1}); len(got) != 1 || got[0] != "i-0003" || pages < 2 {
			t.Errorf("%v in %d pages", got, pages)
		}
		// What comes later, from where the newest was, and from where the oldest-first walk ended.
		_, _, end := walk(own, api.Read{Order: api.OldestFirst})
		put(all, mallory, "late")
		put(all+1, alice, "late")
		for _, after := range []string{first.Head, end.Next} {
			if got, _, _ := walk(own, api.Read{Order: api.OldestFirst, After: after}); len(got) != 1 || got[0] != fmt.Sprintf("i-%04d", all+1) {
				t.Errorf("after %s: %v", after, got)
			}
		}
		for _, after := range []string{"x", "-1"} {
			if _, _, err := own(api.Read{After: after}); code(err) != api.CodeInvalidCursor {
				t.Errorf("%v", err)
			}
		}
	})
}

package supervisor

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Intent returns one intent of the caller's, in flight or settled.
func (s *Supervisor) Intent(ctx context.Context, req *api.Request) (*api.Intent, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	in, ok := s.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, api.Errorf(api.CodeNotFound, "there is no intent %.80s", req.Read.IntentID)
	}
	return &in, nil, nil
}

func (s *Supervisor) intent(p api.Principal, id string) (in api.Intent, ok bool) {
	s.chronicle.read(func(state *ledger.State) { in, ok = state.Intent(id) })
	return s.aged(in), ok && owns(in.Principal, p)
}

// aged says how long an intent has been in flight.
func (s *Supervisor) aged(in api.Intent) api.Intent {
	if in.SettledAtNS == 0 {
		in.AgeNS = s.now().UnixNano() - in.AdmittedAtNS
	}
	return in
}

// Intents lists the caller's intents, newest first.
func (s *Supervisor) Intents(ctx context.Context, req *api.Request) (*api.IntentList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.IntentList{Intents: []api.Intent{}}
	s.chronicle.read(func(state *ledger.State) {
		for _, in := range state.Intents(ledger.OwnerOf(req.Principal), req.Read, limit(req.Read.Limit)) {
			list.Intents = append(list.Intents, s.aged(in))
		}
	})
	return list, nil, nil
}

// Receipt returns the receipt of one of the caller's intents.
func (s *Supervisor) Receipt(ctx context.Context, req *api.Request) (*api.Receipt, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	e, ok := s.chronicle.receipts.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, s.absent(api.Errorf(api.CodeNotFound, "there is no receipt of %.80s", req.Read.IntentID))
	}
	r, err := s.receiptAt(e.seq)
	return r, nil, err
}

// Receipts is a page of the caller's receipts that fit the filter ([api.Read.Fits]), newest first unless it says otherwise.
func (s *Supervisor) Receipts(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error) {
	return s.receipts(ctx, req, &owner{req.Principal.UID, req.Principal.Scope})
}

// Audit is Receipts of every principal's.
func (s *Supervisor) Audit(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error) {
	return s.receipts(ctx, req, nil)
}

// receipts looks at so many receipts at most. What it is about says which of them are read at all: the rest of the filter is
// about what is in them.
func (s *Supervisor) receipts(ctx context.Context, req *api.Request, who *owner) (*api.ReceiptList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	f := req.Read
	after, fault := parseSeq(f.After)
	if fault != nil {
		return nil, nil, fault
	}
	list := &api.ReceiptList{Receipts: []api.Receipt{}}
	most, candidates := limit(f.Limit), limit(f.Limit)
	if f.Inside() {
		candidates = max(most, lookedFor)
	}
	look := s.chronicle.receipts.list(who, f, after, candidates)
	list.Head = strconv.FormatInt(look.head, 10)
	room, effort := pageBytes, pageBytes
	for i, seq := range look.seqs {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		r, size, err := s.sizedReceipt(seq)
		if isGone(err) { // trimmed since
			if f.Order == api.OldestFirst {
				continue
			}
			look.more = false // and so are those that follow
			break
		}
		if err != nil {
			return nil, nil, err
		}
		effort -= size
		if f.Fits(r) {
			if room -= size; room < 0 && len(list.Receipts) > 0 {
				if f.After == "" && f.Order == "" { // who does not know of pages would take it for all
					return nil, nil, api.Errorf(api.CodeTooLarge, "these receipts have more than %d bytes, with the output in them: ask for %d with limit, or for an order, and page", pageBytes, len(list.Receipts))
				}
				look.last, look.more = look.seqs[i-1], true
				break
			}
			list.Receipts = append(list.Receipts, *r)
		}
		if i+1 < len(look.seqs) && (len(list.Receipts) == most || effort < 0) {
			look.last, look.more = seq, true
			break
		}
	}
	list.Next, list.More = strconv.FormatInt(look.last, 10), look.more
	return list, nil, nil
}

// pageBytes is how large a page of receipts may be: one alone can have megabytes of output in it.
const pageBytes = 32 << 20

// receiptAt reads a receipt where it is durable.
func (s *Supervisor) receiptAt(seq int64) (*api.Receipt, error) {
	r, _, err := s.sizedReceipt(seq)
	return r, err
}

// sizedReceipt is receiptAt, with the size of the record.
func (s *Supervisor) sizedReceipt(seq int64) (*api.Receipt, int, error) {
	b, err := s.journal.Get(seq)
	if err == nil {
		var record ledger.Settled
		if err = json.Unmarshal(b, &record); err == nil && record.Receipt != nil {
			return record.Receipt, len(b), nil
		}
	}
	if errors.Is(err, journal.ErrTrimmed) {
		return nil, 0, api.Errorf(api.CodeGone, "the receipt is not kept any more")
	}
	s.log.Error("receipt cannot be read", "seq", seq, "error", err)
	return nil, 0, api.Errorf(api.CodeJournalFailed, "the receipt cannot be read")
}

// absent is the answer to an id that neither the view nor the journal has. Of a journal that was trimmed nobody
// can say whether it had it; that is the same for everybody's ids.
func (s *Supervisor) absent(err *api.Error) *api.Error {
	first := s.journal.First()
	if first == 0 {
		return err
	}
	return api.Errorf(api.CodeGone, "%s, unless it was before record %d: those are not kept any more", err.Message, first)
}

func isGone(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.CodeGone
}

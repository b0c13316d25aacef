package supervisor

import (
	"context"
	"errors"

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

// Receipts lists the caller's receipts, newest first; SessionID, ExecID, IntentID, Op,
// Outcome and Limit of the request's Read filter.
func (s *Supervisor) Receipts(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.ReceiptList{Receipts: []api.Receipt{}}
	room := pageBytes
	for _, seq := range s.chronicle.receipts.list(req.Principal, req.Read, limit(req.Read.Limit)) {
		r, size, err := s.sizedReceipt(seq)
		if isGone(err) {
			break // trimmed since, and so are those that follow
		}
		if err != nil {
			return nil, nil, err
		}
		if room -= size; room < 0 && len(list.Receipts) > 0 {
			return nil, nil, api.Errorf(api.CodeTooLarge, "these receipts have more than %d bytes, with the output in them: ask for %d with limit", pageBytes, len(list.Receipts))
		}
		list.Receipts = append(list.Receipts, *r)
	}
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

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/internal/instant"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

const filterHelp = `

A time is RFC 3339, or so long ago, such as 90m or 48h. A path is one that the receipt names: of a
mount, of what a file tool read or changed, of an output, or of what was refused; and what lies below
it fits too. --rule takes a part of the name of a rule that decided, or of the code of a denial.`

// receiptQuery is which receipts are wanted, and how they are written.
type receiptQuery struct {
	filter       api.Read
	since, until string
	op, outcome  string
	code         string
	user         int64
	limit        int64
	follow       bool
	output       string
	state        string
	newest       bool // first
}

func (q *receiptQuery) register(c *cli, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.filter.SessionID, "session", "", "only of this session")
	f.StringVar(&q.filter.ExecID, "exec", "", "only of this execution")
	f.StringVar(&q.since, "since", "", "only what was settled then or later")
	f.StringVar(&q.until, "until", "", "only what was settled before")
	f.Int64Var(&q.user, "user", -1, "only of this uid")
	f.StringVar(&q.op, "op", "", "only of this operation, such as host.exec")
	f.StringVar(&q.outcome, "outcome", "", "only with this outcome: ok, denied or faulted")
	f.StringVar(&q.code, "code", "", "only with this code among its reasons, such as oom_killed")
	f.StringVar(&q.filter.Rule, "rule", "", "only where a rule decided in whose name this is")
	f.StringVar(&q.filter.Path, "path", "", "only what names this path, or one below it")
	f.BoolVarP(&q.follow, "follow", "f", false, "go on with what comes")
	f.StringVarP(&q.output, "output", "o", "", "jsonl or csv: write them in this form, all of a receipt or a line of it")
	completeFlag(cmd, "outcome", cobra.FixedCompletions([]string{"ok", "denied", "faulted"}, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{"jsonl", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(cmd, "session", c.sessions)
}

// complete makes the filter of what the flags say.
func (q *receiptQuery) complete(c *cli) error {
	for _, t := range []struct {
		name, text string
		into       *int64
	}{{"since", q.since, &q.filter.SinceNS}, {"until", q.until, &q.filter.UntilNS}} {
		at, err := instant.Parse(t.text, c.now())
		if err != nil {
			return usage("--%s %v", t.name, err)
		}
		if !at.IsZero() {
			*t.into = at.UnixNano()
		}
	}
	if q.user < -1 || q.limit < 0 {
		return usage("--user and --limit are not negative")
	}
	if q.user >= 0 {
		q.filter.UID = &q.user
	}
	q.filter.Op, q.filter.Outcome, q.filter.Code = api.Op(q.op).Canonical(), api.Outcome(q.outcome), api.Code(q.code)
	switch {
	case !slices.Contains([]string{"", "jsonl", "csv"}, q.output):
		return usage("--output %q: want jsonl or csv", q.output)
	case c.json && q.output != "":
		return usage("--json and --output are two forms")
	case q.follow && q.state != "":
		return usage("--follow goes with a supervisor, and --state with none")
	}
	// What a supervisor would refuse is refused here too, where there is none.
	if err := (&api.Request{Op: api.OpReceiptList, Read: &q.filter}).Validate(); err != nil {
		return usage("%s", err.Message)
	}
	return nil
}

// receiptWriter writes receipts in the form that was asked for.
type receiptWriter struct {
	put   func(*api.Receipt) error
	flush func() error
}

var receiptColumns = []string{"receipt", "settled", "uid", "scope", "operation", "outcome", "session", "execution", "codes", "result", "policy"}

func (c *cli) receiptWriter(q *receiptQuery) *receiptWriter {
	w := &receiptWriter{flush: func() error { return nil }}
	switch {
	case q.output == "csv":
		table := csv.NewWriter(c.stdout)
		table.Write(receiptColumns)
		w.put = func(r *api.Receipt) error { return table.Write(cells(r)) }
		w.flush = func() error { table.Flush(); return table.Error() }
	case q.output == "jsonl" || c.json && q.follow:
		w.put = func(r *api.Receipt) error { return c.line(r) }
	case c.json:
		list := api.ReceiptList{Receipts: []api.Receipt{}}
		w.put = func(r *api.Receipt) error { list.Receipts = append(list.Receipts, *r); return nil }
		w.flush = func() error { return document(c.stdout, list) }
	case q.newest && !q.follow:
		rows := [][]string{{"RECEIPT", "SETTLED", "OPERATION", "OUTCOME", "SESSION", "RESULT"}}
		w.put = func(r *api.Receipt) error {
			rows = append(rows, []string{r.IntentID, when(r.SettledAtNS), string(r.Op), string(r.Outcome), r.SessionID, summary(r)})
			return nil
		}
		w.flush = func() error { return table(c.stdout, rows) }
	default:
		w.put = func(r *api.Receipt) error {
			_, err := fmt.Fprintln(c.stdout, printable(fmt.Sprintf("%s  %s  uid %-6d %-22s %-7s  %s", stamp(r.SettledAtNS), r.IntentID,
				r.Principal.UID, r.Op, r.Outcome, join([]string{r.SessionID, summary(r)}))))
			return err
		}
	}
	return w
}

// cells are a receipt as a row of a table. A program that calculates takes what begins with one of these signs for a formula.
func cells(r *api.Receipt) []string {
	scope := scopeFlag(r.Principal.Scope)
	var codes []string
	for _, code := range r.Codes() {
		codes = append(codes, string(code))
	}
	row := []string{r.IntentID, r.SettledAt, strconv.FormatUint(uint64(r.Principal.UID), 10), scope.String(), string(r.Op), string(r.Outcome),
		r.SessionID, r.ExecID, strings.Join(codes, " "), summary(r), r.Policy.Digest}
	for i, cell := range row {
		if row[i] = printable(cell); strings.ContainsAny(cell[:min(1, len(cell))], "=+-@") {
			row[i] = "'" + row[i]
		}
	}
	return row
}

// lookEach is how long to wait before looking again whether there is a new receipt.
const lookEach = 300 * time.Millisecond

// pages asks a supervisor, page after page.
func (c *cli) pages(ctx context.Context, q *receiptQuery, ask func(context.Context, api.Read) (*api.ReceiptList, error)) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := c.receiptWriter(q)
	f := q.filter
	f.Order = api.NewestFirst
	if !q.newest && q.limit == 0 {
		f.Order = api.OldestFirst
	}
	head, left := "", q.limit
	var last []api.Receipt // what is newest first and is to be written the other way round
	for more := true; more; {
		if f.Limit = most; q.limit > 0 {
			f.Limit = min(most, left)
		}
		page, err := ask(ctx, f)
		if err != nil {
			return err
		}
		if head == "" {
			head = page.Head
		}
		for i := range page.Receipts {
			if f.Order == api.NewestFirst && (!q.newest || q.follow) {
				last = append(last, page.Receipts[i])
			} else if err := w.put(&page.Receipts[i]); err != nil {
				return err
			}
		}
		left -= int64(len(page.Receipts))
		more = page.More && (q.limit == 0 || left > 0)
		if f.After = page.Next; f.Order == api.OldestFirst {
			head = page.Next
		}
	}
	for _, r := range slices.Backward(last) {
		if err := w.put(&r); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil || !q.follow {
		return err
	}
	return c.followReceipts(ctx, q, w, head, ask)
}

// followReceipts goes on behind a cursor until it is interrupted. A supervisor that is being replaced is waited for.
func (c *cli) followReceipts(ctx context.Context, q *receiptQuery, w *receiptWriter, head string, ask func(context.Context, api.Read) (*api.ReceiptList, error)) error {
	f := q.filter
	f.Order, f.After, f.Limit = api.OldestFirst, head, most
	var since time.Time // of when it was lost
	for {
		page, err := ask(ctx, f)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			since = time.Time{}
		case !client.Lost(err):
			return err
		case since.IsZero():
			since = time.Now()
			c.say("the connection to the supervisor was lost (%v); we go on when it is back", err)
		case time.Since(since) > 30*time.Second:
			return err
		}
		if err == nil {
			for i := range page.Receipts {
				if err := w.put(&page.Receipts[i]); err != nil {
					return err
				}
			}
			if err := w.flush(); err != nil {
				return err
			}
			if f.After = page.Next; page.More {
				continue
			}
		}
		if err := sleep(ctx, lookEach); err != nil {
			return nil
		}
	}
}

// recordedReceipts writes those of a state directory.
func (c *cli) recordedReceipts(q *receiptQuery) error {
	list, err := recorded(q.state, q)
	if err != nil {
		return err
	}
	w := c.receiptWriter(q)
	for i := range list {
		if err := w.put(&list[i]); err != nil {
			return err
		}
	}
	return w.flush()
}

func (c *cli) auditCommand() *cobra.Command {
	var q receiptQuery
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "audit [--state DIR]",
		Short: "Query everybody's receipts, oldest first; offline with the proof",
		Long: `audit writes every receipt that fits every filter, of all principals, oldest first. Of a supervisor
that is the administrators' to ask.

With --state DIR it needs no supervisor: a copy of the state directory's journal and the public key
will do. The whole journal is verified, as "stockade receipts verify" does it, before the first
receipt is written; one that does not verify gives exit status 1 and no receipt. What no checkpoint
signs yet is written too, and its number told on stderr; --strict makes it a failure.

--scope says here whose receipts, as far as it is said.` + filterHelp,
		Example: `  stockade audit --since 24h --outcome denied
  stockade audit --follow --output jsonl --user 1000
  stockade audit --state copy --key stockade.pub --path /srv/payroll --output csv
  stockade audit --op host.exec --code oom_killed --limit 20`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.filter.AgentID, q.filter.WorldID, q.filter.ChatID = c.scope.AgentID, c.scope.WorldID, c.scope.ChatID
			q.state = o.state
			if err := q.complete(c); err != nil {
				return err
			}
			if o.state == "" && (o.key != "" || o.strict || len(o.checkpoints) > 0) {
				return usage("--key, --checkpoint and --strict go with --state")
			}
			if o.state != "" {
				return c.auditState(&q, &o)
			}
			return c.pages(cmd.Context(), &q, c.client().WithScope(api.Scope{}).Audit)
		},
	}
	q.register(c, cmd)
	cmd.Flags().Int64Var(&q.limit, "limit", 0, "the last so many; 0 is all")
	cmd.Flags().StringVar(&o.state, "state", "", "read the journal in this state directory, or a copy, and verify it")
	o.register(cmd)
	return cmd
}

// auditState verifies a journal, and writes its receipts.
func (c *cli) auditState(q *receiptQuery, o *verifyOptions) error {
	w := c.receiptWriter(q)
	last := lastReceipts{limit: int(q.limit)}
	take := last.add
	if q.limit == 0 {
		take = w.put // as they come
	}
	report, err := c.verified(o, receiptsIn(q, take))
	if err != nil {
		return errors.Join(err, w.flush())
	}
	for _, r := range last.all() {
		if err := w.put(&r); err != nil {
			return err
		}
	}
	if report.Bad == nil {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return c.judge(report, o.strict)
}

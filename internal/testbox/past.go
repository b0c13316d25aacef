package testbox

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Past gives the journal of a daemon n more executions, each with what the daemon recorded of one that it carries
// out for this. It ends the daemon as a kill does; the next start finds them all, and no snapshot of them.
func (d *Daemon) Past(ctx context.Context, n int) error {
	exec, err := d.example(ctx)
	if err != nil {
		return err
	}
	d.Client().CloseIdle()
	d.Kill()
	j, err := journal.Open(filepath.Join(d.State, "journal"), journal.Options{})
	if err != nil {
		return err
	}
	defer j.Close()
	var told [][]byte
	var first int64
	err = j.Read(0, func(seq int64, rec []byte) error {
		if bytes.Contains(rec, []byte(exec.IntentID)) && !bytes.Contains(rec, []byte(`"type":"start"`)) {
			if told == nil {
				first = seq
			}
			told = append(told, bytes.Clone(rec))
		}
		return nil
	})
	if err != nil || len(told) == 0 {
		return fmt.Errorf("records of %s: %d, %v", exec.IntentID, len(told), err)
	}
	ids := [][]byte{[]byte(exec.IntentID), []byte(exec.ExecID), fmt.Appendf(nil, `"emitted_at_seq":%d`, first)}
	var batch [][]byte
	for i := range n {
		others := [][]byte{[]byte(ledger.Digest(fmt.Append(nil, i))), fmt.Appendf(nil, "x-%026d", i), fmt.Appendf(nil, `"emitted_at_seq":%d`, j.Next()+int64(len(batch)))}
		for _, rec := range told {
			for k, id := range ids {
				rec = bytes.ReplaceAll(rec, id, others[k])
			}
			batch = append(batch, rec)
		}
		if len(batch) >= 1000 || i == n-1 {
			if _, err := j.Append(ctx, batch...); err != nil {
				return err
			}
			batch = nil
		}
	}
	return nil
}

// example is the receipt of a command in a session that is over.
func (d *Daemon) example(ctx context.Context) (*api.Receipt, error) {
	c := d.Client()
	open, err := c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
	if err != nil {
		return nil, err
	}
	exec, err := c.Exec(ctx, api.Exec{SessionID: open.SessionID, Argv: []string{"echo", "hello"}})
	if err != nil {
		return nil, err
	}
	_, err = c.Close(ctx, api.SessionClose{SessionID: open.SessionID, Mode: "force"})
	return exec, err
}

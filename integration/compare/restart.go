package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// past is how many receipts a restart has behind it.
const past = 100_000

// restart measures a kill of the daemon and its next start, until it serves: without a past, and behind a long one, of
// which it has a snapshot or reads every record.
func (b *bench) restart(bin string) error {
	dir := filepath.Join(b.dir, "restart")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	d, err := testbox.Start(bin, dir, testbox.Options{})
	if err != nil {
		return err
	}
	defer d.Kill()
	again := func(name string, n int) error {
		var took []time.Duration
		for range n {
			d.Client().CloseIdle()
			d.Kill()
			begin := time.Now()
			if err := d.Start(); err != nil {
				return err
			}
			took = append(took, time.Since(begin))
		}
		b.figures = append(b.figures, summarize(name, "", took))
		return nil
	}
	if err := again("restart", 10); err != nil {
		return err
	}
	if err := d.Past(b.ctx, past); err != nil {
		return err
	}
	if err := again("restart behind 100,000 receipts, from the first record", 1); err != nil {
		return err
	}
	if err := d.Stop(); err != nil { // which takes a snapshot
		return err
	}
	if err := again("restart behind 100,000 receipts, from a snapshot", 5); err != nil {
		return err
	}
	return d.Stop()
}

package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// A record that its caller withdraws, as a snapshot's when we stop, is not written and not the journal's fault; what the
// journal does not take is, and is called an error.
func TestRecordWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		defer b.stop()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, row := range []struct {
			why    error
			failed bool
		}{{context.Canceled, false}, {context.DeadlineExceeded, true}, {unix.EIO, true}} {
			log.Reset()
			refusing := func(context.Context, ...[]byte) (int64, error) { return 0, fmt.Errorf("append: %w", row.why) }
			_, err := b.record(ctx, refusing, &ledger.Retired{Header: ledger.At(time.Now())})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeJournalFailed {
				t.Errorf("%v: %v", row.why, err)
			}
			if failed := strings.Contains(log.String(), "level=ERROR msg=journal"); failed != row.failed {
				t.Errorf("%v: the log says %q", row.why, log.String())
			}
		}
	})
}

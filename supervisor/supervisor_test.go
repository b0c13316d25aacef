package supervisor

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestOpenExecClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		r := b.exec(id, "echo", "hello")
		if r.Outcome != api.OutcomeOK || r.Payload.Exec.Stdout.InlineText.Text != "hello" {
			t.Fatalf("%+v", r)
		}
		t.Log(r.Timings)
		if r := b.close(id); r.Payload.Close.FinalState != "closed" {
			t.Fatalf("%+v", r.Payload.Close)
		}
		b.stop()
	})
}

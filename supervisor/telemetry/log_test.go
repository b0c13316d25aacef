package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// R257: a line has the ids, and no secret that is in use: not as it is, not quoted, not cut off in its middle.
func TestLogHoldsNoSecret(t *testing.T) {
	const secret = "corr\"ect horse\nbattery staple"
	for _, form := range []string{"text", "json"} {
		var out bytes.Buffer
		var r Redactor
		log, err := NewLog(&out, slog.LevelDebug, form, &r)
		if err != nil {
			t.Fatal(err)
		}
		release := r.Hold(secret, "abc")
		log.Info("spawn "+secret, "session_id", "s-1", "error", fmt.Errorf("argv %.20q: %w", secret, errors.New("said "+secret)), "n", 7)
		log.With("said", secret).WithGroup("g").Warn("x", slog.Group("h", "cause", any([]string{secret})))
		log.Info("half", "said", secret[:12], "short", "abc")
		got := out.String()
		for _, leaked := range []string{"horse", "battery", "staple", "ect"} {
			if strings.Contains(got, leaked) {
				t.Errorf("%s: %q is in the log:\n%s", form, leaked, got)
			}
		}
		for _, kept := range []string{"s-1", "7", Redacted, "abc"} {
			if !strings.Contains(got, kept) {
				t.Errorf("%s: %q is not in the log:\n%s", form, kept, got)
			}
		}
		release()
		release()
		out.Reset()
		log.Info("later", "said", "battery staple corr")
		if !strings.Contains(out.String(), "battery staple") {
			t.Errorf("%s: what is no secret any more is taken out: %s", form, &out)
		}
	}
}

// What a session wrote neither acts on an operator's terminal nor fills his disk.
func TestLogIsShortAndPlain(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := NewLog(&out, slog.LevelInfo, form, nil)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("said", "said", "\x1b]0;owned\a\xff"+strings.Repeat("a", 1<<20), "panic", any("\x1b[31m"), "c1", "\u009b31m\u007f\u202e")
		if got := out.Bytes(); len(got) > 3*lineText || bytes.ContainsAny(got, "\x1b\a\u009b\u007f\u202e") {
			t.Errorf("%s: a line of %d bytes: %.80q", form, len(got), got)
		}
	}
	if _, err := NewLog(nil, nil, "xml", nil); err == nil {
		t.Error("any form is taken")
	}
}

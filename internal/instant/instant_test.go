package instant

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"":                          {},
		"0s":                        now,
		"90m":                       now.Add(-90 * time.Minute),
		"2025-12-31T23:59:59Z":      time.Date(2025, 12, 31, 23, 59, 59, 0, time.UTC),
		"2026-01-02T03:00:00+02:00": time.Date(2026, 1, 2, 1, 0, 0, 0, time.UTC),
	} {
		if got, err := Parse(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"-1h", "2h ago", "yesterday", "2026-01-02", "1969-12-31T00:00:00Z", "12", " "} {
		if got, err := Parse(in, now); err == nil {
			t.Errorf("%q is read as %v", in, got)
		}
	}
}

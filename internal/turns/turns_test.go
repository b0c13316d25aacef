package turns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// At most so many of one line have a turn, nobody waits for those of another, and of nobody anything is left.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines Lines[string]
		join := func(k string, patience time.Duration) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return lines.Join(ctx, k, 2)
		}
		var leave []func()
		for _, k := range []string{"a", "a", "b"} {
			done, err := join(k, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, done)
		}
		if _, err := join("a", time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		time.AfterFunc(time.Second, leave[0])
		last, err := join("a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if n := lines.In(); n != 3 {
			t.Errorf("%d are in", n)
		}
		for _, done := range append(leave[1:], last) {
			done()
		}
		if lines.In() != 0 || len(lines.of) != 0 {
			t.Errorf("left: %v", lines.of)
		}
	})
}

// Package instant reads times as people give them on a command line: an instant, or how long ago it was.
//
// It promises no more than RFC 3339 and Go's durations: what could be read in two ways is refused.
package instant

import (
	"fmt"
	"time"
)

// Parse reads one; now is what a duration is before. "" is the zero time.
func Parse(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UnixNano() <= 0 { // nothing is that old, and zero is no time
		return time.Time{}, fmt.Errorf("%q: want a time such as 2006-01-02T15:04:05Z, or so long ago, such as 2h", text)
	}
	return at, nil
}

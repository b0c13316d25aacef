package notify

import (
	"context"
	"time"
)

// bucket holds what may be answered at once: up to burst, filled at rate.
type bucket struct {
	tokens float64
	at     time.Time // when tokens was true
}

// take waits until there is a token, and takes it.
func (b *bucket) take(ctx context.Context) error {
	for {
		now := time.Now()
		b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*rate)
		b.at = now
		if b.tokens >= 1 {
			b.tokens--
			return ctx.Err()
		}
		more := time.NewTimer(time.Duration((1 - b.tokens) / rate * float64(time.Second)))
		select {
		case <-more.C:
		case <-ctx.Done():
			more.Stop()
			return ctx.Err()
		}
	}
}

// Package turns has those wait for each other who may hang, so that at most so many do: each in a line of his own, in which nobody waits
// for another's.
package turns

import (
	"context"
	"sync"
)

// Lines are in use by their keys: the users, or what a user does. The zero Lines are empty. Its methods may be called from many
// goroutines.
type Lines[K comparable] struct {
	mu sync.Mutex
	of map[K]*line // while somebody is in them
}

// line is those who have a turn, and those who wait for one.
type line struct {
	turns chan struct{}
	in    int
}

// Join waits until it is one of at most so many who have a turn, which leave gives back. Whoever hangs keeps his.
func (l *Lines[K]) Join(ctx context.Context, k K, most int) (leave func(), err error) {
	own := l.enter(k, most)
	select {
	case own.turns <- struct{}{}:
		return func() { <-own.turns; l.leave(k, own) }, nil
	case <-ctx.Done():
		l.leave(k, own)
		return nil, ctx.Err()
	}
}

func (l *Lines[K]) enter(k K, most int) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[k]
	if own == nil {
		own = &line{turns: make(chan struct{}, most)}
		if l.of == nil {
			l.of = map[K]*line{}
		}
		l.of[k] = own
	}
	own.in++
	return own
}

func (l *Lines[K]) leave(k K, own *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.in--; own.in == 0 {
		delete(l.of, k)
	}
}

// In is how many there are, in all lines.
func (l *Lines[K]) In() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.of {
		n += one.in
	}
	return n
}

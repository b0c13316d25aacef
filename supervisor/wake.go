package supervisor

import (
	"sync"
)

// wake tells any number of readers that something changed. Without readers it costs
// one uncontended lock.
type wake struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next change. Take it before looking.
func (w *wake) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

func (w *wake) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

package guest

import (
	"errors"
	"os"
	"testing"
)

// An answer that comes to nobody, before or after whoever asked has given up, leaves no descriptor (T077).
func TestAbandonedAnswer(t *testing.T) {
	for name, order := range map[string]func(w *call, a answer){
		"before": func(w *call, a answer) { w.settle(a); w.abandon() },
		"after":  func(w *call, a answer) { w.abandon(); w.settle(a) },
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			order(newCall(), answer{ready: Ready{Listener: listener}})
			if err := listener.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the listener was open: %v", err)
			}
		})
	}
}

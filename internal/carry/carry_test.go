package carry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// pair are the two ends of a WebSocket.
func pair(t *testing.T) (a, b *websocket.Conn) {
	t.Helper()
	accepted := make(chan *websocket.Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}))
	t.Cleanup(srv.Close)
	a, _, err := websocket.Dial(t.Context(), srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	b = <-accepted
	t.Cleanup(func() { a.CloseNow(); b.CloseNow() })
	for _, c := range []*websocket.Conn{a, b} {
		c.SetReadLimit(Longest)
	}
	return a, b
}

// half is a connection that remembers.
type half struct {
	bytes.Buffer
	closed bool
}

func (h *half) CloseWrite() error {
	h.closed = true
	return nil
}

// What is sent is taken whole, with its end; what is cut off has none.
func TestCarry(t *testing.T) {
	var content [300_001]byte
	rand.NewChaCha8([32]byte{1}).Read(content[:])
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		from  io.Reader
		want  []byte
		whole bool
	}{
		{"nothing", bytes.NewReader(nil), nil, true},
		{"much", bytes.NewReader(content[:]), content[:], true},
		{"cut off", io.MultiReader(bytes.NewReader(content[:10]), failing{broken}), content[:10], false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			sent := make(chan error, 1)
			go func() {
				err := Send(ctx, a, c.from)
				if err != nil {
					a.CloseNow()
				}
				sent <- err
			}()
			var to half
			err := Take(ctx, b, &to)
			if failed := <-sent; (failed == nil) != c.whole || !c.whole && !errors.Is(failed, broken) {
				t.Errorf("sent: %v", failed)
			}
			if (err == nil) != c.whole || to.closed != c.whole || !bytes.Equal(to.Bytes(), c.want) {
				t.Errorf("taken: %v, %d bytes, closed %v", err, to.Len(), to.closed)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A message that is not bytes is no part of a connection.
func TestTakeText(t *testing.T) {
	a, b := pair(t)
	go a.Write(t.Context(), websocket.MessageText, []byte("hello"))
	go a.Read(t.Context()) // answers the close
	var to half
	if err := Take(t.Context(), b, &to); err != errKind || to.Len() > 0 || to.closed {
		t.Errorf("%v, %q, closed %v", err, to.String(), to.closed)
	}
}

package server

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// T155: while connections beyond a user's are turned away as fast as they come, one that may stay is accepted, what is turned
// away is told why, and the end of the listener is the end of the flood.
func TestFloodOfConnections(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := admit(ln, Options{Conns: 8, ConnsPerUser: 4})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	accepted := make(chan net.Conn, 8)
	all.Go(func() {
		defer close(accepted)
		for {
			conn, err := a.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			accepted <- conn
		}
	})
	dial := func() net.Conn {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			return nil // the end of the listener, or its queue is full
		}
		return conn
	}
	var held [4]net.Conn
	for i := range held {
		defer dial().Close()
		held[i] = <-accepted
	}
	over := make(chan struct{})
	refused := make(chan string, 1)
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				conn := dial()
				if conn == nil {
					continue
				}
				if len(refused) == 0 {
					told, _ := io.ReadAll(conn)
					select {
					case refused <- string(told):
					default:
					}
				}
				conn.Close()
			}
		})
	}
	defer close(over)
	if told := <-refused; !strings.Contains(told, "too_many_connections") {
		t.Errorf("told %q", told)
	}
	time.Sleep(50 * time.Millisecond)
	for range 10 { // one goes, and one may come
		held[0].Close()
		select {
		case held[0] = <-accepted:
		case <-time.After(5 * time.Second):
			t.Fatal("nobody is accepted beside the flood")
		}
	}
	closed := make(chan struct{})
	go func() {
		a.Close()
		for conn := range accepted {
			conn.Close()
		}
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Error("Accept goes on in a closed listener")
	}
	for _, conn := range held {
		conn.Close()
	}
}

package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestTurnedAway: whoever is refused before he has asked, by a supervisor that hangs up, hears why, each time; one that hangs up
// without a word is a failure of the connection (T155).
func TestTurnedAway(t *testing.T) {
	body := `{"error":{"code":"too_many_connections","message":"later"}}`
	refusal := fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	for _, says := range []string{refusal, ""} {
		socket := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(conn, says)
				conn.Close()
			}
		}()
		for range 200 {
			_, err := New(socket).Version(t.Context())
			e, told := errors.AsType[*api.Error](err)
			if says != "" && (!told || e.Code != api.CodeTooManyConnections) || says == "" && (err == nil || told) {
				t.Fatalf("told %q: %v", says, err)
			}
		}
	}
}

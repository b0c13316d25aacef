package relay

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// One row per way to say to whom a request goes, and how it ends: what can be read in two ways is refused (T163's shapes).
func TestParseRequest(t *testing.T) {
	const end = "\r\n\r\n"
	for _, row := range []struct {
		what, in string
		host     string
		port     uint16
		length   int64
		err      error
	}{
		{"plain", "GET / HTTP/1.1\r\nHost: a.test" + end, "a.test", 0, 0, nil},
		{"upper case, port, dot", "GET / HTTP/1.1\r\nhOST:A.test.:8080" + end, "a.test", 8080, 0, nil},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a.test" + end, "a.test", 0, 0, nil},
		{"an address", "GET / HTTP/1.1\r\nHost: 10.0.0.1" + end, "", 0, 0, nil},
		{"an IPv6 address", "GET / HTTP/1.1\r\nHost: [::1]:80" + end, "", 80, 0, nil},
		{"absolute", "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test" + end, "a.test", 0, 0, nil},
		{"absolute with port", "GET HTTP://A.test:81/ HTTP/1.1\r\nHost: a.test:81" + end, "a.test", 81, 0, nil},
		{"options", "OPTIONS * HTTP/1.1\r\nHost: a.test" + end, "a.test", 0, 0, nil},
		{"connect", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443" + end, "a.test", 443, 0, nil},
		{"connect without host", "CONNECT a.test:443 HTTP/1.0" + end, "a.test", 443, 0, nil},
		{"a body", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5" + end, "a.test", 0, 5, nil},
		{"chunks", "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked" + end, "a.test", 0, -1, nil},

		{"no host", "GET / HTTP/1.1\r\nAccept: x" + end, "", 0, 0, errNoName},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test" + end, "", 0, 0, errMalformed},
		{"absolute, another host", "GET http://b.test/ HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMismatch},
		{"absolute, another port", "GET http://a.test:81/ HTTP/1.1\r\nHost: a.test:82" + end, "", 0, 0, errMismatch},
		{"absolute with a user", "GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"connect to another", "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMismatch},
		{"connect without port", "CONNECT a.test HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"connect with a body", "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1" + end, "", 0, 0, errMalformed},
		{"https in the clear", "GET https://a.test/ HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"a path without slash", "GET x HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"length and chunks", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked" + end, "", 0, 0, errMalformed},
		{"chunks and length", "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5" + end, "", 0, 0, errMalformed},
		{"two lengths", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5" + end, "", 0, 0, errMalformed},
		{"a list of lengths", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5" + end, "", 0, 0, errMalformed},
		{"a signed length", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5" + end, "", 0, 0, errMalformed},
		{"a length of 2^63", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9223372036854775808" + end, "", 0, 0, errMalformed},
		{"other encodings", "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked" + end, "", 0, 0, errMalformed},
		{"chunked in disguise", "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked" + end, "", 0, 0, errMalformed},
		{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked" + end, "", 0, 0, errMalformed},
		{"space before the colon", "POST / HTTP/1.1\r\nHost : a.test" + end, "", 0, 0, errMalformed},
		{"a folded line", "GET / HTTP/1.1\r\nHost: a.test\r\n b.test" + end, "", 0, 0, errMalformed},
		{"a first line that is folded", "GET / HTTP/1.1\r\n Host: a.test" + end, "", 0, 0, errMalformed},
		{"a line feed alone", "GET / HTTP/1.1\r\nHost: a.test\nX: y" + end, "", 0, 0, errMalformed},
		{"line feeds only", "GET / HTTP/1.1\nHost: a.test\n\n", "", 0, 0, errMalformed},
		{"a carriage return alone", "GET / HTTP/1.1\r\nX: a\rHost: a.test" + end, "", 0, 0, errMalformed},
		{"a NUL", "GET / HTTP/1.1\r\nHost: a.test\x00" + end, "", 0, 0, errMalformed},
		{"an empty line first", "\r\nGET / HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"three spaces", "GET  / HTTP/1.1\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", 0, 0, errMalformed},
		{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a.test" + end, "", 0, 0, errMalformed},
		{"HTTP/0.9", "GET /\r\n\r\n", "", 0, 0, errMalformed},
		{"a name without a value", "GET / HTTP/1.1\r\nHost" + end, "", 0, 0, errMalformed},
		{"a port that is none", "GET / HTTP/1.1\r\nHost: a.test:080" + end, "", 0, 0, errMalformed},
		{"two in one", "GET / HTTP/1.1\r\nHost: a.test, b.test" + end, "", 0, 0, errMalformed},
		{"SSH", "SSH-2.0-OpenSSH_9\r\n", "", 0, 0, errMalformed},
		{"half", "GET / HTTP/1.1\r\nHo", "", 0, 0, errShort},
		{"half a method", "GE", "", 0, 0, errShort},
		{"no method", "\x00\x01", "", 0, 0, errMalformed},
	} {
		req, n, err := parseRequest([]byte(row.in))
		if !errors.Is(err, row.err) || err == nil && (req.host != row.host || req.port != row.port || req.length != row.length || n != len(row.in)) {
			if row.what == "SSH" && errors.Is(err, errShort) {
				continue // it ends when no head follows
			}
			t.Errorf("%s: %+v %d %v", row.what, req, n, err)
		}
	}
}

// What goes on is the head as it came, with this relay's word on the connection.
func TestRequestHead(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nX: y\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\nConnection: close\r\n\r\n"},
		{"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"},
		{"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"},
		{"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: TLS/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"},
	} {
		req, _, err := parseRequest([]byte(row.in))
		if err != nil || string(req.head) != row.want {
			t.Errorf("%q: %q %v", row.in, req.head, err)
		}
	}
}

// A body in chunks ends where it says, and nowhere else.
func TestChunks(t *testing.T) {
	for _, row := range []struct {
		in   string
		rest string
		ok   bool
	}{
		{"5\r\nhello\r\n0\r\n\r\nGET", "GET", true},
		{"A\r\n0123456789\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n", "", true},
		{"0\r\n\r\n", "", true},
		{"5;a=b\r\nhello\r\n0\r\n\r\n", "", false},
		{"5\nhello\r\n0\r\n\r\n", "", false},
		{"5\r\nhelloxx0\r\n\r\n", "", false},
		{"5\r\nhello\n0\r\n\r\n", "", false},
		{"0x5\r\nhello\r\n0\r\n\r\n", "", false},
		{"-1\r\n\r\n", "", false},
		{" 5\r\nhello\r\n0\r\n\r\n", "", false},
		{"\r\n", "", false},
		{"fffffffffffffffff\r\n", "", false},
		{"0\r\nX : y\r\n\r\n", "", false},
		{"0\r\nX: y\n\r\n", "", false},
	} {
		in, out := bufio.NewReader(strings.NewReader(row.in)), new(bytes.Buffer)
		err := copyChunks(out, in)
		rest, _ := in.Peek(in.Buffered())
		if (err == nil) != row.ok || row.ok && (string(rest) != row.rest || out.String()+row.rest != row.in) {
			t.Errorf("%q: %q, %q left, %v", row.in, out, rest, err)
		}
	}
}

// What is accepted is read alike by the standard library's server, the host above all; and what goes on is accepted again.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\nGET",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
		"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\nHost: b.test\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, n, err := parseRequest(b)
		if err != nil {
			return
		}
		if n > len(b) || req.host != "" && req.host != hostname(req.host) {
			t.Fatalf("%+v %d", req, n)
		}
		again, m, err := parseRequest(req.head)
		if err != nil || m != len(req.head) || again.host != req.host || again.port != req.port || again.length != req.length {
			t.Fatalf("%q: %+v %v", req.head, again, err)
		}
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(req.head)))
		if err != nil {
			return // stricter than we are about the target, which goes to the host that was judged
		}
		if host, _, ok := splitHost(theirs.Host); req.host != "" && (!ok || host != req.host) {
			t.Fatalf("%q: host %q, and the library's is %q", req.head, req.host, theirs.Host)
		}
		if req.length != theirs.ContentLength {
			t.Fatalf("%q: length %d, and the library's is %d", req.head, req.length, theirs.ContentLength)
		}
	})
}

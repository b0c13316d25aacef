package network

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One request per connection: a second one, for whomever it is, reaches nobody, and the first has its whole answer.
func TestOneRequest(t *testing.T) {
	b := open(t, egress(name("alpha.test", 80), name("beta.test", 80)))
	for _, row := range []struct{ what, second string }{
		{"another host", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
		{"a granted host", "GET / HTTP/1.1\r\nHost: beta.test\r\n\r\n"},
		{"the same again", "GET / HTTP/1.1\r\nHost: alpha.test\r\n\r\n"},
		{"a great deal", strings.Repeat("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 10_000)},
	} {
		c, err := b.dial("tcp", alpha+":80")
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, "POST / HTTP/1.1\r\nHost: alpha.test\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"+row.second)
		all, err := io.ReadAll(c)
		if n := strings.Count(string(all), "HTTP/1.1 200"); err != nil || n != 1 || !strings.HasSuffix(string(all), "alpha.test 11.0.0.1:80 5") || !strings.Contains(string(all), "Connection: close") {
			t.Errorf("%s: %v\n%s", row.what, err, all)
		}
		c.Close()
	}
}

// What is read in two ways is refused before a byte of it leaves.
func TestSmuggling(t *testing.T) {
	b := open(t, egress(name("alpha.test", 80)))
	for _, row := range []struct{ what, send, rule string }{
		{"length and chunks", "POST / HTTP/1.1\r\nHost: alpha.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", RuleMalformed},
		{"a folded line", "GET / HTTP/1.1\r\nHost: alpha.test\r\nX: y\r\n Host: evil.test\r\n\r\n", RuleMalformed},
		{"line feeds", "GET / HTTP/1.1\nHost: alpha.test\n\n", RuleMalformed},
		{"absolute, another host", "GET http://evil.test/ HTTP/1.1\r\nHost: alpha.test\r\n\r\n", RuleMismatch},
		{"another port", "GET / HTTP/1.1\r\nHost: alpha.test:8080\r\n\r\n", RuleMismatch},
		{"no host", "GET / HTTP/1.1\r\n\r\n", RuleNoName},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RuleMalformed},
		{"a head without end", "GET / HTTP/1.1\r\nX: " + strings.Repeat("y", 32<<10), RuleMalformed},
		{"anything", "\x00\x01\x02\x03", RuleMalformed},
	} {
		c, err := b.dial("tcp", alpha+":80")
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, row.send)
		got, err := io.ReadAll(c)
		if !errors.Is(err, syscall.ECONNRESET) || len(got) > 0 {
			t.Errorf("%s: %q %v", row.what, got, err)
		}
		if told := b.told(); len(told) == 0 || told[len(told)-1].Rule != row.rule {
			t.Errorf("%s: %+v", row.what, told[max(0, len(told)-1):])
		}
		c.Close()
	}
}

// CONNECT is believed as far as the name goes, and what follows must have it again.
func TestConnect(t *testing.T) {
	b := open(t, egress(name("alpha.test", 443), name("proxy.test", 80), tcp("beta.test", 7)))
	connect := func(target string) (net.Conn, *bufio.Reader, error) {
		c, err := b.dial("tcp", "11.0.0.80:80")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
		if err == nil && res.StatusCode != 200 {
			err = errors.New(res.Status)
		}
		return c, in, err
	}
	c, _, err := connect("alpha.test:443")
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(c, &tls.Config{ServerName: "alpha.test", InsecureSkipVerify: true})
	if got := get(secure, "http://alpha.test/"); got != "ok alpha.test 11.0.0.1:443 0" {
		t.Error(got)
	}
	if c, _, err = connect("alpha.test:443"); err != nil {
		t.Fatal(err)
	}
	secure = tls.Client(c, &tls.Config{ServerName: "shared.test", InsecureSkipVerify: true})
	if err := secure.Handshake(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("another name inside: %v", err)
	}
	c, in, err := connect("beta.test:7")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := in.ReadString('\n'); err != nil || got != "11.0.0.2:7\n" {
		t.Errorf("raw: %q %v", got, err)
	}
	c.Close()
	if _, _, err := connect("evil.test:443"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a name that is not granted: %v", err)
	}
	if _, _, err := connect("alpha.test:22"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a port that is not granted: %v", err)
	}
}

// An upgrade ends HTTP when the other end says so, and not when the program does.
func TestUpgrade(t *testing.T) {
	outside()
	needRoot(t)
	got := make(chan string, 10)
	l, err := net.Listen("tcp", "11.0.0.1:8088")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				if req.URL.Path == "/no" {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
					c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
					rest, _ := io.ReadAll(in)
					got <- string(rest)
					return
				}
				io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\nready\n")
				io.Copy(c, in)
			}()
		}
	}()
	b := open(t, egress(name("alpha.test", 8088)))
	ask := func(path string) (net.Conn, *bufio.Reader) {
		c, err := b.dial("tcp", "11.0.0.1:8088")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: alpha.test:8088\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
		return c, bufio.NewReader(c)
	}
	_, in := ask("/no")
	if all, err := io.ReadAll(in); err != nil && !errors.Is(err, syscall.ECONNRESET) || !strings.HasSuffix(string(all), "no") {
		t.Errorf("not upgraded: %q %v", all, err)
	}
	if rest := <-got; rest != "" {
		t.Errorf("after a request that was not upgraded came %q", rest)
	}
	c, in := ask("/yes")
	var lines []string
	for len(lines) < 8 {
		s, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", lines, err)
		}
		lines = append(lines, strings.TrimSpace(s))
	}
	if !slices.Contains(lines, "ready") || !slices.Contains(lines, "GET / HTTP/1.1") {
		t.Errorf("upgraded: %q", lines)
	}
	c.Close()
}

// A direction that ends leaves the other one open.
func TestHalfClose(t *testing.T) {
	b := open(t, egress(cidr("11.0.0.0/24", 7)))
	c := b.connect("11.0.0.1:7")
	io.WriteString(c, "the last words")
	c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(c); err != nil || string(all) != "the last words" {
		t.Errorf("%q %v", all, err)
	}
}

// A body as large as it likes goes through, and both ends have the same of it.
func TestLargeBody(t *testing.T) {
	b := open(t, egress(name("alpha.test", 80)))
	for _, chunked := range []bool{false, true} {
		c, err := b.dial("tcp", alpha+":80")
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequest("POST", "http://alpha.test/", io.LimitReader(zeros{}, 8<<20))
		if !chunked {
			req.ContentLength = 8 << 20
		}
		go req.Write(c)
		res, err := http.ReadResponse(bufio.NewReader(c), req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || string(body) != fmt.Sprintf("alpha.test 11.0.0.1:80 %d", 8<<20) {
			t.Errorf("chunked %v: %q %v", chunked, body, err)
		}
		c.Close()
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

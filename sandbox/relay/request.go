package relay

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// request is the head of an HTTP/1 request as it is judged and sent on.
type request struct {
	connect bool
	host    string // a DNS name; "" for anything else
	port    uint16 // 0 when it is not said
	length  int64  // of the body; -1 is chunked
	upgrade bool   // the answer may end HTTP on this connection
	head    []byte // with this relay's word on the connection
}

var errMismatch = errors.New("two hosts")

// parseRequest reads the head with which b begins, of n bytes. It admits one spelling of everything, because what can be read in two ways can be
// smuggled: lines end with CR LF, no line is folded, no name is followed by space, a length is said once and in one way.
func parseRequest(b []byte) (req request, n int, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return request{}, 0, startOfRequest(b)
	}
	n = end + 4
	line, rest, _ := bytes.Cut(b[:end+2], []byte("\r\n"))
	method, target, version, ok := requestLine(string(line))
	if !ok {
		return request{}, 0, errMalformed
	}
	f := fields{length: -2, old: version == "HTTP/1.0"}
	head := bytes.NewBuffer(make([]byte, 0, n+32))
	head.Write(b[:len(line)+2])
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		keep, ok := f.take(line)
		if !ok {
			return request{}, 0, errMalformed
		}
		if keep {
			head.Write(line)
			head.WriteString("\r\n")
		}
	}
	req = request{connect: method == "CONNECT", length: max(f.length, 0)}
	if f.chunked {
		req.length = -1
	}
	if f.chunked && f.length >= 0 || req.connect && (f.chunked || f.length >= 0) {
		return request{}, 0, errMalformed
	}
	if req.upgrade = f.upgrade != "" && req.length == 0 && !req.connect; req.upgrade {
		head.WriteString("Upgrade: " + f.upgrade + "\r\nConnection: Upgrade\r\n\r\n")
	} else {
		head.WriteString("Connection: close\r\n\r\n")
	}
	req.head = head.Bytes()
	return req, n, req.destination(target, f)
}

// requestLine takes "GET / HTTP/1.1" apart.
func requestLine(s string) (method, target, version string, ok bool) {
	method, s, ok = strings.Cut(s, " ")
	target, version, ok2 := strings.Cut(s, " ")
	ok = ok && ok2 && isToken(method) && target != "" && (version == "HTTP/1.1" || version == "HTTP/1.0")
	for i := range len(target) {
		ok = ok && 0x20 < target[i] && target[i] < 0x7f
	}
	return method, target, version, ok
}

// fields is what the header says of connection and host.
type fields struct {
	old     bool // HTTP/1.0, which has no chunks
	host    string
	hosts   int
	length  int64 // -2 is not said
	chunked bool
	upgrade string
}

// take reads one line, and says whether it goes on to the other end.
func (f *fields) take(line []byte) (keep, ok bool) {
	name, value, found := strings.Cut(string(line), ":")
	if !found || !isToken(name) || !isValue(value) {
		return false, false
	}
	value = strings.Trim(value, " \t")
	switch strings.ToLower(name) {
	case "host":
		f.host = value
		f.hosts++
		return true, f.hosts == 1
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 62)
		if err != nil || f.length >= 0 {
			return false, false
		}
		f.length = int64(n)
		return true, true
	case "transfer-encoding":
		if f.old || f.chunked || !strings.EqualFold(value, "chunked") {
			return false, false
		}
		f.chunked = true
		return true, true
	case "upgrade":
		if f.upgrade != "" {
			return false, false
		}
		f.upgrade = value
		// These name hosts anew.
		for _, other := range []string{"h2c", "tls", "http"} {
			if strings.Contains(strings.ToLower(value), other) {
				f.upgrade = ""
			}
		}
		return false, true
	case "connection", "proxy-connection", "keep-alive", "http2-settings":
		return false, true // of one connection, which becomes two
	}
	return true, true
}

// destination finds the host, which all that name one agree on.
func (r *request) destination(target string, f fields) error {
	if f.hosts == 0 && !r.connect {
		return errNoName
	}
	host, port, ok := splitHost(f.host)
	if !ok && f.hosts > 0 {
		return errMalformed
	}
	r.host, r.port = host, port
	authority := ""
	switch lower := strings.ToLower(target); {
	case r.connect:
		authority = target
	case strings.HasPrefix(lower, "http://"):
		authority = target[len("http://"):]
		if end := strings.IndexAny(authority, "/?#"); end >= 0 {
			authority = authority[:end]
		}
	case target[0] == '/' || target == "*":
		return nil
	default:
		return errMalformed
	}
	name, number, ok := splitHost(authority)
	switch {
	case !ok || r.connect && number == 0:
		return errMalformed
	case r.connect && f.hosts == 0:
	case name != host || port != number && port != 0 && number != 0:
		return errMismatch
	}
	r.host = name
	if number != 0 {
		r.port = number
	}
	return nil
}

// splitHost reads "host[:port]". An address is a host without a name.
func splitHost(s string) (name string, port uint16, ok bool) {
	if s == "" || strings.ContainsAny(s, "@/\\,; \t") {
		return "", 0, false
	}
	if end := strings.LastIndexByte(s, ']'); s[0] == '[' && end > 0 {
		s = "[" + s[end:] // an address, whatever it is
	}
	host, number, found := strings.Cut(s, ":")
	if found {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || number[0] == '0' {
			return "", 0, false
		}
		port = uint16(n)
	}
	return hostname(host), port, true
}

// startOfRequest says what becomes of less than a head: what cannot become one is refused now.
func startOfRequest(b []byte) error {
	for i, c := range b {
		if c == '\n' && (i == 0 || b[i-1] != '\r') || c == '\r' && i+1 < len(b) && b[i+1] != '\n' || c < 0x20 && c != '\r' && c != '\n' && c != '\t' {
			return errMalformed
		}
	}
	// The longest method that anybody has registered has 17 letters.
	if method, _, found := bytes.Cut(b, []byte(" ")); len(method) > 32 || len(b) > 0 && !isToken(string(method)) && (found || len(method) > 0) {
		return errMalformed
	}
	return errShort
}

// isToken is that of RFC 9110 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isValue admits no control but the tab: CR, LF and NUL end lines for some.
func isValue(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

package relay

import (
	"encoding/binary"
	"errors"
)

// What the parsers of first bytes return beside a name.
var (
	errShort     = errors.New("more bytes are needed")
	errMalformed = errors.New("malformed")
	errNoName    = errors.New("no name")
)

// isTLS reports whether the first byte is that of a TLS handshake record.
func isTLS(first byte) bool { return first == recordHandshake }

const (
	recordHandshake = 22
	messageHello    = 1
	extensionName   = 0
	nameHost        = 0
	maxRecord       = 1 << 14
	recordHeader    = 5
	handshakeHeader = 4
	maxHelloRecords = 64 // of one hello; one byte in each is allowed by the RFC, and sent by nobody
	maxHelloHeaders = maxHelloRecords * recordHeader
)

// serverName returns the name in the ClientHello with which b begins (RFC 8446 4.1.2, RFC 6066 3), from as many records as it
// lies in. It reads strictly: two readers must not find two names.
func serverName(b []byte) (string, error) {
	hello, err := handshake(b)
	if err != nil {
		return "", err
	}
	r := reader{hello, true}
	r.skip(2 + 32) // legacy_version, random
	r.vector(1)    // legacy_session_id
	r.vector(2)    // cipher_suites
	r.vector(1)    // legacy_compression_methods
	if r.ok && len(r.b) == 0 {
		return "", errNoName // before TLS 1.2 there may be no extensions
	}
	extensions := reader{r.vector(2), r.ok}
	if !r.ok || len(r.b) != 0 {
		return "", errMalformed
	}
	name, found := "", false
	for extensions.ok && len(extensions.b) > 0 {
		kind, body := extensions.uint(2), extensions.vector(2)
		if !extensions.ok || kind != extensionName {
			continue
		}
		if found {
			return "", errMalformed
		}
		found = true
		if name = listedName(body); name == "" {
			return "", errMalformed
		}
	}
	switch {
	case !extensions.ok:
		return "", errMalformed
	case !found:
		return "", errNoName
	}
	return name, nil
}

// listedName returns the one host name of a ServerNameList.
func listedName(body []byte) string {
	outer := reader{body, true}
	list := reader{outer.vector(2), outer.ok}
	kind, name := list.uint(1), list.vector(2)
	if !outer.ok || !list.ok || len(outer.b) != 0 || len(list.b) != 0 || kind != nameHost {
		return ""
	}
	return hostname(string(name))
}

// handshake puts the first handshake message together, without its header.
func handshake(b []byte) ([]byte, error) {
	var message []byte
	for range maxHelloRecords {
		if len(b) < recordHeader {
			return nil, startOf(b)
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != recordHandshake || b[1] != 3 || size == 0 || size > maxRecord {
			return nil, errMalformed
		}
		part := b[recordHeader:]
		message = append(message, part[:min(size, len(part))]...)
		if len(message) >= 1 && message[0] != messageHello {
			return nil, errMalformed
		}
		if len(message) >= handshakeHeader {
			length := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			switch {
			case length > maxFirst-handshakeHeader-maxHelloHeaders:
				return nil, errMalformed
			case len(message)-handshakeHeader >= length:
				return message[handshakeHeader:][:length], nil
			}
		}
		if len(part) < size {
			return nil, errShort
		}
		b = part[size:]
	}
	return nil, errMalformed
}

// startOf says what becomes of less than a record's header.
func startOf(b []byte) error {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != 3 {
		return errMalformed
	}
	return errShort
}

// reader takes a message apart. After the first thing that is not there, ok is false.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) skip(n int) []byte {
	if !r.ok || len(r.b) < n {
		r.ok = false
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// uint reads a number of n bytes.
func (r *reader) uint(n int) (v int) {
	for _, c := range r.skip(n) {
		v = v<<8 | int(c)
	}
	return v
}

// vector reads what follows its length of n bytes.
func (r *reader) vector(n int) []byte { return r.skip(r.uint(n)) }

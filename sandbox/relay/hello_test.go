package relay

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
)

// hello is the ClientHello that Go sends.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	defer ours.Close()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// fragment cuts a record into records of so many bytes.
func fragment(b []byte, size int) (out []byte) {
	for rest := b[recordHeader:]; len(rest) > 0; rest = rest[min(size, len(rest)):] {
		n := min(size, len(rest))
		out = append(append(out, recordHandshake, 3, 1, byte(n>>8), byte(n)), rest[:n]...)
	}
	return out
}

// withExtensions makes a small hello of its own.
func withExtensions(extensions []byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(extensions))), extensions...)
	message := append([]byte{messageHello, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{recordHandshake, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func nameExtension(kind byte, names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, kind, byte(len(n)>>8), byte(len(n))), n...)
	}
	list = append([]byte{byte(len(list) >> 8), byte(len(list))}, list...)
	return append([]byte{0, 0, byte(len(list) >> 8), byte(len(list))}, list...)
}

// T031: the name is found in however many pieces it comes, and a hello with two names has none.
func TestServerName(t *testing.T) {
	whole := hello(t, "example.org")
	one := nameExtension(0, "example.org")
	for _, row := range []struct {
		what string
		b    []byte
		want string
		err  error
	}{
		{"as it is", whole, "example.org", nil},
		{"with what follows", append(append([]byte(nil), whole...), 23, 3, 3, 0, 1, 0), "example.org", nil},
		{"in records of 100 bytes", fragment(whole, 100), "example.org", nil},
		{"in records of one byte", fragment(whole, 1), "", errMalformed},
		{"without a name", hello(t, ""), "", errNoName},
		{"upper case", withExtensions(nameExtension(0, "EXAMPLE.org")), "example.org", nil},
		{"two extensions", withExtensions(append(append([]byte(nil), one...), one...)), "", errMalformed},
		{"two names", withExtensions(nameExtension(0, "a.test", "b.test")), "", errMalformed},
		{"another kind of name", withExtensions(nameExtension(1, "a.test")), "", errMalformed},
		{"an address", withExtensions(nameExtension(0, "10.0.0.1")), "", errMalformed},
		{"a name with a NUL", withExtensions(nameExtension(0, "a.test\x00.evil.test")), "", errMalformed},
		{"an empty name", withExtensions(nameExtension(0, "")), "", errMalformed},
		{"no extensions", withExtensions(nil), "", errNoName},
		{"an extension that is cut", withExtensions(one[:len(one)-1]), "", errMalformed},
		{"SSL 2", []byte{0x80, 0x2e, 1, 0, 2}, "", errMalformed},
		{"an empty record", []byte{recordHandshake, 3, 1, 0, 0}, "", errMalformed},
		{"a record too large", []byte{recordHandshake, 3, 1, 0x40, 1}, "", errMalformed},
		{"another message", []byte{recordHandshake, 3, 1, 0, 1, 2}, "", errMalformed},
		{"a hello too large", []byte{recordHandshake, 3, 1, 0, 4, 1, 1, 0, 0}, "", errMalformed},
		{"a version of its own", []byte{recordHandshake, 9}, "", errMalformed},
	} {
		got, err := serverName(row.b)
		if got != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s: %q %v, want %q %v", row.what, got, err, row.want, row.err)
		}
	}
	for n := range whole {
		if got, err := serverName(whole[:n]); !errors.Is(err, errShort) {
			t.Fatalf("the first %d bytes: %q %v", n, got, err)
		}
	}
}

// What is read from a hello is a name in its one form, and more bytes never change it.
func FuzzServerName(f *testing.F) {
	whole := withExtensions(append([]byte{0, 43, 0, 3, 2, 3, 4}, nameExtension(0, "example.org")...))
	for _, seed := range [][]byte{whole, fragment(whole, 64), withExtensions(nameExtension(0, "a.test")), withExtensions(nil), {recordHandshake, 3, 1, 0, 4, 1, 0, 0, 0}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := serverName(b)
		if (err == nil) != (name != "") || name != hostname(name) {
			t.Fatalf("%q %v", name, err)
		}
		if more, err2 := serverName(append(b[:len(b):len(b)], 0)); err == nil && (more != name || err2 != nil) {
			t.Fatalf("one byte more: %q %v", more, err2)
		}
	})
}

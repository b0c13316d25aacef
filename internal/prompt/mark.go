package prompt

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Kind is what a mark says.
type Kind byte

// The kinds.
const (
	Ready  Kind = 'N' // the script has been taken in; the argument says which marks there are going to be
	Prompt Kind = 'A' // a prompt begins
	Input  Kind = 'B' // and ends: what follows is typed
	Output Kind = 'C' // a command has been read and begins
	Done   Kind = 'D' // it has ended; the argument is its exit code
)

// Mark is one of them.
type Mark struct {
	Kind Kind
	Arg  string
}

// ExitCode is that of a Done.
func (m Mark) ExitCode() (code int, ok bool) {
	code, err := strconv.Atoi(m.Arg)
	return code, err == nil && m.Kind == Done && 0 <= code && code <= 255
}

// Nonce is what the marks of one execution carry. It is a function of a secret, so that it need not be kept.
func Nonce(secret []byte, execution string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("prompt marks of " + execution))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// maxMark is more than what follows the prefix of any mark.
const maxMark = 16

func prefix(nonce string) []byte { return []byte("\x1b]133;" + nonce + ";") }

// Next splits output that begins outside of a mark at its first one: text is what is before it, mark is it, and n is how far
// both reach. Without a mark, text is all that certainly is none. More may come: where the end of b could be the
// beginning of a mark, n stops before it, unless final.
func Next(nonce string, b []byte, final bool) (text []byte, mark *Mark, n int) {
	begin := prefix(nonce)
	at := bytes.Index(b, begin)
	if at < 0 {
		at = len(b)
		if !final {
			at -= overlap(b, begin)
		}
		return b[:at], nil, at
	}
	rest := b[at+len(begin):]
	end := bytes.IndexByte(rest[:min(len(rest), maxMark)], '\a')
	switch {
	case end > 0:
		return b[:at], parse(rest[:end]), at + len(begin) + end + 1
	case end < 0 && len(rest) < maxMark && !final:
		return b[:at], nil, at // its end is yet to come
	}
	// Something else wrote in the middle of it. Of what is left nobody is to see the nonce.
	return b[:at], nil, at + len(begin)
}

func parse(b []byte) *Mark {
	kind, arg, _ := bytes.Cut(b, []byte{';'})
	if len(kind) != 1 {
		return nil
	}
	return &Mark{Kind(kind[0]), string(arg)}
}

// overlap is the length of the longest end of b with which s begins.
func overlap(b, s []byte) int {
	for n := min(len(b), len(s)-1); n > 0; n-- {
		if bytes.HasPrefix(s, b[len(b)-n:]) {
			return n
		}
	}
	return 0
}

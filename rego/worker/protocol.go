package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// What is said on the socket, in lock step. A frame is its length (u32), its kind (u8) and its body; numbers are
// little-endian.
//
//	daemon                         worker
//	   │ ── confine ──────────────▶ │  still with what it was started with
//	   │ ◀─ confined | refused ──── │
//	   │     (reads in /proc what is in force)
//	   │ ── load ─────────────────▶ │  a revision; from here on there is something to steal
//	   │ ◀─ ready | refused ─────── │
//	   │ ── ask ──────────────────▶ │  again and again
//	   │ ◀─ answer ──────────────── │
//
// Whatever else comes from a worker is the end of it.
const (
	kindConfine byte = iota + 1
	kindConfined
	kindLoad
	kindReady
	kindRefused
	kindAsk
	kindAnswer
)

// Bounds of frames, and of what is in them.
const (
	headerSize = 5

	maxRevision = 72 << 20 // bytes of a packed revision
	maxReply    = 4 << 20  // of a frame from a worker
	maxText     = 4 << 10  // of a subject, a message or a name
	maxRules    = 4 << 10  // that one answer names, and as many labels
)

// errProtocol is what a worker says that is none of the above.
var errProtocol = errors.New("it does not keep to the protocol")

// order is the body of confine.
type order struct {
	Apart  bool   `json:"apart"`  // it has namespaces of its own, and can leave its root and its identity
	UID    uint32 `json:"uid"`    // to take, if apart
	Memory int64  `json:"memory"` // bytes beyond what it has now
	Tests  bool   `json:"tests"`  // a revision whose own tests fail is refused
}

// ready is the body of the frame of that kind.
type ready struct {
	Digest  string   `json:"digest"`
	Defines []string `json:"defines"` // entry points
}

// begin starts a frame in b, which end completes.
func begin(b []byte, kind byte) []byte { return append(b[:0], 0, 0, 0, 0, kind) }

func end(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-headerSize))
	return b
}

// question is the body of ask. Its number comes back in the answer.
type question struct {
	number    uint64
	nowNS     int64
	ref       string
	canonical []byte
}

func (q question) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, q.number)
	b = binary.LittleEndian.AppendUint64(b, uint64(q.nowNS))
	b = appendText(b, q.ref)
	return append(b, q.canonical...)
}

func parseQuestion(body []byte) (q question, err error) {
	r := reader{body, true}
	q.number, q.nowNS, q.ref = r.uint64(), int64(r.uint64()), r.text()
	q.canonical = r.b
	if !r.ok {
		return q, errProtocol
	}
	return q, nil
}

// codes are what a worker may say instead of a result.
var codes = []api.Code{
	"", api.CodePolicyUndefined, api.CodePolicyError, api.CodePolicyBuiltinError, api.CodePolicyNotOneResult, api.CodePolicyResult, api.CodePolicyInput,
}

func appendAnswer(b []byte, number uint64, a rego.Answer) []byte {
	b = binary.LittleEndian.AppendUint64(b, number)
	b = appendText(b, string(a.Code))
	b = appendText(b, a.Subject)
	b = appendText(b, a.Message)
	for _, list := range [][]string{a.Rules, a.Labels} {
		list = list[:min(len(list), maxRules)]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(list)))
		for _, name := range list {
			b = appendText(b, name)
		}
	}
	return append(b, a.Result...)
}

// parseAnswer reads the body of an answer to question number. Everything in it is copied.
func parseAnswer(body []byte, number uint64) (a rego.Answer, err error) {
	r := reader{body, true}
	if r.uint64() != number {
		return a, fmt.Errorf("%w: an answer to another question", errProtocol)
	}
	a.Code, a.Subject, a.Message = api.Code(r.text()), r.text(), r.text()
	for _, list := range []*[]string{&a.Rules, &a.Labels} {
		n := r.uint16()
		if n > maxRules {
			return a, errProtocol
		}
		for range n {
			if name := r.text(); r.ok {
				*list = append(*list, name)
			}
		}
	}
	if !r.ok || !slices.Contains(codes, a.Code) {
		return rego.Answer{}, errProtocol
	}
	if a.Code == "" {
		a.Result = slices.Clone(r.b)
	}
	return a, nil
}

// appendText appends what is left of s when it is cut to its bound, with its length.
func appendText(b []byte, s string) []byte {
	if len(s) > maxText {
		s = s[:maxText]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
			s = s[:len(s)-1]
		}
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// reader takes a body apart. After the first thing that is not there, ok is false and everything zero.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) take(n int) []byte {
	if !r.ok || len(r.b) < n {
		r.ok = false
		return make([]byte, min(n, 8))
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) uint16() int    { return int(binary.LittleEndian.Uint16(r.take(2))) }

// text is one that can be recorded: bounded, and valid UTF-8.
func (r *reader) text() string {
	n := r.uint16()
	if n > maxText {
		r.ok = false
		return ""
	}
	s := r.take(n)
	if !r.ok || !utf8.Valid(s) {
		r.ok = false
		return ""
	}
	return string(s)
}

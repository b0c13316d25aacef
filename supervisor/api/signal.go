package api

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// SignalName is a signal in its canonical form: upper case without SIG. On input
// "term", "TERM", "SIGTERM" and 15 are the same (R077). A name that is not a signal
// is kept as it was written, so that the refusal can be recorded.
type SignalName string

// signals are those that have a name, which may be sent and may end a command, by the numbers
// that every Linux architecture we build for (amd64, arm64, riscv64) shares.
var signals = map[SignalName]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8,
	"KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
	"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23,
	"XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "SYS": 31,
}

// ParseSignal returns the canonical form of a name or decimal number. ok is false
// when s is no signal; the name is then s itself.
func ParseSignal(s string) (name SignalName, ok bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return SignalOf(n)
	}
	name = SignalName(strings.TrimPrefix(strings.ToUpper(s), "SIG"))
	if _, ok = signals[name]; ok {
		return name, true
	}
	return SignalName(s), false
}

// SignalOf returns the name of the signal with number n, or its decimal form.
func SignalOf(n int) (name SignalName, ok bool) {
	for name, number := range signals {
		if number == n {
			return name, true
		}
	}
	return SignalName(strconv.Itoa(n)), false
}

// Number returns the number of the signal, or 0 when the name is not a signal.
func (s SignalName) Number() int { return signals[s] }

// UnmarshalJSONFrom accepts every spelling of a signal and keeps the canonical one.
func (s *SignalName) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '0' {
		var n int
		if err := json.UnmarshalDecode(dec, &n); err != nil {
			return err
		}
		*s, _ = SignalOf(n)
		return nil
	}
	var text string
	if err := json.UnmarshalDecode(dec, &text); err != nil {
		return err
	}
	*s, _ = ParseSignal(text)
	return nil
}

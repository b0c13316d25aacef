package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Redactor knows the secrets that are in use, and takes them out of text. Every line of the log passes it, and so does
// what an operator takes away. A nil Redactor knows none.
type Redactor struct {
	mu   sync.RWMutex
	held map[string]int
}

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// What is shorter than this is no secret that could be kept, and would be found in every word.
const shortest = 4

// Hold takes secrets in until release is called. Who may write about something holds its secrets for as long.
func (r *Redactor) Hold(secrets ...string) (release func()) {
	if r == nil || len(secrets) == 0 {
		return func() {}
	}
	var held []string
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		if r.held == nil {
			r.held = map[string]int{}
		}
		held = append(held, s)
		r.held[s]++
	}
	if held == nil {
		return func() {}
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range held {
			if r.held[s]--; r.held[s] == 0 {
				delete(r.held, s)
			}
		}
	})
}

// Clean returns text without the secrets that are in use, as they are or as they are written between quotes, and
// also without the beginning of one that was cut off.
func (r *Redactor) Clean(text string) string {
	if r == nil {
		return text
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for secret := range r.held {
		text = without(text, secret)
		if quoted := strconv.Quote(secret); quoted[1:len(quoted)-1] != secret {
			text = without(text, quoted[1:len(quoted)-1])
		}
	}
	return text
}

// without takes every beginning of a secret out of text that is long enough to be told from chance.
func without(text, secret string) string {
	const telling = 8
	head := secret[:min(len(secret), telling)]
	if !strings.Contains(text, head) {
		return text
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, head)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(Redacted)
		tail := secret[len(head):]
		for len(tail) > 0 && len(rest) > 0 && tail[0] == rest[0] {
			tail, rest = tail[1:], rest[1:]
		}
		text = rest
	}
}

// How much of one member a line of the log holds. A stack is ours, and is needed whole.
const (
	lineText  = 1 << 10
	stackText = 16 << 10
)

// NewLog returns a log whose lines pass r. form is "text", which "" stands for, or "json".
func NewLog(w io.Writer, level slog.Leveler, form string, r *Redactor) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: r.attr}
	switch form {
	case "", "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", form)
}

// attr is what of a member of a line is written. Handlers escape what a terminal would act on, but that of JSON only what is ASCII: the
// rest of it is replaced here.
func (r *Redactor) attr(_ []string, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	var text string
	switch v.Kind() {
	case slog.KindString:
		text = v.String()
	case slog.KindAny:
		if _, ok := v.Any().(slog.Level); ok {
			return a
		}
		text = fmt.Sprint(v.Any())
	default:
		return a // numbers and times
	}
	most := lineText
	if a.Key == "stack" {
		most = stackText
	}
	// Cut last: the half of a secret would not be found.
	text = strings.Map(func(c rune) rune {
		if c >= 0x7f && !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, r.Clean(text))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return slog.String(a.Key, text)
}

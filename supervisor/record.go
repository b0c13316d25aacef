package supervisor

import (
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// keptRequest is how much of a request is recorded when it is refused. What is carried out is
// recorded whole: it needs a grant. A refusal needs none, and must not fill the disk.
const keptRequest = 64 << 10

// Of the reasons of such a refusal, which may be as many as the request has parts.
const (
	keptReasons = 32
	keptText    = 512 // bytes of each of their texts
)

// fewer returns the first reasons, short, and how many there were beyond.
func fewer(deny []api.Deny) (kept []api.Deny, left int) {
	for _, d := range deny[:min(len(deny), keptReasons)] {
		kept = append(kept, api.Deny{Code: api.Code(short(string(d.Code))), Subject: short(d.Subject), Message: short(d.Message)})
	}
	return kept, len(deny) - len(kept)
}

func short(s string) string {
	if len(s) <= keptText {
		return s
	}
	return strings.ToValidUTF8(s[:keptText], "") + "…"
}

package worker

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// anyNumber stands in a lie for the number of the question, which a worker knows: tests ask one question of each pool.
const anyNumber = 1

func reply(a rego.Answer) string {
	return string(end(appendAnswer(begin(nil, kindAnswer), anyNumber, a)))
}

// wide is a grant of more than anybody asked for, and more than the ceiling has.
const wide = `{"allow": true, "deny": [], "grant": {"root": "host", "mounts": [{"host_path": "/etc", "guest_path": "/etc", "mode": "rw"}], "scratch": [],
	"identity": {"uid": 0, "gid": 0, "capabilities": ["CAP_SYS_ADMIN"]}, "ceilings": {"memory_bytes": 1000, "cpu_millis": 100, "pids": 10, "files": 10, "output_bytes": 100, "executions": 1},
	"seccomp": "default", "network": {"mode": "full"}, "env": {}, "exec": {}, "workdir": "/", "hostname": "h"}}`

// lies are what a worker that has been taken over says, byte by byte.
var lies = map[string]func() string{
	"nothing that is a frame": func() string { return strings.Repeat("x", 100) },
	"another kind":            func() string { f := []byte(reply(rego.Answer{})); f[4] = kindReady; return string(f) },
	"refused":                 func() string { return string(end(append(begin(nil, kindRefused), "no"...))) },
	"an empty frame":          func() string { return string(end(begin(nil, kindAnswer))) },
	"no end":                  func() string { return string(binary.LittleEndian.AppendUint32(nil, 1<<31)) + "xxxxxxx" },
	"two at once":             func() string { return reply(rego.Answer{Result: []byte("{}")}) + reply(rego.Answer{}) },
	"another question": func() string {
		return string(end(appendAnswer(begin(nil, kindAnswer), anyNumber+1, rego.Answer{Result: []byte(`{}`)})))
	},
	"a code of another": func() string { return reply(rego.Answer{Code: api.CodeGrantExceeds}) },
	"a name that is none": func() string {
		return reply(rego.Answer{Rules: []string{"\xff"}})
	},
	"a text beyond its bound": func() string {
		b := binary.LittleEndian.AppendUint64(begin(nil, kindAnswer), anyNumber)
		b = binary.LittleEndian.AppendUint16(b, maxText+1)
		return string(end(append(b, bytes.Repeat([]byte("x"), maxText+100)...)))
	},
	"half a frame": func() string { return reply(rego.Answer{Result: []byte("{}")})[:10] },

	"no JSON":          func() string { return reply(rego.Answer{Result: []byte("{")}) },
	"an empty result":  func() string { return reply(rego.Answer{}) },
	"nested":           func() string { return reply(rego.Answer{Result: bytes.Repeat([]byte("["), 1<<20)}) },
	"everything":       func() string { return reply(rego.Answer{Result: []byte(wide)}) },
	"a result and no":  func() string { return reply(rego.Answer{Result: []byte(wide), Code: api.CodePolicyError}) },
	"an unknown grant": func() string { return reply(rego.Answer{Result: []byte(`{"allow": true, "grant": {"root": "all"}}`)}) },
	"yes":              func() string { return reply(rego.Answer{Result: []byte(`{"allow": true, "deny": []}`)}) },
}

// TestLies: a worker that has been taken over can deny, and nothing else. What breaks the protocol is the end of it.
func TestLies(t *testing.T) {
	codes := map[string]api.Code{
		"half a frame": api.CodePolicyTimeout, "no JSON": api.CodePolicyResult, "an empty result": api.CodePolicyResult, "nested": api.CodePolicyResult,
		"everything": api.CodeGrantExceeds, "a result and no": api.CodePolicyError, "an unknown grant": api.CodePolicyResult, "yes": api.CodePolicyNoGrant,
	}
	for name := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := load(t, tree(""), Options{Program: as("liar"), Size: 1})
			want, ok := codes[name]
			if !ok {
				want = api.CodePolicyWorker
			}
			if want == api.CodePolicyTimeout {
				p.options.Deadline = 200 * time.Millisecond
			}
			if deny := do(t, p, name); deny.Code != want {
				t.Errorf("%v", deny)
			}
			p.options.Deadline = 30 * time.Second
			if ended := want == api.CodePolicyWorker || want == api.CodePolicyTimeout; ended {
				if deny := do(t, p, "say next"); deny.Code != "next" || p.State().Replaced == 0 {
					t.Errorf("the next: %v, %+v", deny, p.State())
				}
			}
		})
	}
}

// FuzzAnswer: no bytes of a worker make the daemon panic, and what it says in order arrives.
func FuzzAnswer(f *testing.F) {
	for _, lie := range lies {
		if b := lie(); len(b) > headerSize {
			f.Add([]byte(b)[headerSize:])
		}
	}
	f.Add(appendAnswer(nil, 1, rego.Answer{Rules: []string{"a.rego:1 x", "b.rego:2 y"}, Result: []byte(`{}`)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body, 1)
		if err != nil {
			return
		}
		again, err := parseAnswer(appendAnswer(nil, 1, a), 1)
		if err != nil || !reflect.DeepEqual(a, again) && !(len(a.Result) == 0 && len(again.Result) == 0) {
			t.Errorf("%+v, then %+v: %v", a, again, err)
		}
	})
}

// FuzzQuestion: the same of the other direction.
func FuzzQuestion(f *testing.F) {
	f.Add(question{1, 2, rego.Open, []byte(`{}`)}.append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parseQuestion(body)
		if err != nil {
			return
		}
		if again := q.append(nil); !bytes.Equal(again, body) {
			t.Errorf("%q, not %q", again, body)
		}
	})
}

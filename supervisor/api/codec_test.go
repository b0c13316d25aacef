package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Ambiguous JSON is refused (T162), with a code and the place (R260).
func TestDecodeRefuses(t *testing.T) {
	for _, row := range []struct {
		name, body string
		code       Code
		says       string // part of the message
	}{
		{"empty", ``, CodeDecodeError, "ends too early"},
		{"not json", `argv`, CodeDecodeError, "/"},
		{"array", `[]`, CodeDecodeError, "JSON array"},
		{"trailing value", `{"session_id":"s","argv":["a"]}{}`, CodeDecodeError, ""},
		{"trailing text", `{"session_id":"s","argv":["a"]} x`, CodeDecodeError, ""},
		{"unknown member", `{"session_id":"s","argvv":[]}`, CodeUnknownMember, "/argvv"},
		{"wrong case", `{"Session_id":"s"}`, CodeUnknownMember, "/Session_id"},
		{"doubled", `{"session_id":"s","session_id":"s"}`, CodeDuplicateMember, "/session_id"},
		{"doubled by escape", `{"argv":[],"arg\u0076":[]}`, CodeDuplicateMember, "/argv"},
		{"doubled inside", `{"env_patch":{"A":"1","A":"2"}}`, CodeDuplicateMember, "/env_patch/A"},
		{"null", `{"session_id":null}`, CodeDecodeError, "/session_id: null"},
		{"null element", `{"argv":["a",null]}`, CodeDecodeError, "/argv/1: null"},
		{"retyped", `{"argv":"ls"}`, CodeDecodeError, "/argv: a JSON string"},
		{"fraction", `{"timeout_ns":1.5}`, CodeDecodeError, "/timeout_ns"},
		{"whole fraction", `{"timeout_ns":1.0}`, CodeDecodeError, "/timeout_ns"},
		{"exponent", `{"timeout_ns":1e3}`, CodeDecodeError, "/timeout_ns"},
		{"overflow", `{"timeout_ns":9223372036854775808}`, CodeDecodeError, "/timeout_ns"},
		{"number as text", `{"timeout_ns":"1"}`, CodeDecodeError, "/timeout_ns"},
		{"not utf-8", "{\"cwd\":\"\xff\"}", CodeDecodeError, "UTF-8"},
		{"lone surrogate", `{"cwd":"\ud800"}`, CodeDecodeError, ""},
		{"bad base64", `{"stdin":{"inline_bytes":{"bytes":"*"}}}`, CodeDecodeError, "/stdin/inline_bytes/bytes"},
		{"url base64", `{"stdin":{"inline_bytes":{"bytes":"_w=="}}}`, CodeDecodeError, "/stdin/inline_bytes/bytes"},
		{"unknown inside a variant", `{"stdin":{"inline_text":{"text":"a","more":1}}}`, CodeUnknownMember, "/stdin/inline_text/more"},
		{"unknown arm", `{"stdin":{"file":{}}}`, CodeUnknownMember, "/stdin/file"},
		{"doubled arm", `{"stdin":{"inline_text":{"text":"a"},"inline_text":{"text":"b"}}}`, CodeDuplicateMember, "/stdin/inline_text"},
		{"tag with company", `{"stdin":{"$tag":"inline_text","$value":{"text":"a"},"x":1}}`, CodeUnknownMember, "/stdin/x"},
		{"variant is no object", `{"stdin":"text"}`, CodeDecodeError, "/stdin"},
		{"secret with company", `{"env_patch":{"A":{"secret":"s","x":1}}}`, CodeUnknownMember, "/env_patch/A/x"},
		{"secret of nothing", `{"env_patch":{"A":{}}}`, CodeDecodeError, "/env_patch/A"},
		{"too deep", `{"argv":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, CodeTooDeep, "/argv/0"},
		{"too large", `{"cwd":"` + strings.Repeat("x", MaxBody) + `"}`, CodeTooLarge, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Decode[Exec]([]byte(row.body))
			if err == nil || err.Code != row.code || !strings.Contains(err.Message, row.says) {
				t.Fatalf("got %v, want %s with %q", err, row.code, row.says)
			}
			if strings.Contains(err.Message, "api.") || strings.Contains(err.Message, "Go ") {
				t.Errorf("the message speaks Go: %s", err.Message)
			}
		})
	}
}

// Every variant has one canonical form, whichever one came in (R001, R002, C28, R077).
func TestCanonical(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"local", `{"target":{"local":{}}}`, `{"target":{"local":{}}}`},
		{"tagged local", `{"target":{"$tag":"local","$value":{"network_mode":"none"}}}`, `{"target":{"local":{"network_mode":"none"}}}`},
		{"value before tag", `{"target":{"$value":{},"$tag":"local"}}`, `{"target":{"local":{}}}`},
		{
			// The golden bytes of R002: they may never change.
			"full local",
			`{"labels":{"b":"2","a":"1"},"session_ttl_ns":9007199254740993,"target":{"$tag":"local","$value":{
				"env":{"B":{"secret":"s"},"A":"x"},"mounts":[{"mode":"rw","guest_path":"/work","host_path":"/srv/w"}],
				"network_mode":"none","workdir":"/work","root":{"$tag":"host"}}}}`,
			`{"target":{"local":{"root":{"host":{}},"mounts":[{"host_path":"/srv/w","guest_path":"/work","mode":"rw"}],"workdir":"/work",` +
				`"env":{"A":"x","B":{"secret":"s"}},"network_mode":"none"}},"session_ttl_ns":9007199254740993,"labels":{"a":"1","b":"2"}}`,
		},
		{"unknown arm", `{"target":{"vm":{"image":"x"}}}`, `{"target":{"vm":{}}}`},
		{"tagged unknown arm", `{"target":{"$tag":"vm","$value":{"image":"x"}}}`, `{"target":{"vm":{}}}`},
		{"dir", `{"target":{"local":{"root":{"$tag":"dir","$value":{"path":"/r"}}}}}`, `{"target":{"local":{"root":{"dir":{"path":"/r"}}}}}`},
	} {
		t.Run(row.name, func(t *testing.T) { canonical[SessionOpen](t, row.in, row.want) })
	}
	for _, spelling := range []string{`"term"`, `"TERM"`, `"SIGTERM"`, `"sigterm"`, `15`, `"15"`} {
		canonical[SessionSignal](t, `{"session_id":"s","signal":`+spelling+`}`, `{"session_id":"s","signal":"TERM"}`)
	}
	canonical[SessionSignal](t, `{"session_id":"s","signal":"nope"}`, `{"session_id":"s","signal":"nope"}`)
	canonical[Exec](t, `{"session_id":"s","argv":["a"],"env_patch":{"A":null},"stdin":{"$tag":"inline_bytes","$value":{"bytes":"/w=="}}}`,
		`{"session_id":"s","argv":["a"],"env_patch":{"A":null},"stdin":{"inline_bytes":{"bytes":"/w=="}}}`)
}

// Ports are exact numbers of 16 bits; an empty list is kept apart from an absent one (C19).
func TestPorts(t *testing.T) {
	open := func(ports string) string {
		return `{"target":{"local":{"network_mode":"egress","egress":[{"name":"example.org","ports":` + ports + `}]}}}`
	}
	for _, ports := range []string{`[0,443,65535]`, `[]`} {
		canonical[SessionOpen](t, open(ports), open(ports))
	}
	canonical[SessionNarrow](t, `{"session_id":"s","network":{"mode":"full","allow":[{"cidr":"192.0.2.0/24"}]}}`,
		`{"session_id":"s","network":{"mode":"full","allow":[{"cidr":"192.0.2.0/24"}]}}`)
	for _, ports := range []string{`[65536]`, `[-1]`, `[443.0]`, `[4e2]`, `["443"]`, `[null]`, `null`, `443`, `"AbsB"`} {
		if _, err := Decode[SessionOpen]([]byte(open(ports))); err == nil || err.Code != CodeDecodeError {
			t.Errorf("%s: %v", ports, err)
		}
	}
}

func canonical[T any](t *testing.T, in, want string) {
	t.Helper()
	v, err := Decode[T]([]byte(in))
	if err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	b, e := Encode(v)
	if e != nil || string(b) != want {
		t.Fatalf("%s\n got %s\nwant %s (%v)", in, b, want, e)
	}
	again, err := Decode[T](b)
	if err != nil || !cmp.Equal(v, again) {
		t.Fatalf("%s does not decode to itself: %v\n%s", b, err, cmp.Diff(v, again))
	}
}

// What decodes encodes to bytes that decode to the same value, and those bytes are
// a fixed point (T170).
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"op":"host.exec","principal":{"uid":0,"gid":0},"facade":"http","exec":{"session_id":"s","argv":["a"],"env_patch":{"A":null,"B":{"secret":"x"},"C":{"secret_digest":"hmac-sha256:00"}},"stdin":{"secret_text":{"text":"x"}}}}`,
		`{"op":"process.session.open","open":{"target":{"$tag":"local","$value":{"root":{"paths":{"paths":["/usr"]}},"mounts":[{"host_path":"/a","guest_path":"/b","mode":"ro"}]}},"labels":{"a":"b"}}}`,
		`{"op":"host.session.signal","signal":{"session_id":"s","signal":9,"grace_timeout_ns":0}}`,
		`{"op":"host.session.close","close":{"session_id":"s","mode":"force"}}`,
		`{"op":"host.workspace.commit","workspace":{"session_id":"s","guest_path":"/work","paths":["a"]}}`,
		`{"op":"host.session.narrow","narrow":{"session_id":"s","network":{"mode":"egress","allow":[{"name":"*.example.org","ports":[443]}]}}}`,
		`{"open":{"target":{"\u0024tag":"","$value":{}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode[Request](data)
		if err != nil {
			if err.Code == "" || err.Message == "" {
				t.Fatalf("an error without a code or a sentence: %+v", err)
			}
			return
		}
		v.Validate() // must not panic on anything that decodes
		b, e := Encode(v)
		if e != nil {
			t.Fatalf("encode: %v", e)
		}
		again, err := Decode[Request](b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if c, _ := Encode(again); !bytes.Equal(b, c) {
			t.Fatalf("not a fixed point:\n%s\n%s", b, c)
		}
	})
}

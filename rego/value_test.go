package rego

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestValues(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":[1,2.50,"x",null,true],"a":{}}`:   `{"a":{},"b":[1,2.50,"x",null,true]}`,
		`9007199254740993`:                      `9007199254740993`, // beyond float64
		` "é\n" `:                               `"é\n"`,
		`{"ceiling":{"a":[1]},"s":{"grant":2}}`: `{"ceiling":{"a":[1]},"s":{"grant":2}}`,
	} {
		for _, m := range []*memo{nil, {}} {
			for range 2 { // the second time from the memo
				v, err := m.parse([]byte(in))
				if err != nil {
					t.Fatal(in, err)
				}
				got, err := appendJSON(nil, v)
				if err != nil || string(got) != want {
					t.Errorf("%s: %s %v", in, got, err)
				}
			}
		}
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":1}`, `[1] [2]`, `{"a"}`, "\"\xff\"", `01`, `{"ceiling":{"a":1,"a":2}}`} {
		if v, err := parseJSON([]byte(bad)); err == nil {
			t.Errorf("%s is read as %v", bad, v)
		}
	}
}

// FuzzValues: whatever is JSON survives the way into Rego and back, and nothing panics.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}]}`, `-0.0e1`, `"\u0000"`, `{"ceiling":{},"session":{"grant":{"x":1}}}`, `[[[]]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := parseJSON(text)
		if (err == nil) != jsontext.Value(text).IsValid() {
			t.Fatalf("%q: %v", text, err)
		}
		var m memo // reads the same, twice
		for range 2 {
			if kept, kerr := m.parse(text); err == nil && (kerr != nil || kept.Compare(v) != 0) {
				t.Fatalf("%q is %v from a memo, not %v: %v", text, kept, v, kerr)
			}
		}
		if err != nil {
			return
		}
		out, err := appendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseJSON(out)
		if err != nil || again.Compare(v) != 0 {
			t.Fatalf("%q became %q", text, out)
		}
	})
}

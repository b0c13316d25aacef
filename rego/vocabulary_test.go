package rego

import (
	"context"
	"strings"
	"testing"
	"testing/quick"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
)

// said is what a query gives, as JSON; an error of a builtin is one of the query.
func said(t *testing.T, query string, input string) (string, error) {
	t.Helper()
	options := []func(*opa.Rego){opa.Query("x := " + query), opa.Capabilities(Capabilities()), opa.StrictBuiltinErrors(true),
		opa.GenerateJSON(func(t *ast.Term, _ *opa.EvalContext) (any, error) { return t.Value, nil })}
	if input != "" {
		v, err := parseJSON([]byte(input))
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, opa.ParsedInput(v))
	}
	rs, err := opa.New(options...).Eval(context.Background())
	if err != nil || len(rs) == 0 {
		return "", err
	}
	text, err := appendJSON(nil, rs[0].Bindings["x"].(ast.Value))
	return string(text), err
}

func TestVocabulary(t *testing.T) {
	for _, row := range []struct{ query, want string }{
		{`stockade.longer(["a", "bb", "ccc"], 1)`, `[1,2]`},
		{`stockade.longer(["é", "aa"], 1)`, `[0,1]`}, // bytes
		{`stockade.longer(["", "a"], 0)`, `[1]`},
		{`stockade.longer([""], -1)`, `[0]`},
		{`stockade.longer(["a"], 1e40)`, `[]`},
		{`stockade.longer([], 0)`, `[]`},

		{`stockade.named(["A", "GOFLAGS", "GO"], ["GO*", "B"])`, `["GO","GOFLAGS"]`},
		{`stockade.named({"A": 1, "B": null}, {"A"})`, `["A"]`},
		{`stockade.named({"A", "a"}, ["A"])`, `["A"]`},
		{`stockade.named({"A": 1}, [])`, `[]`},
		{`stockade.named({"A": 1, "B": 2}, ["*"])`, `["A","B"]`},
		{`stockade.named(["A*", "AB"], ["A*"])`, `["A*","AB"]`},
		{`stockade.named(["AXB"], ["A*B"])`, `[]`}, // an asterisk is one at the end

		{`stockade.any_contains(["/home/a/.ssh/"], ["/.ssh/"])`, `true`},
		{`stockade.any_contains({"/home/a/"}, ["/.ssh/", "/.aws/"])`, `false`},
		{`stockade.any_contains([], ["a"])`, `false`},
		{`stockade.any_contains(["a"], [])`, `false`},
		{`stockade.any_contains(["a"], [""])`, `true`},

		{`stockade.slashed(["/a", "/b/", "/", ""])`, `["/","/a/","/b/"]`},
		{`stockade.slashed(set())`, `[]`},

		{`stockade.parents(["/home/alice", "/home/bob/", "/srv", "/", "srv", "a/b"])`, `["/","/home/","a/"]`},

		{`stockade.below(["/a", "/a/b", "/ab", "/a/", "/b"], ["/a/"])`, `["/a","/a/","/a/b"]`},
		{`stockade.below(["/a", "/a/b", "/ab"], ["/a"])`, `["/a","/a/b"]`},
		{`stockade.below(["/", "/a", "a", ""], ["/"])`, `["/","/a"]`},
		{`stockade.below(["/a/../b", "/a/..", "/a/..b", "/a/b..", "/a/./b"], ["/a/"])`, `["/a/..b","/a/./b","/a/b.."]`},
		{`stockade.below({"/a"}, set())`, `[]`},
		{`stockade.below(["/", "//", "/a", "//a"], ["//"])`, `["//","//a"]`},
		{`stockade.below(["/a", "/a/", "/a//", "/a//b"], ["/a//"])`, `["/a//","/a//b"]`},

		{`stockade.capped({"a": 3, "b": 1, "c": 5}, {"a": 2, "b": 2, "d": 0})`, `{"a":2,"b":1,"c":5}`},
		{`stockade.capped({"a": 9007199254740993}, {"a": 9007199254740992})`, `{"a":9007199254740992}`}, // exactly
		{`stockade.capped({}, {"a": 1})`, `{}`},
	} {
		if got, err := said(t, row.query, ""); err != nil || got != row.want {
			t.Errorf("%s: %s, want %s; %v", row.query, got, row.want, err)
		}
	}
	// What is of another type is an error, and so denies.
	for _, query := range []string{
		`stockade.longer(input.text, 1)`, `stockade.longer(input.numbers, 1)`, `stockade.longer(input.texts, input.text)`, `stockade.longer(input.texts, null)`,
		`stockade.named(input.text, ["a"])`, `stockade.named(input.numbers, ["a"])`, `stockade.named(input.texts, input.text)`, `stockade.named(input.texts, input.numbers)`,
		`stockade.any_contains(input.text, ["a"])`, `stockade.any_contains(input.numbers, ["a"])`, `stockade.any_contains(input.texts, input.numbers)`,
		`stockade.slashed(input.text)`, `stockade.slashed(input.numbers)`, `stockade.parents(input.text)`, `stockade.parents(input.numbers)`,
		`stockade.below(input.text, ["/"])`, `stockade.below(input.numbers, ["/"])`, `stockade.below(input.texts, input.numbers)`, `stockade.below(input.texts, null)`,
		`stockade.capped(input.texts, {})`, `stockade.capped({}, input.text)`,
	} {
		if got, err := said(t, query, `{"text": "a", "numbers": [1], "texts": ["a"]}`); err == nil {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// below agrees with the words of OPA that it stands for, but for paths that climb.
func TestBelowAgrees(t *testing.T) {
	if err := quick.Check(func(parts []uint8, of []uint8, slash bool) bool {
		name := func(parts []uint8) string {
			text := ""
			for _, p := range parts[:min(len(parts), 4)] {
				text += []string{"/", "a", "/b", "/.", "..", "/c"}[p%6]
			}
			return text
		}
		path, dir := "/"+name(parts), "/"+name(of)
		if slash {
			dir = strings.TrimSuffix(dir, "/") + "/"
		}
		quoted := func(s string) string { return string(mustJSON(ast.String(s))) }
		got, err := said(t, `count(stockade.below([`+quoted(path)+`], [`+quoted(dir)+`]))`, "")
		want := strings.HasPrefix(strings.TrimSuffix(path, "/")+"/", strings.TrimSuffix(dir, "/")+"/") && !climbs(path)
		return err == nil && (got == "1") == want
	}, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}

func mustJSON(v ast.Value) []byte {
	text, err := appendJSON(nil, v)
	if err != nil {
		panic(err)
	}
	return text
}

// has says what a search in texts with slashes around them says.
func TestHas(t *testing.T) {
	if err := quick.Check(func(parts []uint8, of []uint8) bool {
		name := func(parts []uint8, most int) string {
			text := ""
			for _, p := range parts[:min(len(parts), most)] {
				text += []string{"/", "a", "/a", "b", ".git"}[p%5]
			}
			return text
		}
		path, part := "/"+name(parts, 8), "a"+name(of, 3)
		return has(path, part) == strings.Contains(path+"/", "/"+part+"/")
	}, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
	if has("/a", "") || has("", "a") || has("", "") {
		t.Error("nothing is had")
	}
}

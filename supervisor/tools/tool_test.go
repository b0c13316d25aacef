package tools

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/supervisor/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What each provider's models are given, to the letter.
func TestCatalogues(t *testing.T) {
	for _, p := range profiles {
		got, err := json.Marshal(p.Catalogue(), jsontext.WithIndent("  "), json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		golden := filepath.Join("testdata", p.Name+".json")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the tables say (%v); run with -update", golden, err)
		}
	}
}

// The names are such as every provider takes, and every argument is told.
func TestNames(t *testing.T) {
	name := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	for _, p := range append([]*Profile{{Name: "commands", Tools: Commands()}}, profiles...) {
		var seen []string
		for _, tool := range p.Tools {
			if !name.MatchString(tool.Name) || slices.Contains(seen, tool.Name) || tool.Text == "" || len(tool.Ops) == 0 || tool.do == nil {
				t.Errorf("%s: %+v", p.Name, tool)
			}
			seen = append(seen, tool.Name)
			if tool.ReadOnly && tool.Destructive {
				t.Errorf("%s %s reads only, and takes away", p.Name, tool.Name)
			}
			var args []string
			for _, a := range tool.Args {
				if a.Name == "" || slices.Contains(args, a.Name) || a.Text == "" || a.OneOf != nil && a.Kind != Text || a.Required && a.Default != nil {
					t.Errorf("%s %s: %+v", p.Name, tool.Name, a)
				}
				args = append(args, a.Name)
			}
		}
		for _, tool := range p.Files() {
			if !strings.HasPrefix(string(tool.Ops[0]), "host.fs.") {
				t.Errorf("%s is no file tool", tool.Name)
			}
		}
	}
}

// The schema that is published and the check that is made are one: whatever the schema takes the check takes, and the other way
// round, but for what no schema can say.
func TestSchemaIsTheCheck(t *testing.T) {
	type subject struct {
		tool   string
		args   []Arg
		schema *jsonschema.Resolved
	}
	var subjects []subject
	for _, p := range append([]*Profile{{Tools: Commands()}}, profiles...) {
		for _, tool := range p.Tools {
			var s jsonschema.Schema
			if err := s.UnmarshalJSON(tool.Schema()); err != nil {
				t.Fatal(err)
			}
			resolved, err := s.Resolve(nil)
			if err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
			subjects = append(subjects, subject{tool.Name, tool.Args, resolved})
		}
	}
	value := rapid.OneOf(
		rapid.Just[any]("text"), rapid.Just[any]("view"), rapid.Just[any]("content"), rapid.Just[any](float64(0)), rapid.Just[any](float64(1)), rapid.Just[any](float64(-3)),
		rapid.Just[any](1.5), rapid.Just[any](float64(1<<40)), rapid.Just[any](true), rapid.Just[any]([]any{"a", "b"}), rapid.Just[any]([]any{float64(1), float64(2)}),
		rapid.Just[any]([]any{}), rapid.Just[any]([]any{"a", float64(1)}), rapid.Just[any](map[string]any{}),
	)
	rapid.Check(t, func(t *rapid.T) {
		for _, s := range subjects {
			doc := map[string]any{}
			for _, a := range s.args {
				if a.Required || rapid.Bool().Draw(t, "has "+a.Name) {
					doc[a.Name] = value.Draw(t, a.Name)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "more") == 0 {
				doc["other"] = true
			}
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			_, fault := decode(b, s.args)
			if err := s.schema.Validate(doc); (err == nil) != (fault == nil) {
				t.Fatalf("%s: %s: the schema says %v, the check %v", s.tool, b, err, fault)
			}
		}
	})
}

// Decoding never panics, and what it takes it has read as it stands.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{`{}`, `{"command":"view","path":"x","view_range":[1,-1]}`, `{"path":"\ud800"}`, `{"path":"a","path":"b"}`, `{"insert_line":1e3}`, `{"insert_line":9223372036854775808}`, `[`, "\xff"} {
		f.Add([]byte(doc))
	}
	editor, err := anthropic.Tool("str_replace_based_edit_tool")
	if err != nil {
		f.Fatal(err)
	}
	args := slices.Clone(editor.Args)
	for i := range args {
		args[i].Required = false
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		v, fault := decode(doc, args)
		if (v == nil) == (fault == nil) {
			t.Fatalf("%q: %v %v", doc, v, fault)
		}
		if fault != nil {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(doc, &plain); err != nil {
			t.Fatalf("%q was taken: %v", doc, err)
		}
		for name, got := range v {
			if s, ok := got.(string); ok && plain[name] != s {
				t.Fatalf("%q: %s is %q", doc, name, s)
			}
		}
	})
}

// A long output keeps its two ends, whatever the pieces that it comes in.
func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 60).Draw(t, "limit")
		c := clip{limit: limit}
		var all []byte
		for _, piece := range rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 50)).Draw(t, "pieces") {
			c.Write(piece)
			all = append(all, piece...)
		}
		text, cut := c.text()
		if cut != (int64(len(all)) > limit) {
			t.Fatalf("cut is %v of %d with %d", cut, len(all), limit)
		}
		if !cut {
			if text != string(all) {
				t.Fatalf("%q is not %q", text, all)
			}
			return
		}
		head, rest, _ := strings.Cut(text, "\n… ")
		_, tail, _ := strings.Cut(rest, "\n")
		if !bytes.HasPrefix(all, []byte(head)) || !bytes.HasSuffix(all, []byte(tail)) || int64(len(head)+len(tail)) != limit {
			t.Fatalf("%q of %q", text, all)
		}
	})
}

// The end of a command is found wherever the pieces of the output end, and nothing before it is lost or added; what looks like it is
// not taken for it.
func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOf(rapid.SampledFrom([]string{"x", "\n", "\nMARK", "\nMARK 7", "MARK 0\n", "\nMARK  0\n", "\nMARK 1000\n", "long line of text"})).Draw(t, "before")
		want := strings.Join(before, "")
		doc := []byte(want + "\nMARK 42\n")
		if at := regexp.MustCompile(`\nMARK [0-9]{1,3}\n`).FindIndex(doc); at[0] != len(want) {
			return // the command said it all by itself
		}
		doc = append(doc, "background"...)
		var out bytes.Buffer
		u := until{out: &out, mark: "MARK"}
		for len(doc) > 0 {
			n := rapid.IntRange(1, len(doc)).Draw(t, "n")
			u.Write(doc[:n])
			doc = doc[n:]
			if !u.found && len(u.held) > len("\nMARK 255\n") {
				t.Fatalf("%q is held", u.held)
			}
		}
		if !u.found || u.status != 42 || out.String() != want {
			t.Fatalf("found %v, status %d, %q, want %q", u.found, u.status, &out, want)
		}
	})
}

func TestLegible(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m":         "red",
		"\x1b]0;title\x07text":       "text",
		"\x1b]8;;url\x1b\\link":      "link",
		"a\xffb":                     "a\uFFFDb",
		"progress\r100%":             "progress\r100%",
		"\x1b(Bplain\x1b=":           "plain",
		"no escape [31m":             "no escape [31m",
		"a\x00b\tc\r\n\x7f":          "a\uFFFDb\tc\r\n\uFFFD",
		"\x1bPq#0;2;0;0;0\x1b\\over": "over",
	} {
		if got := legible([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Paths are told only where it is certain where they end.
func TestOnlyPaths(t *testing.T) {
	for in, want := range map[string]string{
		"a/b.go:3:text\n":             "a/b.go\n",
		"a:b.go:3:x = 1\n":            "a:b.go\n",
		"a:1:b.go:3:x\n":              "a:1:b.go:3:x\n",
		"a.go:3:at :7: it is\nb:1:\n": "a.go:3:at :7: it is\nb\n",
	} {
		if got := onlyPaths(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Each code of a remedy or a phrase is one that there is.
func TestCodes(t *testing.T) {
	var codes []api.Code
	for code := range remedies {
		codes = append(codes, code)
	}
	for _, p := range profiles {
		for code := range p.Phrases {
			codes = append(codes, code)
		}
	}
	for _, code := range codes {
		if code.Text() == "" {
			t.Errorf("%s is in no table", code)
		}
	}
}

// A number names one command: the ids of a session that is busy for years do not meet, and none is 0.
func TestHandle(t *testing.T) {
	if n := handle("x-aaaaaaaaaaaaaaaaaaaaaaaaaa"); n < 1 || n > 1<<31 || n != handle("x-aaaaaaaaaaaaaaaaaaaaaaaaaa") {
		t.Error(n)
	}
}

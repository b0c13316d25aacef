package file

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

var strict = json.RejectUnknownMembers(true)

// What is written is read again, and nothing but that.
func TestRequestsAreClosedDocuments(t *testing.T) {
	for _, doc := range []string{
		`{"op":"host.fs.read_file","read":{"path":"a","offset_bytes":9223372036854775807,"max_bytes":0}}`,
		`{"op":"host.fs.write_file","write":{"path":"a","content":{"inline_bytes":{"bytes":"AP8="}},"mode":"create_new"}}`,
		`{"op":"host.fs.write_file","write":{"path_bytes":"/w==","content":{"inline_text":{"text":""}}}}`,
		`{"op":"host.fs.edit_file","edit":{"file_path":"a","old_string":"x","new_string":""}}`,
		`{"op":"host.fs.apply_patch","patch":{"patch":{"inline_text":{"text":"x"}},"dry_run":true}}`,
		`{"op":"host.fs.grep","grep":{"pattern":"x","glob_filter":"*.go","max_results":0}}`,
		`{"op":"host.fs.glob","glob":{"pattern":"**"}}`,
		`{"op":"host.fs.exists","stat":{"path":"a"}}`,
		`{"op":"host.fs.list_dir","list":{}}`,
		`{"op":"host.fs.mkdir","mkdir":{"path":"a"}}`,
		`{"op":"host.fs.move","move":{"path":"a","to":"b"}}`,
		`{"op":"host.fs.remove","remove":{"path":"a","recursive":true}}`,
	} {
		var r Request
		if err := json.Unmarshal([]byte(doc), &r, strict); err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if fault := r.Validate(); fault != nil {
			t.Errorf("%s: %v", doc, fault)
		}
		again, err := json.Marshal(&r)
		if err != nil || string(again) != doc {
			t.Errorf("%s\nbecame %s (%v)", doc, again, err)
		}
	}
	for _, doc := range []string{
		`{"op":"host.fs.read_file","read":{"path":"a","mode":"x"}}`,
		`{"op":"host.fs.read_file","read":{"path":"a","offset_bytes":1.5}}`,
		`{"op":"host.fs.read_file","read":{"path":"a","offset_bytes":9223372036854775808}}`,
		`{"op":"host.fs.read_file","Read":{"path":"a"}}`,
		`{"op":"host.fs.read_file","read":{"path":"\ud800"}}`,
	} {
		var r Request
		if json.Unmarshal([]byte(doc), &r, strict) == nil {
			t.Errorf("%s was taken", doc)
		}
	}
}

// What can be wrong with a request whatever the machine.
func TestValidate(t *testing.T) {
	text := Content{InlineText: &InlineText{Text: "x"}}
	at := Target{Path: "a"}
	minus := int64(-1)
	for _, row := range []struct {
		r    Request
		code Code
	}{
		{Request{Op: "host.fs.chmod"}, CodeInvalidParams},
		{Request{Op: OpRead}, CodeInvalidParams},
		{Request{Op: OpRead, Read: &Read{Target: at}, List: &List{}}, CodeInvalidParams},
		{Request{Op: OpRead, Read: &Read{}}, CodeInvalidPath},
		{Request{Op: OpRead, Read: &Read{Target: Target{Path: "a", PathBytes: []byte("b")}}}, CodeInvalidPath},
		{Request{Op: OpRead, Read: &Read{Target: Target{Path: "\uFFFD", PathBytes: []byte("\xff")}}}, ""},
		{Request{Op: OpRead, Read: &Read{Target: at, MaxBytes: &minus}}, CodeInvalidParams},
		{Request{Op: OpWrite, Write: &Write{Target: at}}, CodeInvalidContent},
		{Request{Op: OpWrite, Write: &Write{Target: at, Content: Content{InlineText: &InlineText{}, InlineBytes: &InlineBytes{}}}}, CodeInvalidContent},
		{Request{Op: OpWrite, Write: &Write{Target: at, Content: Content{BlobRef: &BlobRef{"sha256:x"}}}}, CodeInvalidBlobRef},
		{Request{Op: OpWrite, Write: &Write{Target: at, Content: text, ExpectedSHA256: "x"}}, CodeInvalidParams},
		{Request{Op: OpEdit, Edit: &Edit{Target: at, FilePath: "b", OldString: "x"}}, CodeInvalidPath},
		{Request{Op: OpEdit, Edit: &Edit{Target: at}}, CodeEmptyOldString},
		{Request{Op: OpPatch, Patch: &Patch{Patch: PatchText{InlineText: &InlineText{" \n"}}}}, CodePatchEmpty},
		{Request{Op: OpPatch, Patch: &Patch{Format: "ed", Patch: PatchText{InlineText: &InlineText{"x"}}}}, CodePatchFormat},
		{Request{Op: OpPatch, Patch: &Patch{}}, CodeInvalidPatch},
		{Request{Op: OpGrep, Grep: &Grep{}}, CodeInvalidRegex},
		{Request{Op: OpGrep, Grep: &Grep{Pattern: "x", Before: MaxContext + 1}}, CodeInvalidParams},
		{Request{Op: OpGlob, Glob: &Glob{}}, CodeInvalidPattern},
		{Request{Op: OpMove, Move: &Move{Target: at}}, CodeInvalidPath},
	} {
		fault := row.r.Validate()
		if fault == nil && row.code != "" || fault != nil && fault.Code != row.code {
			t.Errorf("%+v: %v, want %s", row.r, fault, row.code)
		}
	}
}

// R095: roots are components; C19: an empty list is nothing, an absent one everything; 15 capabilities and their JSON.
// Pitfalls 2 and 3 of part 4: a prefix of the text is no root, and an empty list is not "all".
func TestCaps(t *testing.T) {
	for _, row := range []struct {
		path string
		root string
		in   bool
	}{
		{"/a/b", "/a/b", true}, {"/a/b/c", "/a/b", true}, {"/a/bc", "/a/b", false}, {"/a", "/a/b", false}, {"/", "/", true}, {"/a", "/", true},
	} {
		if Within(row.path, row.root) != row.in {
			t.Errorf("%s in %s", row.path, row.root)
		}
	}
	var absent, empty Caps
	if err := json.Unmarshal([]byte(`{"allowed_fs_ops":[],"fs_roots":[],"max_read_bytes":0}`), &empty, strict); err != nil {
		t.Fatal(err)
	}
	if !absent.Check(ClassRead) || !absent.Admits("/x") || empty.Check(ClassRead) || empty.Admits("/x") || *empty.MaxReadBytes != 0 {
		t.Error("absent and empty are not told apart")
	}
	if b, _ := json.Marshal(&empty); string(b) != `{"allowed_fs_ops":[],"fs_roots":[],"max_read_bytes":0}` {
		t.Errorf("%s", b)
	}
	c := Caps{ProtectedPaths: []string{"/w/.git/hooks"}}
	for p, want := range map[string][2]bool{"/w/.git/hooks": {true, true}, "/w/.git/hooks/x": {true, true}, "/w/.git": {false, true}, "/w": {false, true}, "/w/.github": {false, false}, "/w/.git/hooksx": {false, false}} {
		if (c.Protects(p, false) != "") != want[0] || (c.Protects(p, true) != "") != want[1] {
			t.Errorf("%s", p)
		}
	}
	for _, bad := range []Caps{{Roots: []string{"a"}}, {Roots: []string{"/a/"}}, {WriteRoots: []string{"/a/../b"}}, {FollowSymlinks: "never"}, {Ops: []Class{"chmod"}}, {MaxScanFiles: new(int64(-1))}} {
		if _, msg := bad.Fault(); msg == "" {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Every result arm is found by its operation and has an outcome.
func TestResults(t *testing.T) {
	for _, row := range Ops {
		r := Empty(row.Op)
		if r == nil || r.Outcome() == nil {
			t.Fatalf("%s has no result", row.Op)
		}
		set := 0
		v := reflect.ValueOf(r).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
				set++
			}
		}
		if set != 1 {
			t.Errorf("%s: %d arms", row.Op, set)
		}
	}
	if Empty("host.fs.chmod") != nil {
		t.Error("a result of nothing")
	}
}

// T130: every name comes back, on one line, without control characters.
func TestQuote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "name"))
		q := Quote(name)
		back, ok := Unquote(q)
		if !ok || back != name {
			t.Fatalf("%q became %q, and %q again", name, q, back)
		}
		if strings.ContainsAny(q, "\n\x1b\x00\r") {
			t.Fatalf("%q", q)
		}
	})
	for in, want := range map[string]string{"plain name": "plain name", "日本": "日本", "a\nb": `"a\nb"`, `"`: `"\""`, "\xff": `"\377"`, "\x1b[0m": `"\033[0m"`, `a\b`: `a\b`} {
		if Quote(in) != want {
			t.Errorf("%q: %s, want %s", in, Quote(in), want)
		}
	}
	for _, bad := range []string{`"`, `"a`, `"\q"`, `"\9"`, "\x01", `"a"b"`, `"\400"`} {
		if name, ok := Unquote(bad); ok {
			t.Errorf("%q is taken for %q", bad, name)
		}
	}
}

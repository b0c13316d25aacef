package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// desk is a session whose file tools are used.
type desk struct {
	testing.TB
	c       *client.Client
	session string
}

// use asks for host.fs.NAME with parameters as they are on the wire, and says how it went: the outcome, the tool's own status where there
// is one, and the code.
func (d *desk) use(name, parameters string) (string, *api.Receipt) {
	d.Helper()
	body := fmt.Sprintf(`{"session_id":%q,%s`, d.session, strings.TrimPrefix(parameters, "{"))
	body = strings.Replace(body, ",}", "}", 1)
	_, r, err := d.c.Ask(d.Context(), api.Op("host.fs."+name), jsontext.Value(body))
	if err != nil {
		return err.Error(), &api.Receipt{}
	}
	words := []string{string(r.Outcome)}
	if f := r.Payload.File; f != nil && f.Outcome() != nil {
		words = append(words, string(f.Outcome().Status))
	}
	switch {
	case r.Outcome == api.OutcomeDenied && len(r.Deny) > 0:
		words = append(words[:1], string(r.Deny[0].Code))
	case r.ErrorCode != "":
		words = append(words, string(r.ErrorCode))
	}
	return strings.Join(words, " "), r
}

// fileRow is one use of a tool: what was there before, what is asked, how it goes, what the answer has (after "!": has not), and
// what a command sees afterwards.
type fileRow struct {
	name, before, tool, ask, want string
	has                           []string
	after, sees                   string
}

func (d *desk) row(t *testing.T, row fileRow) {
	t.Helper()
	if row.before != "" {
		if r := shell(t, d.c, d.session, row.before); r.Payload.Exec.ExitCode != 0 {
			t.Fatalf("before: %s", text(r.Payload.Exec.Stderr))
		}
	}
	got, r := d.use(row.tool, row.ask)
	if got != row.want {
		t.Errorf("%s %s: %s, want %s (%s)", row.tool, row.ask, got, row.want, r.ErrorMessage)
	}
	payload, err := api.Encode(r.Payload.File)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range row.has {
		part, not := strings.CutPrefix(part, "!")
		if strings.Contains(string(payload), part) == not {
			t.Errorf("%s %s: %s\nhas %s: %v", row.tool, row.ask, payload, part, !not)
		}
	}
	if row.after != "" {
		if got := text(shell(t, d.c, d.session, row.after).Payload.Exec.Stdout); got != row.sees {
			t.Errorf("%s: %q, want %q", row.after, got, row.sees)
		}
	}
}

const (
	fileTree = `cd /work/tree && rm -rf * && mkdir -p docs src/deep empty && printf 'one\ntwo\nthree\n' >f && printf 'h\303\251llo' >rune && printf 'bad\377' >bad &&
		printf 'func main() {\n\tretries = 3\n}\n' >src/main.go && printf 'say \342\200\234hi\342\200\235  now\n' >quotes && printf 'x\nx\n' >twice &&
		seq 1 9000 >large && ln -s f link && ln -s /etc/hostname out && ln -s loop loop && ln -s .. src/deep/up && mkfifo fifo && chmod 750 src/main.go`
	updateAndAdd = `*** Begin Patch\n*** Update File: f\n@@\n-two\n+2\n*** Add File: new\n+fresh\n*** End Patch\n`
)

// TestFileRequirements: every requirement of the file tools (R177 to R224) through the whole way, with its codes; among them what
// S3 §6.4 lists to be verified, by its names; and that a patch is all or nothing (T140).
func TestFileRequirements(t *testing.T) {
	daemon := start(t)
	c := daemon.Client()
	dir := shared(t)
	if err := os.Mkdir(filepath.Join(dir, "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Workdir = "/work/tree"
		o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
	})
	d := &desk{t, c, open.SessionID}
	blob, err := c.PutBlob(t.Context(), strings.NewReader("of a blob\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	ref := blob.Payload.Blob.BlobRef
	fresh := fileTree
	for _, row := range []fileRow{
		{name: "R178 named by what it leads to", before: fresh, tool: "read_file", ask: `{"path":"docs/../link"}`, want: "ok ok", has: []string{`"path":"/work/tree/f"`}},
		{name: "R179 sees what a command wrote on its own tmpfs", before: "echo private >/tmp/p", tool: "read_file", ask: `{"path":"/tmp/p"}`, want: "ok ok", has: []string{`private`}},
		{name: "R179 a command sees what a tool wrote", tool: "write_file", ask: `{"path":"/tmp/q","content":{"inline_text":{"text":"tool"}}}`, want: "ok ok", after: "cat /tmp/q", sees: "tool"},

		{name: "R180 range of bytes", tool: "read_file", ask: `{"path":"f","offset_bytes":4,"max_bytes":3}`, want: "ok ok", has: []string{`"text":"two"`, `"truncated":true`, `"size_bytes":14`}},
		{name: "R180 encoding", tool: "read_file", ask: `{"path":"f","encoding":"latin1"}`, want: "faulted error invalid_encoding"},
		{name: "R180 output_mode", tool: "read_file", ask: `{"path":"f","output_mode":"maybe"}`, want: "faulted error invalid_output_mode"},
		{name: "R180 no path", tool: "read_file", ask: `{}`, want: "faulted error invalid_path"},
		{name: "R180 6.4 read_file inline_text", tool: "read_file", ask: `{"path":"f"}`, want: "ok ok", has: []string{`"inline_text":{"text":"one\ntwo\nthree\n"}`, "!truncated"}},
		{name: "R180 6.4 read_file inline_bytes", tool: "read_file", ask: `{"path":"bad","encoding":"bytes"}`, want: "ok ok", has: []string{`"inline_bytes"`}},
		{name: "R180 6.4 read_file blob", tool: "read_file", ask: `{"path":"large"}`, want: "ok ok", has: []string{`"blob":{"blob_ref":"sha256:`, `"preview_bytes"`}},
		{name: "R181 6.4 read_file require_inline overflow", tool: "read_file", ask: `{"path":"large","output_mode":"require_inline"}`, want: "faulted error inline_required_too_large", has: []string{`"overflow":{`, `"limit_bytes":16384`}},
		{name: "R181 6.4 read_file not-found", tool: "read_file", ask: `{"path":"nothing"}`, want: "ok not_found path_not_found"},
		{name: "R181 6.4 read_file forbidden", before: "chmod 0 bad", tool: "read_file", ask: `{"path":"bad"}`, want: "ok forbidden forbidden", after: "chmod 644 bad"},
		{name: "R181 is_directory", tool: "read_file", ask: `{"path":"src"}`, want: "ok is_directory is_directory"},
		{name: "R182 nothing remains", tool: "read_file", ask: `{"path":"f","offset_bytes":8,"max_bytes":6}`, want: "ok ok", has: []string{`three`, "!truncated", `"size_bytes":14`}},
		{name: "R182 behind the end", tool: "read_file", ask: `{"path":"f","offset_bytes":99}`, want: "ok ok", has: []string{"!content", "!truncated"}},
		{name: "R183 invalid UTF-8", tool: "read_file", ask: `{"path":"bad"}`, want: "faulted error invalid_utf8"},
		{name: "R183 a rune cut", tool: "read_file", ask: `{"path":"rune","max_bytes":2}`, want: "ok ok", has: []string{`"text":"h"`, `"truncated":true`, `"next_offset_bytes":1`}},
		{name: "R184 FIFO", tool: "read_file", ask: `{"path":"fifo"}`, want: "faulted error not_regular"},
		{name: "R184 device", tool: "read_file", ask: `{"path":"/dev/zero"}`, want: "faulted error not_regular"},

		{name: "R185 6.4 write_file inline_text", tool: "write_file", ask: `{"path":"w","content":{"inline_text":{"text":"t\n"}}}`, want: "ok ok", after: "cat w", sees: "t\n"},
		{name: "R185 6.4 write_file inline_bytes", tool: "write_file", ask: `{"path":"w","content":{"inline_bytes":{"bytes":"YgD/"}}}`, want: "ok ok", after: "od -An -tx1 w", sees: " 62 00 ff\n"},
		{name: "R185 6.4 write_file blob_ref", tool: "write_file", ask: `{"path":"w","content":{"blob_ref":{"blob_ref":"` + ref + `"}}}`, want: "ok ok", after: "cat w", sees: "of a blob\n"},
		{name: "R185 tagged form (part 4, 1)", tool: "write_file", ask: `{"path":"w","content":{"$tag":"inline_text","$value":{"text":"tagged"}}}`, want: "ok ok", after: "cat w", sees: "tagged"},
		{name: "R185 no arm", tool: "write_file", ask: `{"path":"w","content":{}}`, want: "faulted error invalid_content"},
		{name: "R185 two arms", tool: "write_file", ask: `{"path":"w","content":{"inline_text":{"text":""},"inline_bytes":{"bytes":""}}}`, want: "faulted error invalid_content"},
		{name: "R185 unknown blob", tool: "write_file", ask: `{"path":"w","content":{"blob_ref":{"blob_ref":"sha256:` + strings.Repeat("0", 64) + `"}}}`, want: "faulted error not_found"},
		{name: "R186 parent_not_found", tool: "write_file", ask: `{"path":"no/such/w","content":{"inline_text":{"text":"t"}}}`, want: "faulted error parent_not_found", after: "ls -d no 2>&1 | wc -l", sees: "1\n"},
		{name: "R186 create_parents", tool: "write_file", ask: `{"path":"no/such/w","create_parents":true,"content":{"inline_text":{"text":"t"}}}`, want: "ok ok", after: "cat no/such/w", sees: "t"},
		{name: "R187 6.4 write_file create_new conflict", tool: "write_file", ask: `{"path":"f","mode":"create_new","content":{"inline_text":{"text":"t"}}}`, want: "ok conflict file_exists", after: "head -1 f", sees: "one\n"},
		{name: "R187 6.4 write_file mode", tool: "write_file", ask: `{"path":"f","mode":"append","content":{"inline_text":{"text":"t"}}}`, want: "faulted error invalid_mode"},
		{name: "R187 6.4 write_file forbidden", tool: "write_file", ask: `{"path":"/etc/passwd","content":{"inline_text":{"text":"t"}}}`, want: "ok forbidden forbidden"},
		{name: "R188 what a write tells", tool: "write_file", ask: `{"path":"fresh","content":{"inline_text":{"text":"12345"}}}`, want: "ok ok", has: []string{`"written_bytes":5`, `"created":true`, `"new_mtime_ns":`, `"after_sha256":"5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"`}},
		{name: "R189 mode kept (part 4, 10)", tool: "write_file", ask: `{"path":"src/main.go","content":{"inline_text":{"text":"func main() {\n\tretries = 3\n}\n"}}}`, want: "ok ok", has: []string{`"created":false`, `"before_sha256"`}, after: "stat -c %a src/main.go; ls -A src | grep -c stockade", sees: "750\n0\n"},

		{name: "R190 6.4 edit_file empty old_string", tool: "edit_file", ask: `{"path":"f","old_string":"","new_string":"x"}`, want: "faulted error invalid_input_empty_old_string"},
		{name: "R191 6.4 edit_file exact match", tool: "edit_file", ask: `{"path":"f","old_string":"two","new_string":"2"}`, want: "ok ok", has: []string{`"match":"exact"`, `"replacements":1`, `"applied":true`}, after: "cat f", sees: "one\n2\nthree\n"},
		{name: "R192 6.4 edit_file fuzzy match", tool: "edit_file", ask: `{"path":"quotes","old_string":"say \"hi\" now","new_string":"said"}`, want: "ok ok", has: []string{`"match":"fuzzy"`}, after: "cat quotes", sees: "said\n"},
		{name: "R193 6.4 edit_file ambiguous", tool: "edit_file", ask: `{"path":"twice","old_string":"x","new_string":"y"}`, want: "ok ambiguous ambiguous_matches", has: []string{`"candidates":2`, `"line":2`, `"replacements":0`}, after: "cat twice", sees: "x\nx\n"},
		{name: "R194 6.4 edit_file replace_all", tool: "edit_file", ask: `{"path":"twice","old_string":"x","new_string":"y","replace_all":true}`, want: "ok ok", has: []string{`"replacements":2`}, after: "cat twice", sees: "y\ny\n"},
		{name: "R195 not in the file", tool: "edit_file", ask: `{"path":"f","old_string":"four","new_string":"4"}`, want: "ok not_found edit_target_not_found"},
		{name: "R195 no file", tool: "edit_file", ask: `{"path":"nothing","old_string":"four","new_string":"4"}`, want: "ok not_found path_not_found"},
		{name: "R196 R197 the same again", before: "printf 'a a a' >aaa", tool: "edit_file", ask: `{"path":"aaa","old_string":"a","new_string":"a","replace_all":true}`, want: "ok ok", has: []string{`"replacements":3`, `"summary_text":"Updated aaa (3 replacements)"`}},
		{name: "R197 one", tool: "edit_file", ask: `{"path":"f","old_string":"one","new_string":"1"}`, want: "ok ok", has: []string{`"summary_text":"Updated f (1 replacement)"`}},
		{name: "R198 not UTF-8", tool: "edit_file", ask: `{"path":"bad","old_string":"bad","new_string":"good"}`, want: "faulted error invalid_utf8", after: "od -An -tx1 bad", sees: " 62 61 64 ff\n"},
		{name: "R199 file_path", tool: "edit_file", ask: `{"file_path":"f","old_string":"three","new_string":"3"}`, want: "ok ok", after: "cat f", sees: "1\n2\n3\n"},

		{name: "R200 empty patch", before: fresh, tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":" \n"}}}`, want: "faulted error invalid_patch_empty"},
		{name: "R201 format", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"x"}},"patch_format":"ed"}`, want: "faulted error unsupported_patch_format"},
		{name: "R104 R201 format that is not granted", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+1\n"}},"patch_format":"unified"}`, want: "denied patch_format_not_allowed"},
		{name: "R202 6.4 apply_patch dry_run", tool: "apply_patch", ask: `{"dry_run":true,"patch":{"inline_text":{"text":"` + updateAndAdd + `"}}}`, want: "ok ok", has: []string{`"dry_run":true`, `"files_changed":2`, `Patch dry-run: 2 files would change (add=1 update=1 delete=0 move=0)`}, after: "cat f; ls new 2>&1 | grep -c No", sees: "one\ntwo\nthree\n1\n"},
		{name: "R203 6.4 apply_patch parse error", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: new\nfresh\n*** End Patch\n"}}}`, want: "ok parse_error patch_parse_error", has: []string{`"patch_line":`}},
		{name: "R203 6.4 apply_patch reject: no partial write", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: new\n+fresh\n*** Update File: f\n@@\n-four\n+4\n*** End Patch\n"}}}`, want: "ok reject hunk_rejected", has: []string{`"expected":["four"]`}, after: "cat f; ls new 2>&1 | grep -c No; ls -A | grep -c stockade", sees: "one\ntwo\nthree\n1\n0\n"},
		{name: "R203 6.4 apply_patch not-found", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: new\n+fresh\n*** Delete File: nothing\n*** End Patch\n"}}}`, want: "ok not_found delete_target_not_found", after: "ls new 2>&1 | grep -c No", sees: "1\n"},
		{name: "R203 update of nothing", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: nothing\n@@\n-a\n+b\n*** End Patch\n"}}}`, want: "ok not_found update_target_not_found"},
		{name: "R203 add over what exists", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: f\n+x\n*** End Patch\n"}}}`, want: "ok reject add_target_exists"},
		{name: "R203 move over what exists", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: f\n*** Move to: twice\n@@\n-two\n+2\n*** End Patch\n"}}}`, want: "ok reject move_target_exists"},
		{name: "R203 update of what is not UTF-8", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: bad\n@@\n-a\n+b\n*** End Patch\n"}}}`, want: "faulted error update_target_non_utf8"},
		{name: "R204 R205 a path that is forbidden (part 4, 4)", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: new\n+x\n*** Add File: /etc/new\n+x\n*** End Patch\n"}}}`, want: "ok forbidden read_only", after: "ls new 2>&1 | grep -c No", sees: "1\n"},
		{name: "R205 6.4 apply_patch success", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"` + updateAndAdd + `"}}}`, want: "ok ok", has: []string{`"files_changed":2`, `"changed_paths":["/work/tree/f","/work/tree/new"]`, `"ops":{"add":1,"update":1,"delete":0,"move":0}`, `Applied patch: 2 files changed (add=1 update=1 delete=0 move=0)`, `"before_sha256"`}, after: "cat f new", sees: "one\n2\nthree\nfresh\n"},
		{name: "part 4, 11: hint, no first @@, end of file", before: "printf 'a\nx\nb\nx\n' >hint; printf 'y\n' >plain", tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: hint\n@@ b\n-x\n+z\n*** End of File\n*** Update File: plain\n-y\n+w\n*** End Patch\n"}}}`, want: "ok ok", after: "cat hint plain", sees: "a\nx\nb\nz\nw\n"},

		{name: "R207 R209 6.4 grep native", before: fresh, tool: "grep", ask: `{"pattern":"^t\\w+$"}`, want: "ok ok", has: []string{`"text":"f:2:two\nf:3:three\n"`, `"match_count":2`, `"backend":`, `"2 matches"`}},
		{name: "R207 case and filter", tool: "grep", ask: `{"pattern":"RETRIES","case_insensitive":true,"glob_filter":"*.go"}`, want: "ok ok", has: []string{`"text":"src/main.go:2:\tretries = 3\n"`}},
		{name: "R208 6.4 grep invalid regex", tool: "grep", ask: `{"pattern":"("}`, want: "ok invalid_regex invalid_regex"},
		{name: "R208 filter", tool: "grep", ask: `{"pattern":"a","glob_filter":"[a"}`, want: "faulted error invalid_glob_filter"},
		{name: "R208 6.4 grep not-found", tool: "grep", ask: `{"pattern":"a","path":"nothing"}`, want: "ok not_found path_not_found"},
		{name: "R210 6.4 grep empty result", tool: "grep", ask: `{"pattern":"nowhere at all"}`, want: "ok ok", has: []string{`"match_count":0`, "!matches\"", `"summary_text":"No matches found"`}},
		{name: "R211 R217 6.4 grep truncation", tool: "grep", ask: `{"pattern":"7","path":"large","max_results":2}`, want: "ok ok", has: []string{`"text":"large:7:7\nlarge:17:17\n"`, `"truncated":true`, `"match_count":3168`}},
		{name: "R211 6.4 grep inline-vs-blob", before: "seq 10000000 10000999 >wide", tool: "grep", ask: `{"pattern":".","path":"wide","max_results":1000}`, want: "ok ok", has: []string{`"matches":{"blob"`}},
		{name: "R211 6.4 grep require_inline", tool: "grep", ask: `{"pattern":".","path":"wide","max_results":1000,"output_mode":"require_inline"}`, want: "faulted error inline_required_too_large"},
		{name: "R212 part 4, 12: hidden and ignored files are searched, binaries are not", before: "mkdir dot && cd dot && printf '.*\nb\n' >.gitignore && echo hit | tee .hidden b >/dev/null && printf 'hit\\0' >binary", tool: "grep", ask: `{"pattern":"hit","path":"dot"}`, want: "ok ok", has: []string{`dot/.hidden:1:hit\ndot/b:1:hit\n"`, `"match_count":2`}},
		{name: "R213 R214 6.4 glob ordering", before: "cd docs && touch -d @200 new.md b.md && touch -d @100 a.md", tool: "glob", ask: `{"pattern":"docs/*.md"}`, want: "ok ok", has: []string{`"text":"docs/b.md\ndocs/new.md\ndocs/a.md\n"`, `"count":3`}},
		{name: "R213 part 4, 13: * stays in a component", tool: "glob", ask: `{"pattern":"*.md"}`, want: "ok ok", has: []string{`"count":0`}},
		{name: "R215 6.4 glob invalid pattern", tool: "glob", ask: `{"pattern":"[a"}`, want: "ok invalid_pattern invalid_pattern"},
		{name: "R215 6.4 glob not-found", tool: "glob", ask: `{"pattern":"*","path":"nothing"}`, want: "ok not_found path_not_found"},
		{name: "R216 6.4 glob empty result", tool: "glob", ask: `{"pattern":"*.none"}`, want: "ok ok", has: []string{`"count":0`, `"summary_text":"No files matched"`, "!paths"}},
		{name: "R217 6.4 glob truncation", tool: "glob", ask: `{"pattern":"docs/*.md","max_results":1}`, want: "ok ok", has: []string{`"count":3`, `"truncated":true`}},
		{name: "6.4 glob inline-vs-blob", before: "mkdir many && cd many && for i in $(seq 100 999); do : >a-name-that-is-longer-than-most-$i; done", tool: "glob", ask: `{"pattern":"many/*","max_results":1000}`, want: "ok ok", has: []string{`"paths":{"blob"`, `"count":900`}},

		{name: "R218 stat", tool: "stat", ask: `{"path":"f"}`, want: "ok ok", has: []string{`"exists":true`, `"is_dir":false`, `"size_bytes":14`, `"mtime_ns":`}},
		{name: "R218 stat of nothing", tool: "stat", ask: `{"path":"nothing"}`, want: "ok not_found path_not_found", has: []string{`"exists":false`}},
		{name: "R219 exists", tool: "exists", ask: `{"path":"nothing"}`, want: "ok ok", has: []string{`"exists":false`}},
		{name: "R220 list_dir", tool: "list_dir", ask: `{"path":"src"}`, want: "ok ok", has: []string{`"text":"deep/\nmain.go\n"`, `"count":2`}},
		{name: "R220 list_dir default", tool: "list_dir", ask: `{"path":"many"}`, want: "ok ok", has: []string{`"count":900`, `"truncated":true`}},
		{name: "R220 list_dir of a file", tool: "list_dir", ask: `{"path":"f"}`, want: "faulted error not_directory"},
		{name: "R221 loops", tool: "grep", ask: `{"pattern":"retries","path":"src"}`, want: "ok ok", has: []string{`"match_count":1`}},
		{name: "R221 a link to itself", tool: "read_file", ask: `{"path":"loop"}`, want: "faulted error invalid_path"},
		{name: "R222 mkdir", tool: "mkdir", ask: `{"path":"made/deep","create_parents":true}`, want: "ok ok", has: []string{`"created":true`}, after: "ls made", sees: "deep\n"},
		{name: "R222 move", tool: "move", ask: `{"path":"f","to":"made/f"}`, want: "ok ok", after: "cat made/f", sees: "one\ntwo\nthree\n"},
		{name: "R222 move over what exists", tool: "move", ask: `{"path":"made/f","to":"twice"}`, want: "ok conflict file_exists"},
		{name: "R222 remove", tool: "remove", ask: `{"path":"made"}`, want: "ok conflict directory_not_empty"},
		{name: "R222 remove all", tool: "remove", ask: `{"path":"made","recursive":true}`, want: "ok ok", has: []string{`"removed":3`}},
		{name: "R223 lines", tool: "read_file", ask: `{"path":"large","start_line":8999,"max_lines":5}`, want: "ok ok", has: []string{`"text":"8999\n9000\n"`, `"first_line":8999`}},
		{name: "R223 expected_sha256", tool: "write_file", ask: `{"path":"twice","expected_sha256":"` + strings.Repeat("0", 64) + `","content":{"inline_text":{"text":"t"}}}`, want: "ok conflict sha256_mismatch", after: "cat twice", sees: "x\nx\n"},
		{name: "R099 a limit that is lowered is told", tool: "grep", ask: `{"pattern":"7","path":"large","max_results":5000}`, want: "ok ok", has: []string{`"clamped":[{"field":"max_results","requested":5000,"effective":1000,"source":"capability"}]`}},
		{name: "part 4, 2: .. and prefixes", before: "mkdir /tmp/work-evil && echo no >/tmp/work-evil/f", tool: "read_file", ask: `{"path":"../work-evil/f"}`, want: "ok not_found path_not_found"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d.row(t, row)
		})
	}
	other := desk{t, c, "s-none"}
	if got, _ := other.use("read_file", `{"path":"f"}`); got != "faulted error session_not_found" {
		t.Errorf("R177, another session: %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "tree", ".stockade-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tree", "large")); err != nil {
		t.Error("what is written to a mount is not there: ", err)
	}
}

// TestFileCapabilities: each of the fifteen capabilities of S3 that file tools have (R094 to R106), granted by a profile, on what a path
// leads to, and none of them where it is absent (R098).
// C20: glob is of class list. S3 §6.4 item 4: each limit when it is set; TestFileRequirements is the baseline, without any.
func TestFileCapabilities(t *testing.T) {
	needRoot(t)
	policy := filepath.Join(shared(t), "policy")
	if err := initPolicy(bin, policy); err != nil {
		t.Fatal(err)
	}
	const write = `{"path":"f","content":{"inline_text":{"text":"1234"}}}`
	patch := `{"patch":{"inline_text":{"text":"` + updateAndAdd + `"}}}`
	const one, two = `denied path_not_allowed`, "cat f; ls -A | grep -c new"
	type row struct {
		name    string
		fs      map[string]any // beside all operations, with nothing bounded
		modes   []string
		tool    string
		ask     string
		want    string
		has     []string
		granted string // what is allowed under the same grant
	}
	blob := func(c *client.Client, content string) string {
		r, err := c.PutBlob(t.Context(), strings.NewReader(content), "")
		if err != nil {
			t.Fatal(err)
		}
		return r.Payload.Blob.BlobRef
	}
	rows := []row{
		{name: "allowed_fs_ops", fs: map[string]any{"ops": []string{"read"}}, tool: "write_file", ask: write, want: "denied fs_op_not_allowed", granted: "read_file"},
		{name: "allowed_fs_ops: glob is list (C20)", fs: map[string]any{"ops": []string{"read", "search"}}, tool: "glob", ask: `{"pattern":"*"}`, want: "denied fs_op_not_allowed", granted: "read_file"},
		{name: "allowed_fs_ops: none (C19)", fs: map[string]any{"ops": []string{}}, tool: "read_file", ask: `{"path":"f"}`, want: "denied fs_op_not_allowed"},
		{name: "fs_roots", fs: map[string]any{"roots": []string{"/work/tree/"}}, tool: "read_file", ask: `{"path":"/work/tree-evil/f"}`, want: one, granted: "read_file"},
		{name: "fs_roots: through a link", fs: map[string]any{"roots": []string{"/work/tree/"}}, tool: "read_file", ask: `{"path":"evil"}`, want: one, granted: "read_file"},
		{name: "fs_roots: ..", fs: map[string]any{"roots": []string{"/work/tree/"}}, tool: "read_file", ask: `{"path":"src/../../tree-evil/f"}`, want: one, granted: "read_file"},
		{name: "fs_roots: grep without a path", fs: map[string]any{"roots": []string{"/work/tree/src/"}}, tool: "grep", ask: `{"pattern":"."}`, want: one},
		{name: "fs_roots: a patch", fs: map[string]any{"roots": []string{"/work/tree/src/"}}, tool: "apply_patch", ask: patch, want: one},
		{name: "fs_roots: none", fs: map[string]any{"roots": []string{}}, tool: "read_file", ask: `{"path":"f"}`, want: one},
		{name: "write roots", fs: map[string]any{"write_roots": []string{"/work/tree/src/"}}, tool: "write_file", ask: write, want: one, granted: "read_file"},
		{name: "max_read_bytes", fs: map[string]any{"max_read_bytes": 3}, tool: "read_file", ask: `{"path":"f","max_bytes":9}`, want: "ok ok", has: []string{`"text":"one"`, `"truncated":true`, `"clamped":[{"field":"max_bytes","requested":9,"effective":3,"source":"capability"}]`}},
		{name: "max_write_bytes", fs: map[string]any{"max_write_bytes": 3}, tool: "write_file", ask: write, want: "denied max_write_bytes_exceeded", granted: "read_file"},
		{name: "max_write_bytes: a blob", fs: map[string]any{"max_write_bytes": 3}, tool: "write_file", ask: `{"path":"f","content":{"blob_ref":{"blob_ref":"BLOB"}}}`, want: "denied max_write_bytes_exceeded"},
		{name: "max_write_bytes: what a patch makes", fs: map[string]any{"max_write_bytes": 3}, tool: "apply_patch", ask: patch, want: "ok forbidden max_write_bytes_exceeded"},
		{name: "max_patch_bytes", fs: map[string]any{"max_patch_bytes": 9}, tool: "apply_patch", ask: patch, want: "denied max_patch_bytes_exceeded"},
		{name: "max_patch_bytes: a blob", fs: map[string]any{"max_patch_bytes": 9}, tool: "apply_patch", ask: `{"patch":{"blob_ref":{"blob_ref":"BLOB"}}}`, want: "denied max_patch_bytes_exceeded"},
		{name: "max_inline_bytes", fs: map[string]any{"max_inline_bytes": 4}, tool: "read_file", ask: `{"path":"f"}`, want: "ok ok", has: []string{`"blob":{`}},
		{name: "max_inline_bytes: required", fs: map[string]any{"max_inline_bytes": 4}, tool: "grep", ask: `{"pattern":"o","path":"f","output_mode":"require_inline"}`, want: "faulted error inline_required_too_large"},
		{name: "max_grep_results", fs: map[string]any{"max_grep_results": 1}, tool: "grep", ask: `{"pattern":"o","path":"f"}`, want: "ok ok", has: []string{`"match_count":2`, `"truncated":true`, `"effective":1`}},
		{name: "max_glob_results", fs: map[string]any{"max_glob_results": 1}, tool: "glob", ask: `{"pattern":"**/*"}`, want: "ok ok", has: []string{`"truncated":true`, `"effective":1`}},
		{name: "max_scan_files", fs: map[string]any{"max_scan_files": 1}, tool: "grep", ask: `{"pattern":"o"}`, want: "ok ok max_scan_files_exceeded", has: []string{`"truncated":true`}},
		{name: "max_scan_bytes", fs: map[string]any{"max_scan_bytes": 5}, tool: "grep", ask: `{"pattern":"o"}`, want: "ok ok max_scan_bytes_exceeded", has: []string{`"truncated":true`}},
		{name: "allowed_patch_formats", fs: map[string]any{"patch_formats": []string{"unified"}}, tool: "apply_patch", ask: patch, want: "denied patch_format_not_allowed"},
		{name: "max_changed_files", fs: map[string]any{"max_changed_files": 1}, tool: "apply_patch", ask: patch, want: "denied max_changed_files_exceeded"},
		{name: "max_edit_replacements", fs: map[string]any{"max_edit_replacements": 1}, tool: "edit_file", ask: `{"path":"f","old_string":"e","new_string":"E","replace_all":true}`, want: "ok forbidden max_edit_replacements_exceeded"},
		{name: "follow_symlinks: deny", fs: map[string]any{"follow_symlinks": "deny"}, tool: "read_file", ask: `{"path":"link"}`, want: one, granted: "read_file"},
		{name: "follow_symlinks: within_root_only", fs: map[string]any{"follow_symlinks": "within_root_only", "roots": []string{"/work/tree/"}}, tool: "read_file", ask: `{"path":"link"}`, want: "ok ok", granted: "read_file"},
		{name: "follow_symlinks: allow", fs: map[string]any{"follow_symlinks": "allow"}, tool: "read_file", ask: `{"path":"evil"}`, want: "ok ok"},
		{name: "allowed_output_modes", modes: []string{"auto"}, tool: "read_file", ask: `{"path":"f","output_mode":"require_inline"}`, want: "ok forbidden output_mode_not_allowed", granted: "read_file"},
		{name: "all absent", tool: "apply_patch", ask: patch, want: "ok ok"},
	}
	shipped, err := os.ReadFile(filepath.Join(policy, "profiles/workspace/data.json"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"workspace"}
	put := func(path string, v any) {
		data, err := json.Marshal(v)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, row := range rows {
		var profile map[string]any
		if err := json.Unmarshal(shipped, &profile); err != nil {
			t.Fatal(err)
		}
		fs := map[string]any{"ops": []string{"read", "write", "edit", "patch", "search", "list", "stat"}}
		maps.Copy(fs, row.fs)
		profile["fs"] = fs
		if row.modes != nil {
			profile["exec"].(map[string]any)["output_modes"] = row.modes
		}
		names = append(names, fmt.Sprint("cap-", i))
		put(filepath.Join(policy, "profiles", names[i+1], "data.json"), profile)
	}
	put(filepath.Join(policy, "principals/data.json"), map[string]any{
		"administrators": []int{0}, "approvers": []int{}, "uid": map[string]any{}, "gid": map[string]any{},
		"default": map[string]any{"profiles": names, "profile": "workspace", "require_scope": []string{}},
	})
	tests, err := filepath.Glob(filepath.Join(policy, "*/*_test.rego"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tests { // they are about the shipped data
		os.Remove(path)
	}
	c := start(t, "--policy", policy).Client()
	ref := blob(c, "more than nine bytes\n")
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := shared(t)
			if err := os.MkdirAll(filepath.Join(dir, "tree/src"), 0o755); err != nil {
				t.Fatal(err)
			}
			open := opened(t, c, func(o *api.SessionOpen) {
				o.Profile, o.Target.Local.Workdir = names[i+1], "/work/tree"
				o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
			})
			d := &desk{t, c, open.SessionID}
			d.row(t, fileRow{
				before: "cd /work && mkdir -p tree-evil && echo canary >tree-evil/f && cd tree && printf 'one\ntwo\nthree\n' | tee f >src/g && ln -s f link && ln -s ../tree-evil/f evil",
				tool:   row.tool, ask: strings.ReplaceAll(row.ask, "BLOB", ref), want: row.want, has: row.has,
			})
			if row.want != "ok ok" {
				if got := text(shell(t, c, d.session, two).Payload.Exec.Stdout); got != "one\ntwo\nthree\n0\n" {
					t.Errorf("what was refused has changed something: %q", got)
				}
			}
			if row.granted != "" {
				if got, _ := d.use(row.granted, `{"path":"f"}`); got != "ok ok" {
					t.Errorf("what is granted: %s", got)
				}
			}
			end(t, c, d.session)
		})
	}
}

func end(t *testing.T, c *client.Client, session string) {
	t.Helper()
	r, err := c.Close(t.Context(), api.SessionClose{SessionID: session, Mode: "force"})
	settled(t, r, err)
}

// TestFileWorkerIsLost: what serves the tools inside dies in the middle: the receipt is a fault with its code, the files are what they were or
// what they were to be, all of them, and the next tool is served (R204, T132, T141).
func TestFileWorkerIsLost(t *testing.T) {
	c := start(t).Client()
	dir := shared(t)
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Limits.MemoryBytes = 48 << 20
		o.Target.Local.Workdir = "/work"
		o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
	})
	d := &desk{t, c, open.SessionID}
	const lost = "faulted error file_worker_lost"

	// Memory: what is in a tmpfs is the session's, and leaves no room for the worker.
	if r := shell(t, c, d.session, "yes old | head -c 2800k >f && head -c 36m /dev/zero >/tmp/full"); r.Payload.Exec.ExitCode != 0 {
		t.Errorf("the tmpfs takes less than is needed: %s", text(r.Payload.Exec.Stderr))
	}
	const nowhere = `{"path":"f","old_string":"nowhere","new_string":"new"}`
	if got, r := d.use("edit_file", nowhere); got != lost || !strings.Contains(r.ErrorMessage, "memory") {
		t.Errorf("without memory: %s (%s)", got, r.ErrorMessage)
	}
	shell(t, c, d.session, "rm /tmp/full")
	if got, _ := d.use("edit_file", nowhere); got != "ok not_found edit_target_not_found" {
		t.Errorf("with memory again: %s", got)
	}

	// A kill at some moment of a patch of 50 files.
	const files = 50
	patch := `{"patch":{"inline_text":{"text":"*** Begin Patch\n`
	for i := range files {
		patch += fmt.Sprintf(`*** Update File: d/%d\n@@\n-old\n+new\n`, i)
	}
	patch += `*** End Patch\n"}}}`
	killed := 0
	for round := range 8 {
		shell(t, c, d.session, fmt.Sprintf("mkdir -p d && for i in $(seq 0 %d); do echo old >d/$i; done", files-1))
		died := make(chan struct{})
		go func() {
			defer close(died)
			// So many names of ours are there: at first none but the journal, in the end all.
			script := fmt.Sprintf("while set -- d/.stockade-*; [ $# -le %d ] || [ ! -e d/.stockade-journal ]; do :; done; kill -KILL -1", round*7)
			c.Exec(t.Context(), api.Exec{SessionID: d.session, Argv: []string{"sh", "-c", script}, TimeoutNS: 3e9})
		}()
		got, r := d.use("apply_patch", patch)
		<-died
		switch got {
		case lost:
			killed++
		case "ok ok":
		default:
			t.Errorf("round %d: %s (%s)", round, got, r.ErrorMessage)
		}
		count := map[string]int{}
		left, err := os.ReadDir(filepath.Join(dir, "d"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			content, err := os.ReadFile(filepath.Join(dir, "d", e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			count[string(content)]++
		}
		if len(left) != files || len(count) != 1 || got == "ok ok" && count["new\n"] != files {
			t.Errorf("round %d (%s): %d files, %.300v", round, got, len(left), count)
		}
		if got, r := d.use("list_dir", `{"path":"d"}`); got != "ok ok" {
			t.Errorf("the next: %s (%s)", got, r.ErrorMessage)
		}
	}
	t.Logf("%d of 8 patches were cut off", killed)
	if killed == 0 {
		t.Error("no patch was cut off")
	}
}

// TestFileWorkerIsNobodys: a command, which has the worker's user, never writes to its memory, not in the moment of its start either: what it
// says is its own. Protection: the worker executes a file that its user may not read.
func TestFileWorkerIsNobodys(t *testing.T) {
	c := start(t).Client()
	probes := shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Mounts = []api.Mount{{HostPath: probes, GuestPath: "/mnt/probe", Mode: "ro"}}
	})
	d := &desk{t, c, open.SessionID}
	answer := make(chan string, 1)
	go func() {
		r, err := c.Exec(t.Context(), api.Exec{SessionID: d.session, Argv: []string{"/mnt/probe/probe", "write-worker", "1"}})
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- strings.TrimSpace(text(r.Payload.Exec.Stdout))
	}()
	served, lost := 0, 0
	for {
		select {
		case got := <-answer:
			if got != "EACCES" {
				t.Errorf("it answers %s", got)
			}
			if t.Logf("served %d times, lost %d times", served, lost); served == 0 {
				t.Error("nothing was served")
			}
			if got, r := d.use("exists", `{"path":"/etc"}`); got != "ok ok" {
				t.Errorf("when nobody kills it any more: %s (%s)", got, r.ErrorMessage)
			}
			return
		default:
		}
		if got, _ := d.use("exists", `{"path":"/etc"}`); got == "ok ok" {
			served++
		} else {
			lost++
		}
	}
}

// fileThreats aim at the file tools (T112 to T151). What needs more than a session has, is shown where it is: a file system hangs that the host has mounted, a session can mount none.
var fileThreats = []threat{
	{id: "T112", what: "paths that climb", shown: "internal/filetool TestLinks"},
	{id: "T113", what: "names that begin like a root", shown: "internal/filetool TestCapabilities"},
	{id: "T114", what: "symbolic links", shown: "internal/filetool TestRaces"},
	{id: "T115", what: "the table of lookups", shown: "internal/filetool/tree TestLeadsWhereTheKernelLeads"},
	{id: "T116", what: "directories and files are exchanged", shown: "internal/filetool TestRaces"},
	{id: "T117", what: "the root is moved", shown: "integration TestFileThreats"},
	{id: "T119", what: "a mount in the workspace", shown: "integration TestFileThreats"},
	{id: "T120", what: "the host's view instead of the session's", shown: "integration TestFileThreats"},
	{id: "T121", what: "what the session's user may not read", shown: "internal/filetool TestOthersFiles"},
	{id: "T123", what: "FIFOs", shown: "internal/filetool TestKindsOfFiles"},
	{id: "T124", what: "sockets and devices", shown: "internal/filetool TestKindsOfFiles"},
	{id: "T126", what: "files without an end", shown: "internal/filetool TestEndlessAndSparseFiles"},
	{id: "T127", what: "sparse files", shown: "internal/filetool TestEndlessAndSparseFiles"},
	{id: "T128", what: "one long line", shown: "internal/filetool TestLongLines"},
	{id: "T129", what: "files that grow and shrink", shown: "integration TestFileThreats"},
	{id: "T130", what: "names of any bytes", shown: "internal/filetool TestNames"},
	{id: "T132", what: "a kill in the middle of a write", shown: "internal/filetool TestFailuresAtEachStep"},
	{id: "T133", what: "the last component is a link", shown: "internal/filetool TestWrites"},
	{id: "T134", what: "a full disk", shown: "internal/filetool TestFullAndReadOnlyFileSystems"},
	{id: "T135", what: "a read-only file system", shown: "internal/filetool TestFullAndReadOnlyFileSystems"},
	{id: "T136", what: "two editors", shown: "internal/filetool TestTwoEditors"},
	{id: "T137", what: "what others plant in a sticky directory", shown: "internal/filetool TestStickyDirectory"},
	{id: "T138", what: "patches as models write them", shown: "internal/filetool TestPatches"},
	{id: "T139", what: "patches that lead out", shown: "internal/filetool TestRaces"},
	{id: "T140", what: "half a patch", shown: "integration TestFileRequirements"},
	{id: "T141", what: "a kill in the middle of a patch", shown: "internal/filetool TestKillAtEachStep"},
	{id: "T142", what: "what patches are careless with", shown: "internal/filetool TestPatches"},
	{id: "T143", what: "patches that are bombs", shown: "internal/filetool/patch TestBombs"},
	{id: "T144", what: "what programs outside would run, by tools", shown: "integration TestFileThreats"},
	{id: "T145", what: "programs of a hostile repository", shown: "integration TestFileThreats"},
	{id: "T146", what: "regular expressions that are bombs", shown: "internal/filetool TestGrepFindsWhatItShould"},
	{id: "T147", what: "loops, binaries, ignored files", shown: "internal/filetool TestRipgrepFindsTheSame"},
	{id: "T148", what: "globs that are bombs", shown: "internal/filetool TestGlobFindsTheSameAsDoublestar"},
	{id: "T149", what: "numbers at their ends", shown: "internal/filetool TestReadRanges"},
	{id: "T151", what: "a file system that does not answer", shown: "integration TestHungFileSystem"},
}

// TestFileThreats: what is around the files is in motion, or made to do harm, and the tools see what commands see (T117, T119, T120, T129, T145);
// T144: of what programs outside would run nothing is changed or made by a tool, either.
func TestFileThreats(t *testing.T) {
	c := start(t).Client()
	outside := shared(t)
	dir := filepath.Join(outside, "work")
	if err := os.MkdirAll(filepath.Join(dir, "tree/.git"), 0o755); err != nil {
		t.Fatal(err)
	}
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Workdir = "/work/tree"
		o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
	})
	d := &desk{t, c, open.SessionID}
	read := func(path string) string {
		_, r := d.use("read_file", fmt.Sprintf(`{"path":%q,"encoding":"bytes"}`, path))
		if r.Payload.File == nil || r.Payload.File.Read == nil || r.Payload.File.Read.Content == nil {
			return ""
		}
		if b := r.Payload.File.Read.Content.InlineBytes; b != nil {
			return string(b.Bytes)
		}
		return r.Payload.File.Read.Content.InlineText.Text
	}
	commands := func(path string) string {
		return text(shell(t, c, d.session, "cat "+path).Payload.Exec.Stdout)
	}

	t.Run("T119 T120 what is mounted inside counts", func(t *testing.T) {
		for _, path := range []string{"/etc/hostname", "/proc/sys/kernel/hostname"} {
			if got, want := read(path), commands(path); got != want {
				t.Errorf("%s: a tool reads %q, a command %q", path, got, want)
			}
		}
	})
	t.Run("T129 a file in motion", func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			shell(t, c, d.session, "i=0; while [ $i -lt 300 ]; do seq 1 20000 >>moving; : >moving; i=$((i+1)); done")
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			for _, ask := range [][2]string{{"read_file", `{"path":"moving"}`}, {"grep", `{"pattern":"77","path":"moving"}`}, {"read_file", `{"path":"moving","start_line":5,"max_lines":3}`}} {
				if got, r := d.use(ask[0], ask[1]); got != "ok ok" && got != "ok not_found path_not_found" && got != "faulted error read_failed" {
					t.Errorf("%s %s: %s (%s)", ask[0], ask[1], got, r.ErrorMessage)
				}
			}
		}
	})
	t.Run("T145 programs of a repository", func(t *testing.T) {
		shell(t, c, d.session, `mkdir -p hooks && printf '#!/bin/sh\ntouch /tmp/ran\n' | tee hooks/run hooks/post-checkout >hooks/pre-commit && chmod +x hooks/*
			printf '* filter=evil\n' >.gitattributes; printf '[core]\n fsmonitor = hooks/run\n hooksPath = hooks\n[filter "evil"]\n clean = hooks/run\n smudge = hooks/run\n' >config; echo x >f`)
		for _, ask := range [][2]string{
			{"read_file", `{"path":"f"}`}, {"write_file", `{"path":"f","content":{"inline_text":{"text":"y\n"}}}`}, {"edit_file", `{"path":"f","old_string":"y","new_string":"z"}`},
			{"grep", `{"pattern":"z","respect_ignore":true}`}, {"glob", `{"pattern":"**/*"}`}, {"list_dir", `{}`}, {"stat", `{"path":"hooks/run"}`},
			{"apply_patch", `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: f\n@@\n-z\n+w\n*** End Patch\n"}}}`}, {"move", `{"path":"f","to":"g"}`}, {"remove", `{"path":"g"}`},
		} {
			if got, r := d.use(ask[0], ask[1]); got != "ok ok" {
				t.Errorf("%s: %s (%s)", ask[0], got, r.ErrorMessage)
			}
		}
		if got, _ := d.use("exists", `{"path":"/tmp/ran"}`); commands("/tmp/ran") != "" || got != "ok ok" {
			t.Error("something of the repository has been executed")
		}
		if r := shell(t, c, d.session, "hooks/run; ls /tmp/ran"); r.Payload.Exec.ExitCode != 0 {
			t.Error("control: it does not run at all")
		}
	})
	t.Run("T144 what programs outside would run", func(t *testing.T) {
		shipped, err := policies.FS.ReadFile("profiles/workspace/data.json")
		if err != nil {
			t.Fatal(err)
		}
		var profile struct {
			Mounts struct {
				Protect map[string]string `json:"protect"`
			} `json:"mounts"`
		}
		if err := json.Unmarshal(shipped, &profile); err != nil || len(profile.Mounts.Protect) < 20 {
			t.Fatalf("%d protected paths: %v", len(profile.Mounts.Protect), err)
		}
		repository := shared(t)
		if err := os.MkdirAll(filepath.Join(repository, ".git/hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repository, ".git/config"), []byte("[core]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		open := opened(t, c, func(o *api.SessionOpen) {
			o.Target.Local.Workdir = "/work/repo"
			o.Target.Local.Mounts = []api.Mount{{HostPath: repository, GuestPath: "/work/repo", Mode: "rw"}}
		})
		d := &desk{t, c, open.SessionID}
		attempts := [][2]string{
			{"write_file", `{"path":"PATH","create_parents":true,"content":{"inline_text":{"text":"pwned"}}}`}, {"write_file", `{"path":"PATH/x","create_parents":true,"content":{"inline_text":{"text":"pwned"}}}`},
			{"write_file", `{"path":"alias","content":{"inline_text":{"text":"pwned"}}}`}, {"write_file", `{"path":"src/../PATH","mode":"create_new","content":{"inline_text":{"text":"pwned"}}}`},
			{"apply_patch", `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: fresh\n+x\n*** Add File: PATH/y\n+pwned\n*** End Patch\n"}}}`},
			{"apply_patch", `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: src/f\n*** Move to: PATH\n@@\n-x\n+pwned\n*** End Patch\n"}}}`},
			{"edit_file", `{"path":"PATH","old_string":"core","new_string":"pwned"}`}, {"move", `{"path":"src/f","to":"PATH","overwrite":true}`}, {"move", `{"path":"PATH","to":"src/g"}`},
			{"mkdir", `{"path":"PATH/d","create_parents":true}`}, {"remove", `{"path":"PATH","recursive":true}`},
		}
		prepare := func(path string) {
			shell(t, c, d.session, "mkdir -p src && echo x >src/f && rm -f alias fresh && ln -s '"+path+"' alias")
		}
		for path := range profile.Mounts.Protect {
			prepare(path)
			for _, a := range attempts {
				got, _ := d.use(a[0], strings.ReplaceAll(a[1], "PATH", path))
				below := strings.Contains(a[1], "PATH/") && strings.HasSuffix(got, " path_not_found") // what stands for a missing file is one
				if !below && !strings.HasSuffix(got, " protected_path") {
					t.Errorf("%s of %s: %s", a[0], path, got)
				}
			}
		}
		for _, ask := range [][2]string{{"move", `{"path":".git","to":"moved"}`}, {"remove", `{"path":".git","recursive":true}`}, {"write_file", `{"path":".git","content":{"inline_text":{"text":"gitdir: src"}}}`}} {
			if got, _ := d.use(ask[0], ask[1]); !strings.HasSuffix(got, " protected_path") && got != "faulted error is_directory" {
				t.Errorf("%s %s: %s", ask[0], ask[1], got)
			}
		}
		for i, a := range attempts { // what is not protected
			shell(t, c, d.session, "rm -rf free")
			prepare("free")
			if i >= 6 {
				shell(t, c, d.session, map[bool]string{true: "echo core >free", false: "mkdir free"}[a[0] == "edit_file" || a[0] == "move"])
			}
			if got, r := d.use(a[0], strings.ReplaceAll(a[1], "PATH", "free")); got != "ok ok" {
				t.Errorf("control: %s of free: %s (%s)", a[0], got, r.ErrorMessage)
			}
		}
		end(t, c, d.session)
		if got, err := os.ReadFile(filepath.Join(repository, ".git/config")); err != nil || string(got) != "[core]\n" {
			t.Errorf(".git/config: %q %v", got, err)
		}
		for path := range profile.Mounts.Protect {
			if path == ".git/config" || path == ".git/hooks" {
				continue
			}
			if _, err := os.Lstat(filepath.Join(repository, path)); !os.IsNotExist(err) {
				t.Errorf("%s is there (%v)", path, err)
			}
		}
	})
	t.Run("T117 the root is moved, and another one in its place", func(t *testing.T) {
		if err := os.Rename(dir, dir+".moved"); err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string]string{"tree/canary": "canary", "tree/f": "theirs"} {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := d.use("write_file", `{"path":"f","content":{"inline_text":{"text":"ours"}}}`); got != "ok ok" {
			t.Error(got)
		}
		if got, _ := d.use("read_file", `{"path":"canary"}`); got != "ok not_found path_not_found" {
			t.Errorf("a canary in the place of the root: %s", got)
		}
		for path, want := range map[string]string{dir: "theirs", dir + ".moved": "ours"} {
			if got, _ := os.ReadFile(filepath.Join(path, "tree/f")); string(got) != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
	})
}

// TestCodingFlow: S3's flow on a real checkout, by file tools and commands in one session: clone from a bundle, read, grep, glob, edit, patch, build, test,
// revert; and again under a policy that lets search and read all of the tree and write below src/ only, where what is elsewhere is refused
// and stays as it was.
// S3 §6.4 item 2: one session, every tool, and denials of what is not granted.
func TestCodingFlow(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("git"); err != nil {
		skip(t, "git is not installed")
	}
	policy := filepath.Join(shared(t), "policy")
	if err := initPolicy(bin, policy); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(policy, "profiles/workspace/data.json")
	shipped, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var narrow map[string]any
	if err := json.Unmarshal(shipped, &narrow); err != nil {
		t.Fatal(err)
	}
	narrow["fs"].(map[string]any)["write_roots"] = []string{"/work/repo/src/"}
	data, err := json.Marshal(narrow)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(policy, "profiles/under-src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(policy, "profiles/under-src/data.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	principals := `{"administrators": [0], "approvers": [], "uid": {}, "gid": {}, "default": {"profiles": ["workspace", "under-src"], "profile": "workspace", "require_scope": []}}`
	if err := os.WriteFile(filepath.Join(policy, "principals/data.json"), []byte(principals), 0o644); err != nil {
		t.Fatal(err)
	}
	c := start(t, "--policy", policy).Client()
	for _, profile := range []string{"workspace", "under-src"} {
		t.Run(profile, func(t *testing.T) {
			dir := shared(t)
			made := exec.Command("sh", "-euc", `mkdir origin && cd origin && git init -q . && mkdir src docs && printf 'int add(int a, int b) { return a - b; }\n' >src/add.h
				printf '#!/bin/sh\nset -e\nmkdir -p out\nsed -n "s/.*return \\(.*\\);.*/\\1/p" src/add.h >out/expr\n' >build.sh
				printf '#!/bin/sh\na=2 b=2\n[ $(($(cat out/expr))) = 4 ] && echo passed\n' >test.sh && printf 'add subtracts\n' >docs/add.md && chmod +x *.sh
				git add . && git -c user.name=a -c user.email=a@example.org commit -qm first && git bundle create -q ../repo.bundle HEAD && cd .. && rm -r origin`)
			made.Dir = dir
			if out, err := made.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			open := opened(t, c, func(o *api.SessionOpen) {
				o.Profile, o.Target.Local.Workdir = profile, "/work"
				o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
			})
			d := &desk{t, c, open.SessionID}
			run := func(script string) (string, int) {
				x := shell(t, c, d.session, script).Payload.Exec
				return text(x.Stdout) + text(x.Stderr), x.ExitCode
			}
			if out, code := run("git clone -q repo.bundle repo"); code != 0 {
				t.Fatal(out)
			}
			if out, code := run("cd repo && ./build.sh && ./test.sh"); code == 0 {
				t.Fatalf("it passes before it is mended: %s", out)
			}
			elsewhere := "ok ok"
			if profile == "under-src" {
				elsewhere = "denied path_not_allowed"
			}
			const fix, doc = `*** Begin Patch\n*** Update File: repo/src/add.h\n@@\n-int add(int a, int b) { return a - b; }\n+int add(int a, int b) { return a + b; }\n*** Add File: repo/src/sub.h\n+int sub(int a, int b) { return a - b; }\n`,
				`*** Update File: repo/docs/add.md\n@@\n-add subtracts\n+add adds\n`
			for _, row := range []fileRow{
				{tool: "read_file", ask: `{"path":"repo/src/add.h"}`, want: "ok ok", has: []string{"return a - b"}},
				{tool: "grep", ask: `{"pattern":"subtract|a - b","path":"repo","glob_filter":"!.git/**"}`, want: "ok ok", has: []string{`repo/docs/add.md:1:add subtracts\nrepo/out/expr:1:a - b\nrepo/src/add.h:1:`, `"match_count":3`}},
				{tool: "grep", ask: `{"pattern":"subtracts","path":"/work"}`, want: "ok ok", has: []string{`repo/docs/add.md:1:add subtracts`}},
				{tool: "glob", ask: `{"pattern":"repo/**/*.h"}`, want: "ok ok", has: []string{`"text":"repo/src/add.h\n"`}},
				{tool: "write_file", ask: `{"path":"repo/notes","content":{"inline_text":{"text":"n\n"}}}`, want: elsewhere},
				{tool: "edit_file", ask: `{"path":"repo/docs/add.md","old_string":"nothing like it","new_string":"x"}`, want: map[string]string{"ok ok": "ok not_found edit_target_not_found"}[elsewhere] + strings.TrimPrefix(elsewhere, "ok ok")},
				{tool: "edit_file", ask: `{"path":"repo/src/add.h","old_string":"a - b","new_string":"a * b"}`, want: "ok ok", after: "cd repo && ./build.sh && ./test.sh", sees: "passed\n"}, // 2 * 2 is 4, too
				{tool: "edit_file", ask: `{"path":"repo/src/add.h","old_string":"a * b","new_string":"a - b"}`, want: "ok ok"},
				{tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"` + fix + doc + `*** End Patch\n"}}}`, want: elsewhere, after: "cat repo/docs/add.md; ls repo/src", sees: map[string]string{"ok ok": "add adds\nadd.h\nsub.h\n", "denied path_not_allowed": "add subtracts\nadd.h\n"}[elsewhere]},
			} {
				d.row(t, row)
			}
			if profile == "under-src" { // all of it was refused; what is below src alone is not
				d.row(t, fileRow{tool: "apply_patch", ask: `{"patch":{"inline_text":{"text":"` + fix + `*** End Patch\n"}}}`, want: "ok ok"})
			}
			if out, code := run("cd repo && ./build.sh && ./test.sh"); code != 0 || out != "passed\n" {
				t.Errorf("mended: %q %d", out, code)
			}
			if out, code := run("cd repo && git checkout -q . && git clean -fdq && git status --porcelain && ./build.sh && ./test.sh"); code == 0 || out != "" {
				t.Errorf("reverted: %q %d", out, code)
			}
			end(t, c, d.session)
		})
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// What each file tool sends, writes and ends with.
func TestFS(t *testing.T) {
	answer := func(r file.Result) api.Receipt {
		out := r.Outcome()
		if out.Status == "" {
			out.Status = file.OK
		}
		return api.Receipt{ErrorCode: api.Code(out.Code), ErrorMessage: out.Message, Payload: api.Payload{File: &r}}
	}
	text := func(s string) *file.Output { return &file.Output{InlineText: &file.InlineText{Text: s}} }
	no := file.Outcome{Status: file.NotFound, Code: file.CodePathNotFound, Message: "nothing is there"}
	two, size := int64(2), int64(7)
	for _, row := range []struct {
		args, stdin string
		op          api.Op
		r           api.Receipt
		status      int
		stdout      string // "*" is the receipt, whole, and nothing else
		stderr      string // a part
		sent        string // a part of the body
	}{
		{"read SESSION a", "", api.OpFileRead, answer(file.Result{Read: &file.ReadResult{Content: text("x\n")}}), 0, "x\n", "", `{"session_id":"SESSION","path":"a","encoding":"bytes"}`},
		{"read --lines 2:4 SESSION a", "", api.OpFileRead, answer(file.Result{Read: &file.ReadResult{Content: text("x\n")}}), 0, "x\n", "", `"start_line":2,"max_lines":3`},
		{"read --lines 4:2 SESSION a", "", api.OpFileRead, api.Receipt{}, exitUsage, "", "FIRST:LAST", ""},
		{"read SESSION a", "", api.OpFileRead, answer(file.Result{Read: &file.ReadResult{Content: text("x"), Truncated: true, SizeBytes: &size, NextOffset: 1}}), 0, "x", "7 bytes; --offset 1", ""},
		{"read SESSION a", "", api.OpFileRead, answer(file.Result{Read: &file.ReadResult{Outcome: no}}), exitFinding, "", "not_found: path_not_found", ""},
		{"read SESSION a", "", api.OpFileRead, api.Receipt{Outcome: api.OutcomeDenied}, exitDenied, "", "denied", ""},
		{"write SESSION a", "new", api.OpFileWrite, answer(file.Result{Write: &file.WriteResult{}}), 0, "", "", `"path":"a","content":{"inline_text":{"text":"new"}}`},
		{"write --new SESSION a", "\xff", api.OpFileWrite, answer(file.Result{Write: &file.WriteResult{}}), 0, "", "", `"content":{"inline_bytes":{"bytes":"/w=="}},"mode":"create_new"`},
		{"write SESSION a", "", api.OpFileWrite, answer(file.Result{Write: &file.WriteResult{Outcome: file.Outcome{Status: file.Forbidden, Code: file.CodePathNotAllowed}}}), exitDenied, "", "path_not_allowed", ""},
		{"edit --all SESSION a x y", "", api.OpFileEdit, answer(file.Result{Edit: &file.EditResult{Summary: "Updated a (2 replacements)"}}), 0, "Updated a (2 replacements)\n", "", `"old_string":"x","new_string":"y","replace_all":true`},
		{"edit SESSION a x y", "", api.OpFileEdit,
			answer(file.Result{Edit: &file.EditResult{Outcome: file.Outcome{Status: file.Ambiguous, Code: file.CodeAmbiguous}, Candidates: []file.Candidate{{Line: 3, Text: "x = 1"}}}}),
			exitFinding, "", "line 3: x = 1", ""},
		{"patch --dry-run SESSION", "*** Begin", api.OpFilePatch, answer(file.Result{Patch: &file.PatchResult{ChangedPaths: []string{"a", "b"}, Summary: "done"}}), 0, "a\nb\ndone\n", "", `"dry_run":true`},
		{"grep -i -C SESSION x", "", api.OpFileGrep, api.Receipt{}, exitUsage, "", "", ""},
		{"grep -i SESSION x src", "", api.OpFileGrep, answer(file.Result{Grep: &file.GrepResult{Matches: text("src/a:1:X\n"), MatchCount: &two, Truncated: true}}), 0, "src/a:1:X\n", "2 in all", `"path":"src","pattern":"x","case_insensitive":true`},
		{"grep SESSION x", "", api.OpFileGrep, answer(file.Result{Grep: &file.GrepResult{}}), exitFinding, "", "", ""},
		{"grep --json SESSION x", "", api.OpFileGrep, answer(file.Result{Grep: &file.GrepResult{Summary: "No matches found"}}), exitFinding, "*", "", ""},
		{"glob --json SESSION x", "", api.OpFileGlob, answer(file.Result{Glob: &file.GlobResult{Summary: "No files matched"}}), exitFinding, "*", "", ""},
		{"glob SESSION x", "", api.OpFileGlob, answer(file.Result{Glob: &file.GlobResult{}}), exitFinding, "", "", ""},
		{"ls --json SESSION", "", api.OpFileList, answer(file.Result{List: &file.ListResult{}}), 0, "*", "", ""},
		{"read --json SESSION a", "", api.OpFileRead, answer(file.Result{Read: &file.ReadResult{Outcome: no}}), exitFinding, "*", "not_found: path_not_found", ""},
		{"write --json SESSION a", "", api.OpFileWrite, answer(file.Result{Write: &file.WriteResult{Outcome: file.Outcome{Status: file.Forbidden, Code: file.CodePathNotAllowed}}}), exitDenied, "*", "path_not_allowed", ""},
		{"edit --json SESSION a x y", "", api.OpFileEdit, answer(file.Result{Edit: &file.EditResult{Summary: "Updated a (1 replacement)"}}), 0, "*", "", ""},
		{"patch --json SESSION", "*** Begin", api.OpFilePatch, answer(file.Result{Patch: &file.PatchResult{Summary: "done"}}), 0, "*", "", ""},
		{"stat --json SESSION a", "", api.OpFileStat, answer(file.Result{Stat: &file.StatResult{Kind: "file"}}), 0, "*", "", ""},
		{"mv --json SESSION a b", "", api.OpFileMove, answer(file.Result{Change: &file.ChangeResult{}}), 0, "*", "", ""},
		{"rm --json SESSION a", "", api.OpFileRemove, answer(file.Result{Change: &file.ChangeResult{}}), 0, "*", "", ""},
		{"mkdir --json SESSION a", "", api.OpFileMkdir, answer(file.Result{Change: &file.ChangeResult{}}), 0, "*", "", ""},
		{"glob SESSION **", "", api.OpFileGlob, answer(file.Result{Glob: &file.GlobResult{Paths: text("a\n")}}), 0, "a\n", "", `"pattern":"**"`},
		{"ls SESSION", "", api.OpFileList, answer(file.Result{List: &file.ListResult{}}), 0, "", "", ""},
		{"stat SESSION a", "", api.OpFileStat, answer(file.Result{Stat: &file.StatResult{Kind: "file", Mode: 0o644, Path: "/w/a", SizeBytes: &size}}), 0, "file 0644 0:0 7 /w/a\n", "", ""},
		{"mv --overwrite SESSION a b", "", api.OpFileMove, answer(file.Result{Change: &file.ChangeResult{}}), 0, "", "", `"path":"a","to":"b","overwrite":true`},
		{"rm -r SESSION a", "", api.OpFileRemove, answer(file.Result{Change: &file.ChangeResult{}}), 0, "", "", `"recursive":true`},
		{"mkdir -p SESSION a/b", "", api.OpFileMkdir, answer(file.Result{Change: &file.ChangeResult{}}), 0, "", "", `"create_parents":true`},
	} {
		f := newFake(t)
		f.does(row.op, row.r)
		named := strings.NewReplacer("SESSION", sessionOne)
		got := f.run(t, row.stdin, append([]string{"fs"}, strings.Fields(named.Replace(row.args))...)...)
		if row.stdout == "*" {
			var r api.Receipt
			if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || r.Payload.File == nil || r.Payload.File.Outcome().Status != row.r.Payload.File.Outcome().Status {
				t.Errorf("%s: %v in %s", row.args, err, got.stdout)
			}
			got.stdout = "*"
		}
		if got.status != row.status || got.stdout != row.stdout || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%s: %+v, want %d %q %q", row.args, got, row.status, row.stdout, row.stderr)
		}
		if row.sent != "" && len(f.said(string(row.op), named.Replace(row.sent))) != 1 {
			t.Errorf("%s: sent %q, want %s", row.args, f.calls, row.sent)
		}
	}
}

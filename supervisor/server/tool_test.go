package server

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

// judging is a policy that says no to what has the word forbidden in it, and lets tools write to /memories.
func judging(t testing.TB) func(*supervisor.Config) {
	t.Helper()
	files := maps.Clone(policy)
	open := bytes.Replace(policy["open.rego"].Data, []byte(`"write_roots": ["/tmp/src/"]`), []byte(`"write_roots": ["/tmp/src/", "/memories/"]`), 1)
	files["open.rego"] = &fstest.MapFile{Data: open}
	for name, what := range map[string]string{
		"exec":   "some word in input.request.exec.argv",
		"fs":     `some word in [json.marshal(input.request.file)]`,
		"signal": `word := json.marshal(object.get(input.request, "input", {}))`,
	} {
		files[name+".rego"] = &fstest.MapFile{Data: []byte("package stockade." + name + `
default decision := {"allow": true, "deny": [], "warn": []}
decision := {"allow": false, "deny": [{"code": "house_rule", "subject": "` + name + `", "message": "the house does not allow it"}], "warn": []} if {
	` + what + `
	contains(word, "forbidden")
}`)}
	}
	engine, err := rego.Load(files, rego.Options{Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *supervisor.Config) { c.Policy = engine }
}

// model is a model that calls tools in a session.
type model struct {
	*box
	t       *testing.T
	profile string
	session string
	calls   int
}

// call calls a tool with arguments, and returns the answer and the text that the model is shown.
func (m *model) call(tool, args string) (*api.ToolAnswer, string) {
	m.t.Helper()
	m.calls++
	id := "call-" + strconv.Itoa(m.calls)
	wire := map[string]string{
		"openai":    `{"type":"function_call","call_id":"` + id + `","name":"` + tool + `","arguments":` + quoted(args) + `}`,
		"codex":     `{"type":"function_call","call_id":"` + id + `","name":"` + tool + `","arguments":` + quoted(args) + `}`,
		"anthropic": `{"type":"tool_use","id":"` + id + `","name":"` + tool + `","input":` + args + `}`,
		"gemini":    `{"functionCall":{"id":"` + id + `","name":"` + tool + `","args":` + args + `}}`,
	}[m.profile]
	a, err := m.CallTool(m.t.Context(), api.ToolCall{Profile: m.profile, SessionID: m.session, Call: jsontext.Value(wire)})
	if err != nil {
		m.t.Fatalf("%s %s: %v", tool, args, err)
	}
	return a, m.shown(a, id, tool)
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// shown is the text of a result in the provider's form, every member of which is checked.
func (m *model) shown(a *api.ToolAnswer, id, tool string) string {
	m.t.Helper()
	strict := json.RejectUnknownMembers(true)
	var text string
	var err error
	good := false
	switch m.profile {
	case "openai", "codex":
		var r struct {
			Type   string `json:"type"`
			CallID string `json:"call_id"`
			Output string `json:"output"`
		}
		err = json.Unmarshal(a.Result, &r, strict)
		text, good = r.Output, r.Type == "function_call_output" && r.CallID == id
	case "anthropic":
		var r struct {
			Type    string `json:"type"`
			ID      string `json:"tool_use_id"`
			IsError bool   `json:"is_error"`
			Content []struct{ Type, Text string }
		}
		err = json.Unmarshal(a.Result, &r, json.MatchCaseInsensitiveNames(true))
		good = r.Type == "tool_result" && r.ID == id && r.IsError == !a.OK
		for _, c := range r.Content {
			text, good = text+c.Text, good && c.Type == "text" && c.Text != ""
		}
	case "gemini":
		var r struct {
			R struct {
				ID       string            `json:"id"`
				Name     string            `json:"name"`
				Response map[string]string `json:"response"`
			} `json:"functionResponse"`
		}
		err = json.Unmarshal(a.Result, &r, strict)
		member := map[bool]string{true: "output", false: "error"}[a.OK]
		text, good = r.R.Response[member], r.R.ID == id && r.R.Name == tool && len(r.R.Response) == 1
	}
	if err != nil || !good {
		m.t.Errorf("%s: a result that is none: %s (%v)", tool, a.Result, err)
	}
	return text
}

// Each tool of each profile, over the socket and through the pipeline: what it does when it can, what it says when policy does not let
// it, when it cannot, and when there is more than it shows (R224). Not one of them says that it did what it did not.
func TestTools(t *testing.T) {
	for _, row := range toolRows {
		if _, err := tools.Named(row.profile); err != nil {
			t.Error(err)
		}
	}
	for _, profile := range tools.Names() {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, Options{}, judging(t))
			src := filepath.Join(b.fake.files, "tmp/src")
			if err := os.MkdirAll(src, 0o777); err != nil {
				t.Fatal(err)
			}
			many := filepath.Join(b.fake.files, "tmp/many")
			if err := os.Mkdir(many, 0o777); err != nil {
				t.Fatal(err)
			}
			for i := range 1100 {
				if err := os.WriteFile(filepath.Join(many, strconv.Itoa(i)), nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			m := &model{box: b, t: t, profile: profile, session: b.open(t)}
			for _, kind := range []string{"does", "denied", "fails", "cut"} {
				for name, p := range seen(profile) {
					if kind == "cut" && !p.cuts || name == "write_stdin" { // which has a test of its own
						continue
					}
					if !slices.ContainsFunc(toolRows, func(r toolRow) bool { return r.profile == profile && r.tool == name && r.kind == kind }) {
						t.Errorf("no row in which %s %s", name, kind)
					}
				}
			}
			if err := os.MkdirAll(filepath.Join(b.fake.files, "memories/old"), 0o777); err != nil {
				t.Fatal(err)
			}
			for i, row := range toolRows {
				if row.profile != profile {
					continue
				}
				for name, content := range map[string]string{"a.go": "package a\n\nfunc A() {}\n", "b.txt": "one\ntwo\ntwo\n", "long.txt": strings.Repeat("word after word\n", 20_000)} {
					if err := os.WriteFile(filepath.Join(src, name), []byte(content), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				before := tree(t, src)
				a, text := m.call(row.tool, row.args)
				problem := func(format string, args ...any) {
					t.Errorf("row %d, %s %.200s: %s\n%+v\n%.2000s", i, row.tool, row.args, fmt.Sprintf(format, args...), a.Status, text)
				}
				if ok := row.kind == "does" || row.kind == "cut"; a.OK != ok {
					problem("ok is %v", a.OK)
				} else if !ok && a.ErrorCode != row.code {
					problem("code %s, want %s", a.ErrorCode, row.code)
				}
				if row.kind == "denied" && (a.Status != "denied" || len(a.Deny) != 1 || !strings.Contains(text, "house_rule") || !strings.Contains(text, "the house does not allow it")) {
					problem("the denial is not told: %+v", a.Deny)
				}
				if !a.OK && !strings.Contains(text, string(a.ErrorCode)) {
					problem("the code is not told")
				}
				if !a.OK && !strings.Contains(text, "Error") {
					problem("it does not look like an error")
				}
				if a.Truncated != (row.kind == "cut") {
					problem("truncated is %v", a.Truncated)
				}
				if !strings.Contains(text, row.shows) {
					problem("it does not show %q", row.shows)
				}
				if row.kind == "cut" && int64(len(text)) > 50_000 {
					problem("%d bytes are shown", len(text))
				}
				if _, next, found := strings.Cut(text, "320000 bytes; "); found { // what goes on is the line behind the last
					var last, follows int
					lines := strings.Split(text[:len(text)-len(next)], "\n")
					fmt.Sscanf(strings.TrimLeft(lines[len(lines)-2], "L "), "%d", &last)
					if _, err := fmt.Sscanf(strings.TrimLeft(next, "abcdefghijklmnopqrstuvwxyz_ ["), "%d", &follows); err != nil || last != 0 && follows != last+1 {
						problem("line %d follows %d: %v", follows, last, err)
					}
				}
				if row.kind != "does" && tree(t, src) != before {
					problem("and yet something has changed")
				}
				for _, r := range a.Receipts {
					kept, err := b.Receipt(t.Context(), r.IntentID)
					if err != nil || kept.Outcome != r.Outcome || r.SessionID != "" && r.SessionID != m.session {
						problem("receipt %s: %v", r.IntentID, err)
					}
				}
				if len(a.Receipts) == 0 && row.receipts {
					problem("there is no receipt")
				}
			}
		})
	}
}

// seen are the tools of a profile; cuts says that a tool shows what can be long.
func seen(profile string) map[string]struct{ cuts bool } {
	p, err := tools.Named(profile)
	if err != nil {
		panic(err)
	}
	out := map[string]struct{ cuts bool }{}
	for _, t := range p.Tools {
		changes := slices.Contains([]string{"apply_patch", "write_file", "replace", "memory"}, t.Name)
		out[t.Name] = struct{ cuts bool }{!changes}
	}
	return out
}

// tree is what the files are.
func tree(t *testing.T, dir string) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%s %q\n", name, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type toolRow struct {
	profile, tool, kind string // does, denied, fails, cut
	args                string
	code                api.Code
	shows               string // to the model
	receipts            bool
}

const flood = `yes something | head -c 3000000`

var toolRows = []toolRow{
	{"openai", "shell", "does", `{"command":["bash","-c","echo out; echo err >&2; exit 3"],"workdir":"/tmp"}`, "", `"exit_code":3`, true},
	{"openai", "shell", "does", `{"command":["echo","hello"],"timeout_ms":null}`, "", `{"output":"hello\n","metadata":{"exit_code":0`, true},
	{"openai", "shell", "denied", `{"command":["forbidden"]}`, "house_rule", "", true},
	{"openai", "shell", "fails", `{"command":[]}`, "argv_empty", "", true},
	{"openai", "shell", "fails", `{"command":["bash","-c","sleep 60"],"timeout_ms":300}`, "timeout", "ran out of time", true},
	{"openai", "shell", "cut", `{"command":["bash","-c","` + flood + `"]}`, "", "bytes left out", true},
	{"openai", "shell_command", "does", `{"command":"echo $((6*7)); exit 4"}`, "", "Exit code: 4\nWall time:", true},
	{"openai", "shell_command", "denied", `{"command":"forbidden"}`, "house_rule", "", true},
	{"openai", "shell_command", "fails", `{"command":"true","workdir":"a\u0000b"}`, "invalid_cwd", "", true},
	{"openai", "shell_command", "cut", `{"command":"` + flood + `"}`, "", "bytes left out", true},
	{"openai", "apply_patch", "does", `{"input":"*** Begin Patch\n*** Update File: src/a.go\n@@\n-func A() {}\n+func B() {}\n*** End Patch\n"}`, "", "Success. Updated the following files:\nM ", true},
	{"openai", "apply_patch", "denied", `{"input":"*** Begin Patch\n*** Add File: src/forbidden\n+x\n*** End Patch\n"}`, "house_rule", "", true},
	{"openai", "apply_patch", "fails", `{"input":"*** Begin Patch\n*** Update File: src/a.go\n@@\n-func Z() {}\n+func B() {}\n*** End Patch\n"}`, "hunk_rejected", "expected:\n      func Z() {}", true},
	{"openai", "apply_patch", "fails", `{"input":"*** Begin Patch\n*** Add File: elsewhere\n+x\n*** End Patch\n"}`, "path_forbidden", `fs.write_roots = ["/tmp/src/","/memories/"]`, true},
	{"openai", "apply_patch", "fails", `{"input":"no patch"}`, "patch_parse_error", "", true},
	{"openai", "read_file", "does", `{"file_path":"src/b.txt","offset":2,"limit":2}`, "", "L2: two\nL3: two\n", true},
	{"openai", "read_file", "denied", `{"file_path":"src/forbidden"}`, "house_rule", "", true},
	{"openai", "read_file", "fails", `{"file_path":"src/nothing"}`, "path_not_found", "", true},
	{"openai", "read_file", "fails", `{"file_path":"src"}`, "is_directory", "", true},
	{"openai", "read_file", "cut", `{"file_path":"src/long.txt","limit":1000000}`, "", "the file has 320000 bytes; offset ", true},
	{"openai", "write_file", "does", `{"file_path":"src/new/c.txt","content":"x"}`, "", "Created src/new/c.txt.", true},
	{"openai", "write_file", "does", `{"file_path":"src/b.txt","content":"x"}`, "", "Overwrote src/b.txt.", true},
	{"openai", "write_file", "denied", `{"file_path":"src/b.txt","content":"forbidden"}`, "house_rule", "", true},
	{"openai", "write_file", "fails", `{"file_path":"b.txt","content":"x"}`, "path_not_allowed", `allowed: fs.write_roots = ["/tmp/src/","/memories/"]`, true},
	{"openai", "list_dir", "does", `{"dir_path":"src"}`, "", "a.go\nb.txt\nlong.txt\n", true},
	{"openai", "list_dir", "denied", `{"dir_path":"forbidden"}`, "house_rule", "", true},
	{"openai", "list_dir", "fails", `{"dir_path":"src/a.go"}`, "not_directory", "", true},
	{"openai", "list_dir", "cut", `{"dir_path":"src","offset":1,"limit":1}`, "", "a.go\n[truncated: ", true},
	{"openai", "grep_files", "does", `{"pattern":"tw.","include":"*.txt"}`, "", "src/b.txt\n", true},
	{"openai", "grep_files", "denied", `{"pattern":"forbidden"}`, "house_rule", "", true},
	{"openai", "grep_files", "fails", `{"pattern":"("}`, "invalid_regex", "", true},
	{"openai", "grep_files", "cut", `{"pattern":"o","limit":1}`, "", "matches in all", true},
	{"openai", "glob", "does", `{"pattern":"src/*.go"}`, "", "src/a.go", true},
	{"openai", "glob", "does", `{"pattern":"*.rs"}`, "", "No files found.", true},
	{"openai", "glob", "denied", `{"pattern":"forbidden*"}`, "house_rule", "", true},
	{"openai", "glob", "cut", `{"pattern":"many/*"}`, "", "1100 files in all", true},
	{"openai", "glob", "fails", `{"pattern":"[","path":"src"}`, "invalid_pattern", "", true},
	{"openai", "no_such_tool", "fails", `{}`, "unknown_tool", "apply_patch", false},

	{"codex", "exec_command", "does", `{"cmd":"echo out; exit 3","login":false}`, "", "Process exited with code 3\nOutput:\nout\n", true},
	{"codex", "exec_command", "denied", `{"cmd":"forbidden"}`, "house_rule", "", true},
	{"codex", "exec_command", "fails", `{"cmd":"id","sandbox_permissions":"require_escalated","justification":"please"}`, "escalation_not_allowed", "", false},
	{"codex", "exec_command", "fails", `{"cmd":"id","sandbox_permissions":"with_additional_permissions","additional_permissions":{"network":{"enabled":true}}}`, "escalation_not_allowed", "", false},
	{"codex", "exec_command", "fails", `{"cmd":"id","sandbox_permissions":"all"}`, "invalid_params", "use_default, require_escalated", false},
	{"codex", "exec_command", "cut", `{"cmd":"` + flood + `","max_output_tokens":100}`, "", "bytes left out", true},
	{"codex", "write_stdin", "fails", `{"session_id":12345,"chars":"x"}`, "exec_not_found", "12345", false},
	{"codex", "apply_patch", "does", `{"input":"*** Begin Patch\n*** Delete File: src/b.txt\n*** End Patch\n"}`, "", "\nD /tmp/src/b.txt\n", true},
	{"codex", "apply_patch", "denied", `{"input":"*** Begin Patch\n*** Delete File: src/forbidden\n*** End Patch\n"}`, "house_rule", "", true},
	{"codex", "apply_patch", "fails", `{"input":"*** Begin Patch\n*** Delete File: src/nothing\n*** End Patch\n"}`, "delete_target_not_found", "", true},
	{"codex", "read_file", "does", `{"file_path":"src/a.go"}`, "", "L1: package a\n", true},
	{"codex", "read_file", "denied", `{"file_path":"src/forbidden"}`, "house_rule", "", true},
	{"codex", "read_file", "fails", `{"file_path":"../../nothing"}`, "path_not_found", "", true},
	{"codex", "read_file", "cut", `{"file_path":"src/long.txt","offset":1000,"limit":500000}`, "", "the file has 320000 bytes; offset ", true},
	{"codex", "list_dir", "does", `{"dir_path":"src","offset":2}`, "", "b.txt\nlong.txt\n", true},
	{"codex", "list_dir", "denied", `{"dir_path":"forbidden"}`, "house_rule", "", true},
	{"codex", "list_dir", "fails", `{"dir_path":"nothing"}`, "path_not_found", "", true},
	{"codex", "list_dir", "cut", `{"dir_path":"src","limit":2}`, "", "3 entries in all", true},
	{"codex", "grep_files", "does", `{"pattern":"nowhere"}`, "", "No matches found.", true},
	{"codex", "grep_files", "denied", `{"pattern":"x","path":"forbidden"}`, "house_rule", "", true},
	{"codex", "grep_files", "fails", `{"pattern":"x","include":"["}`, "invalid_glob_filter", "", true},
	{"codex", "grep_files", "cut", `{"pattern":"w","limit":1}`, "", "in all", true},

	{"anthropic", "bash", "does", `{"command":"cd src && V=7; echo in; echo err >&2"}`, "", "in\nerr", true},
	{"anthropic", "bash", "does", `{"command":"basename $PWD; echo $V; (exit 5)"}`, "", "src\n7\n[exit status 5]", true},
	{"anthropic", "bash", "does", `{"command":"cat; printf unended"}`, "", "unended", true},
	{"anthropic", "bash", "denied", `{"command":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "bash", "fails", `{}`, "invalid_params", "command is missing", false},
	{"anthropic", "bash", "fails", `{"command":"echo early; sleep 60","timeout_ms":400}`, "timeout", "early\n", true},
	{"anthropic", "bash", "does", `{"command":"echo new: $V"}`, "", "new:", true},
	{"anthropic", "bash", "fails", `{"command":"echo gone; exit 6"}`, "exec_ended", "the shell ended with status 6", true},
	{"anthropic", "bash", "does", `{"command":"set | grep -a __mark; for i in 1 2 3; do echo; echo \"$__mark\"; echo \"$__mark 0 \"; done; echo $?"}`, "", " 0 \n0", true},
	{"anthropic", "bash", "does", `{"command":"printf() { :; }; continue"}`, "", "", true},
	{"anthropic", "bash", "does", `{"command":"exec 3>&1 4>&1; echo still; unset -f printf"}`, "", "still", true},
	{"anthropic", "bash", "does", `{"command":"f() { echo from f; }; declare -A m=([k]=v); set -u"}`, "", "", true},
	{"anthropic", "bash", "does", `{"command":"f; echo ${m[k]}; set +u; cat <<EOF\n'quoted' \"text\"\nEOF"}`, "", "from f\nv\n'quoted' \"text\"", true},
	{"anthropic", "bash", "does", `{"command":"if true; then"}`, "", "syntax error", true},
	{"anthropic", "bash", "fails", `{"command":"break"}`, "exec_ended", "another", true},
	{"anthropic", "bash", "does", `{"command":"true"}`, "", "", true},
	{"anthropic", "bash", "does", `{"restart":true}`, "", "restarted", true},
	{"anthropic", "bash", "cut", `{"command":"` + flood + `"}`, "", "bytes left out", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"view","path":"src/b.txt","view_range":[2,-1]}`, "", "     2\ttwo\n     3\ttwo\n", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"view","path":"src"}`, "", "The names in src:\na.go\n", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"create","path":"src/deep/new.txt","file_text":"x\n"}`, "", "File created successfully at: src/deep/new.txt", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"str_replace","path":"src/a.go","old_str":"A()","new_str":"B()"}`, "", "has been edited", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"insert","path":"src/b.txt","insert_line":1,"insert_text":"between"}`, "", "behind line 1", true},
	{"anthropic", "str_replace_based_edit_tool", "does", `{"command":"insert","path":"src/b.txt","insert_line":0,"new_str":"top\n"}`, "", "behind line 0", true},
	{"anthropic", "str_replace_based_edit_tool", "denied", `{"command":"create","path":"src/x","file_text":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "str_replace_based_edit_tool", "denied", `{"command":"view","path":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"view","path":"src/nothing"}`, "path_not_found", "File not found.", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"str_replace","path":"src/a.go","old_str":"Q()","new_str":"B()"}`, "edit_target_not_found", "No match found for replacement.", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"str_replace","path":"src/b.txt","old_str":"two","new_str":"B()"}`, "ambiguous_matches", "line 3: two", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"str_replace","path":"src/a.go","old_str":"func  A()","new_str":"B()"}`, "edit_target_not_found", "", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"insert","path":"src/b.txt","insert_line":9,"insert_text":"x"}`, "invalid_params", "from 0 to 3", true},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"insert","path":"src/b.txt","insert_line":1}`, "invalid_params", "insert_text", false},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"create","path":"src/x"}`, "invalid_params", "file_text", false},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"view","path":"src/b.txt","old_str":"x"}`, "invalid_params", "belongs to str_replace", false},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"view","path":"src/b.txt","view_range":[0,2]}`, "invalid_params", "", false},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"undo_edit","path":"src/b.txt"}`, "invalid_params", "view, create, str_replace, insert", false},
	{"anthropic", "str_replace_based_edit_tool", "fails", `{"command":"create","path":"top.txt","file_text":"x"}`, "path_not_allowed", "fs.write_roots", true},
	{"anthropic", "str_replace_based_edit_tool", "cut", `{"command":"view","path":"src/long.txt"}`, "", "-1] goes on", true},
	{"anthropic", "memory", "does", `{"command":"create","path":"/memories/plan/a.txt","file_text":"one\ntwo\n"}`, "", "File created successfully at: /memories/plan/a.txt", true},
	{"anthropic", "memory", "fails", `{"command":"create","path":"/memories/plan/a.txt","file_text":"three\n"}`, "file_exists", "", true},
	{"anthropic", "memory", "does", `{"command":"str_replace","path":"/memories/plan/a.txt","old_str":"two","new_str":"2"}`, "", "has been edited", true},
	{"anthropic", "memory", "does", `{"command":"insert","path":"/memories/plan/a.txt","insert_line":1,"insert_text":"between\n"}`, "", "behind line 1", true},
	{"anthropic", "memory", "does", `{"command":"rename","old_path":"/memories/plan/a.txt","new_path":"/memories/b.txt"}`, "", "Successfully renamed /memories/plan/a.txt to /memories/b.txt", true},
	{"anthropic", "memory", "does", `{"command":"view","path":"/memories/b.txt","view_range":[2,3]}`, "", "     2\tbetween\n     3\t2\n", true},
	{"anthropic", "memory", "does", `{"command":"delete","path":"/memories/plan"}`, "", "Successfully deleted /memories/plan", true},
	{"anthropic", "memory", "does", `{"command":"view","path":"/memories"}`, "", "The names in /memories:\nb.txt\nold/\n", true},
	{"anthropic", "memory", "denied", `{"command":"create","path":"/memories/c.txt","file_text":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "memory", "fails", `{"command":"rename","old_path":"/memories/b.txt","new_path":"/memories/old"}`, "file_exists", "", true},
	{"anthropic", "memory", "fails", `{"command":"view","path":"/memories/plan/a.txt"}`, "path_not_found", "File not found.", true},
	{"anthropic", "memory", "fails", `{"command":"view","path":"/memories/../tmp/src/b.txt"}`, "invalid_params", "path is not below /memories", false},
	{"anthropic", "memory", "fails", `{"command":"delete","path":"/memories-evil"}`, "invalid_params", "path is not below /memories", false},
	{"anthropic", "memory", "fails", `{"command":"delete","path":"/memories/"}`, "invalid_params", "itself stays", false},
	{"anthropic", "memory", "fails", `{"command":"rename","old_path":"/memories/b.txt","new_path":"/tmp/src/b.txt"}`, "invalid_params", "new_path is not below /memories", false},
	{"anthropic", "memory", "fails", `{"command":"view"}`, "invalid_params", "view needs path", false},
	{"anthropic", "memory", "fails", `{"command":"delete","path":"/memories/b.txt","file_text":"x"}`, "invalid_params", "belongs to create", false},
	{"anthropic", "glob", "does", `{"pattern":"**/*.go"}`, "", "src/a.go", true},
	{"anthropic", "glob", "denied", `{"pattern":"x","path":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "glob", "cut", `{"pattern":"*","path":"many"}`, "", "1100 files in all", true},
	{"anthropic", "glob", "fails", `{"pattern":"x","path":"nothing"}`, "path_not_found", "", true},
	{"anthropic", "grep", "does", `{"pattern":"TWO","-i":true,"output_mode":"content","path":"src","-n":true}`, "", "b.txt:2:two\n", true},
	{"anthropic", "grep", "does", `{"pattern":"func A","path":"src"}`, "", "a.go\n", true},
	{"anthropic", "grep", "denied", `{"pattern":"forbidden"}`, "house_rule", "", true},
	{"anthropic", "grep", "fails", `{"pattern":"("}`, "invalid_regex", "", true},
	{"anthropic", "grep", "fails", `{"pattern":"x","output_mode":"count"}`, "invalid_params", "", false},
	{"anthropic", "grep", "cut", `{"pattern":"word","output_mode":"content","head_limit":50000}`, "", "", true}, // all of it is there, as a blob that is too long to be shown
	{"anthropic", "grep", "cut", `{"pattern":"word","output_mode":"content","head_limit":3}`, "", "20000 matches in all", true},

	{"gemini", "run_shell_command", "does", `{"command":"echo out; exit 3","description":"say","dir_path":"/tmp"}`, "", "Output: out\n\nExit Code: 3", true},
	{"gemini", "run_shell_command", "denied", `{"command":"forbidden"}`, "house_rule", "", true},
	{"gemini", "run_shell_command", "fails", `{"command":"true","dir_path":"no\u0000where"}`, "invalid_cwd", "", true},
	{"gemini", "run_shell_command", "cut", `{"command":"` + flood + `"}`, "", "bytes left out", true},
	{"gemini", "read_file", "does", `{"file_path":"src/b.txt","start_line":2.0,"end_line":2}`, "", "two\n", true},
	{"gemini", "read_file", "denied", `{"file_path":"forbidden"}`, "house_rule", "", true},
	{"gemini", "read_file", "fails", `{"file_path":"nothing"}`, "path_not_found", "File not found.", true},
	{"gemini", "read_file", "fails", `{"file_path":"src/b.txt","start_line":3,"end_line":2}`, "invalid_params", "", false},
	{"gemini", "read_file", "cut", `{"file_path":"src/long.txt"}`, "", "start_line 2501 goes on", true},
	{"gemini", "run_shell_command", "fails", `{"command":"id","additional_permissions":{"network":true}}`, "escalation_not_allowed", "", false},
	{"gemini", "read_many_files", "does", `{"include":["SRC/*.go","src/b.txt"]}`, "", "--- src/a.go ---\n\npackage a\n\nfunc A() {}\n\n\n--- src/b.txt ---\n\none\ntwo\ntwo\n\n\n\n--- End of content ---", true},
	{"gemini", "read_many_files", "does", `{"paths":["src"],"exclude":["**/long*"],"recursive":false}`, "", "two\n\n\n\n--- End of content ---", true},
	{"gemini", "read_many_files", "does", `{"include":["src/*.none"]}`, "", "No files matching the criteria were found", true},
	{"gemini", "read_many_files", "denied", `{"include":["forbidden"]}`, "house_rule", "", true},
	{"gemini", "read_many_files", "fails", `{"include":["["]}`, "invalid_pattern", "", true},
	{"gemini", "read_many_files", "fails", `{"include":["src/*"],"exclude":["["]}`, "invalid_pattern", "", false},
	{"gemini", "read_many_files", "fails", `{"exclude":["src"]}`, "invalid_params", "include names no files", false},
	{"gemini", "read_many_files", "cut", `{"include":["src"]}`, "", "[truncated: src/long.txt has 320000 bytes]", true},
	{"gemini", "read_many_files", "cut", `{"include":["many"]}`, "", "for want of room", true},
	{"gemini", "write_file", "does", `{"file_path":"src/x/y","content":""}`, "", "Successfully created", true},
	{"gemini", "write_file", "denied", `{"file_path":"src/forbidden","content":""}`, "house_rule", "", true},
	{"gemini", "write_file", "fails", `{"file_path":"src","content":""}`, "is_directory", "", true},
	{"gemini", "replace", "does", `{"file_path":"src/b.txt","instruction":"why","old_string":"two","new_string":"2","allow_multiple":true}`, "", "(2 replacements)", true},
	{"gemini", "replace", "does", `{"file_path":"src/made.txt","old_string":"","new_string":"x"}`, "", "Created new file", true},
	{"gemini", "replace", "denied", `{"file_path":"src/b.txt","old_string":"two","new_string":"forbidden"}`, "house_rule", "", true},
	{"gemini", "replace", "fails", `{"file_path":"src/b.txt","old_string":"two","new_string":"2"}`, "ambiguous_matches", "line 2: two", true},
	{"gemini", "replace", "fails", `{"file_path":"src/b.txt","old_string":"","new_string":"2"}`, "file_exists", "", true},
	{"gemini", "grep_search", "does", `{"pattern":"FUNC","context":1}`, "", "src/a.go:3:func A() {}\n", true},
	{"gemini", "grep_search", "does", `{"pattern":"two","names_only":true,"exclude_pattern":"*.go"}`, "", "src/b.txt\n", true},
	{"gemini", "grep_search", "denied", `{"pattern":"forbidden"}`, "house_rule", "", true},
	{"gemini", "grep_search", "fails", `{"pattern":"["}`, "invalid_regex", "", true},
	{"gemini", "grep_search", "fails", `{"pattern":"x","include_pattern":"a","exclude_pattern":"b"}`, "invalid_params", "", false},
	{"gemini", "grep_search", "cut", `{"pattern":"word","total_max_matches":2}`, "", "in all", true},
	{"gemini", "glob", "does", `{"pattern":"SRC/*.GO"}`, "", "src/a.go", true},
	{"gemini", "glob", "denied", `{"pattern":"forbidden"}`, "house_rule", "", true},
	{"gemini", "glob", "cut", `{"pattern":"many/**"}`, "", "1100 files in all", true},
	{"gemini", "glob", "fails", `{"pattern":"{"}`, "invalid_pattern", "", true},
	{"gemini", "list_directory", "does", `{"dir_path":"src","ignore":["*.txt"]}`, "", "Directory listing for src:\na.go\n", true},
	{"gemini", "list_directory", "denied", `{"dir_path":"forbidden"}`, "house_rule", "", true},
	{"gemini", "list_directory", "cut", `{"dir_path":"many"}`, "", "1100 entries in all", true},
	{"gemini", "list_directory", "fails", `{"dir_path":"src","ignore":["["]}`, "invalid_pattern", "", false},
}

// What codex polls and writes to: by number, in pieces, to the end.
func TestCommandByNumber(t *testing.T) {
	t.Parallel()
	b := newBox(t, Options{}, judging(t))
	if err := os.MkdirAll(b.fake.files+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	m := &model{box: b, t: t, profile: "codex", session: b.open(t)}
	a, text := m.call("exec_command", `{"cmd":"echo ready; while read line; do echo got $line; done; exit 9","tty":true,"yield_time_ms":500}`)
	_, number, found := strings.Cut(text, "session ID ")
	number, _, _ = strings.Cut(number, "\n")
	if !found || !a.OK || !a.Running || a.Status != "running" || !strings.HasSuffix(text, "Output:\nready\n") {
		t.Fatalf("%+v %s", a, text)
	}
	if a, text := m.call("write_stdin", `{"session_id":`+number+`,"chars":"one\n","yield_time_ms":1000}`); !a.OK || !strings.HasSuffix(text, "Output:\ngot one\n") { // only what is new
		t.Errorf("%+v %s", a, text)
	}
	if a, text := m.call("write_stdin", `{"session_id":`+number+`,"chars":"forbidden\n"}`); a.OK || a.Status != "denied" || !strings.Contains(text, "house_rule") {
		t.Errorf("%+v %s", a, text)
	}
	if a, text := m.call("write_stdin", `{"session_id":`+number+`,"yield_time_ms":50}`); !a.OK || !a.Running || !strings.HasSuffix(text, "Output:\n") {
		t.Errorf("%+v %s", a, text)
	}
	if _, err := b.Input(t.Context(), api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: a.ExecID}, Close: true}); err != nil {
		t.Fatal(err)
	}
	last, text := m.call("write_stdin", `{"session_id":`+number+`,"yield_time_ms":10000}`)
	if !last.OK || last.Running || last.ExitCode == nil || *last.ExitCode != 9 || !strings.Contains(text, "Process exited with code 9") || len(last.Receipts) != 1 || last.Receipts[0].ExecID != a.ExecID {
		t.Errorf("%+v %s", last, text)
	}
	// What it says is bounded by what the model asks for.
	if long, text := m.call("exec_command", `{"cmd":"sleep 0.4; `+flood+`; sleep 60","yield_time_ms":250}`); long.Running {
		_, number, _ := strings.Cut(text, "session ID ")
		number, _, _ = strings.Cut(number, "\n")
		if a, text := m.call("write_stdin", `{"session_id":`+number+`,"yield_time_ms":3000,"max_output_tokens":50}`); !a.OK || !a.Truncated || !strings.Contains(text, "bytes left out") || len(text) > 400 {
			t.Errorf("%+v %.500s", a, text)
		}
	} else {
		t.Errorf("%+v", long)
	}
	// Another supervisor has not told anything yet, and finds the command by its number all the same.
	b.stop(b.sup.Leave)
	b.start(t)
	if a, text := m.call("write_stdin", `{"session_id":`+number+`}`); !a.OK || !strings.HasSuffix(text, "Output:\nready\ngot one\n") {
		t.Errorf("%+v %s", a, text)
	}
	other := &model{box: b, t: t, profile: "codex", session: b.open(t)}
	if a, _ := other.call("write_stdin", `{"session_id":`+number+`}`); a.OK || a.ErrorCode != api.CodeExecNotFound { // the number is of another session
		t.Errorf("%+v", a)
	}
}

// A patch without JSON around it, as codex writes it.
func TestCustomCall(t *testing.T) {
	b := newBox(t, Options{})
	if err := os.MkdirAll(b.fake.files+"/tmp/src", 0o777); err != nil {
		t.Fatal(err)
	}
	status, body := b.do(t, "POST", "/v1/tools/call", `{"profile":"codex","session_id":"`+b.open(t)+`","call":{"type":"custom_tool_call","call_id":"7","name":"apply_patch",`+
		`"input":"*** Begin Patch\n*** Add File: src/x\n+x\n*** End Patch\n"}}`)
	if status != 200 || !strings.Contains(body, `"result":{"type":"custom_tool_call_output","call_id":"7","output":"Success. Updated the following files:\nA /tmp/src/x\n"}`) {
		t.Errorf("%d %s", status, body)
	}
}

// What is no call is no operation; what a model got wrong it is told, and nothing is started (R001, T162).
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	b := newBox(t, Options{})
	session := b.open(t)
	started := b.fake.started.Load()
	for _, row := range []struct {
		body   string
		status int
		code   api.Code
	}{
		{`{"profile":"openai","session_id":"S","call":{"type":"function_call","call_id":"1","name":"shell","arguments":"{}"},"extra":1}`, 400, api.CodeUnknownMember},
		{`{"profile":"openai","session_id":"S","call":{"type":"function_call","call_id":"1","name":"shell","arguments":{"command":["x"]}}}`, 400, api.CodeDecodeError},
		{`{"profile":"openai","session_id":"S","call":{"type":"function_call","call_id":"1","name":"shell","name":"shell","arguments":"{}"}}`, 400, api.CodeDuplicateMember},
		{`{"profile":"openai","session_id":"S","call":{"type":"tool_use","id":"1","name":"shell","input":"{}"}}`, 400, api.CodeInvalidParams},
		{`{"profile":"openai","session_id":"S","call":{"type":"function_call","call_id":"` + strings.Repeat("x", 300) + `","name":"shell","arguments":"{}"}}`, 400, api.CodeInvalidParams},
		{`{"profile":"anthropic","session_id":"S","call":{"type":"function_call","id":"1","name":"bash","input":{}}}`, 400, api.CodeInvalidParams},
		{`{"profile":"gemini","session_id":"S","call":{"functionResponse":{}}}`, 400, api.CodeUnknownMember},
		{`{"profile":"gemini","session_id":"S","call":{}}`, 400, api.CodeInvalidParams},
		{`{"profile":"gpt","session_id":"S","call":{}}`, 404, api.CodeNotFound},
		{`{"profile":"gemini","session_id":"S","call":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 400, api.CodeTooDeep},
		{`{"profile":"gemini","session_id":"S"}`, 400, api.CodeDecodeError},
	} {
		status, body := b.do(t, "POST", "/v1/tools/call", strings.Replace(row.body, `"S"`, `"`+session+`"`, 1))
		if status != row.status || !strings.Contains(body, `"code":"`+string(row.code)+`"`) {
			t.Errorf("%.200s: %d %s, want %d %s", row.body, status, body, row.status, row.code)
		}
	}
	if status, body := b.do(t, "POST", "/v1/tools/call", `{}`, "Idempotency-Key", "k"); status != 400 || !strings.Contains(body, "invalid_header") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := b.do(t, "GET", "/v1/tools?profile=none", ""); status != 404 || !strings.Contains(body, "anthropic") {
		t.Errorf("%d %s", status, body)
	}
	m := &model{box: b, t: t, profile: "openai", session: session}
	for args, code := range map[string]api.Code{
		`{"command":"ls"}`:                          api.CodeInvalidParams,
		`{"command":["ls"],"timeout_ms":"1"}`:       api.CodeInvalidParams,
		`{"command":["ls"],"timeout_ms":0}`:         api.CodeInvalidParams,
		`{"command":["ls"],"timeout_ms":1.5}`:       api.CodeInvalidParams,
		`{"command":["ls"],"timeout_ms":1e400}`:     api.CodeInvalidParams,
		`{"command":["ls"],"timeout_ms":-1}`:        api.CodeInvalidParams,
		`{"command":["ls",7]}`:                      api.CodeInvalidParams,
		`{"command":null}`:                          api.CodeInvalidParams,
		`{}`:                                        api.CodeInvalidParams,
		`{"command":["ls"],"command":["rm"]}`:       api.CodeDuplicateMember,
		`{"command":["ls"],"Command":["rm"]}`:       api.CodeUnknownMember,
		`{"command":["ls"],"privileged":true}`:      api.CodeUnknownMember,
		`{"command":["ls"]} {"command":["rm"]}`:     api.CodeDecodeError,
		`{"command":["ls"]`:                         api.CodeDecodeError,
		`["ls"]`:                                    api.CodeDecodeError,
		`"ls"`:                                      api.CodeDecodeError,
		``:                                          api.CodeInvalidParams,
		`{"command":["ls"],"workdir":{"a":"b"}}`:    api.CodeInvalidParams,
		`{"command":[` + strings.Repeat("[", 20000): api.CodeDecodeError,
	} {
		a, text := m.call("shell", args)
		if a.OK || a.ErrorCode != code || !strings.Contains(text, string(code)) || len(a.Receipts) != 0 {
			t.Errorf("%.100s: %s %.200s", args, a.ErrorCode, text)
		}
	}
	if n := b.fake.started.Load() - started; n != 0 {
		t.Errorf("%d executions were started", n)
	}
	if huge, _ := m.call("write_file", `{"file_path":"src/x","content":"`+strings.Repeat("x", 2<<20)+`"}`); huge.OK || huge.ErrorCode != api.CodePolicyInputTooLarge {
		t.Errorf("%+v", huge)
	}
	for session, code := range map[string]api.Code{"s-nobody": api.CodeSessionNotFound, "": api.CodeSessionNotFound} {
		m := &model{box: b, t: t, profile: "openai", session: session}
		for _, call := range [][2]string{{"shell", `{"command":["echo"]}`}, {"read_file", `{"file_path":"x"}`}} {
			if a, _ := m.call(call[0], call[1]); a.OK || a.ErrorCode != code {
				t.Errorf("%s in %q: %+v", call[0], session, a)
			}
		}
	}
}

// What a command says whose caller has gone comes before what the next one says, and is told to be its own.
func TestShellAfterItsCaller(t *testing.T) {
	t.Parallel()
	b := newBox(t, Options{})
	if err := os.MkdirAll(b.fake.files+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	m := &model{box: b, t: t, profile: "anthropic", session: b.open(t)}
	m.call("bash", `{"command":"true"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if a, err := b.CallTool(ctx, api.ToolCall{Profile: "anthropic", SessionID: m.session, Call: jsontext.Value(`{"type":"tool_use","id":"1","name":"bash","input":{"command":"sleep 1; echo late; false"}}`)}); err == nil {
		t.Fatalf("%+v", a)
	}
	if a, text := m.call("bash", `{"command":"echo next"}`); !a.OK || text != "late\n[an earlier command ended with status 1]\nnext" {
		t.Errorf("%+v %q", a, text)
	}
}

// A shell that somebody has to give leave to is said to wait, and is used once it may run.
func TestShellWaitsForLeave(t *testing.T) {
	t.Parallel()
	files := maps.Clone(policy)
	files["exec.rego"] = &fstest.MapFile{Data: []byte(`package stockade.exec
decision := {"allow": true, "deny": [], "warn": [], "obligations": {"require_approval": {"reason": "a shell", "timeout_ns": 900000000000, "allow_own": true}}}`)}
	engine, err := rego.Load(files, rego.Options{Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, Options{}, func(c *supervisor.Config) { c.Policy = engine })
	if err := os.MkdirAll(b.fake.files+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	m := &model{box: b, t: t, profile: "anthropic", session: b.open(t)}
	for range 2 { // it waits, and is not asked for again
		if a, text := m.call("bash", `{"command":"echo in"}`); a.OK || a.ErrorCode != api.CodeExecNotStarted || !strings.Contains(text, "approval a-") {
			t.Fatalf("%+v %s", a, text)
		}
	}
	list, err := b.Approvals(t.Context(), api.Read{State: "waiting"})
	if err != nil || len(list.Approvals) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if r, err := b.Approve(t.Context(), api.Verdict{ApprovalID: list.Approvals[0].ApprovalID, Review: list.Approvals[0].Review}); err != nil || r.Outcome != api.OutcomeOK {
		t.Fatalf("%+v %v", r, err)
	}
	b.untilAny(t, api.StateRunning)
	if a, text := m.call("bash", `{"command":"echo in"}`); !a.OK || text != "in" {
		t.Errorf("%+v %s", a, text)
	}
}

// A caller of another scope has no part in a session, whichever tool it tries.
func TestToolsOfAnother(t *testing.T) {
	b := newBox(t, Options{})
	session := b.open(t)
	other := &model{box: &box{Client: b.WithScope(api.Scope{AgentID: "other"})}, t: t, session: session}
	for profile, call := range map[string][2]string{
		"openai": {"shell", `{"command":["echo"]}`}, "codex": {"write_stdin", `{"session_id":1}`},
		"anthropic": {"bash", `{"command":"id"}`}, "gemini": {"read_file", `{"file_path":"x"}`},
	} {
		other.profile = profile
		if a, _ := other.call(call[0], call[1]); a.OK || a.ErrorCode != api.CodeSessionNotFound && a.ErrorCode != api.CodeExecNotFound {
			t.Errorf("%s: %+v", profile, a)
		}
	}
}

// Who goes away while a tool works leaves it at work.
func TestToolOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	b := newBox(t, Options{})
	session := b.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := b.CallTool(ctx, api.ToolCall{Profile: "openai", SessionID: session,
			Call: jsontext.Value(`{"type":"function_call","call_id":"1","name":"shell","arguments":"{\"command\":[\"sleep\"]}"}`)})
		gone <- err
	}()
	b.untilAny(t, api.StateRunning)
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("it was answered")
	}
	time.Sleep(50 * time.Millisecond)
	if list, err := b.Processes(t.Context(), api.Read{SessionID: session, Active: true}); err != nil || len(list.Processes) != 1 {
		t.Errorf("%+v %v", list, err)
	}
}

// meanwhile has somebody else write between what a tool reads and what it writes.
type meanwhile struct {
	tools.Host
	write func()
}

func (m meanwhile) Do(ctx context.Context, op api.Op, parameters any) (*api.Receipt, error) {
	if op == api.OpFileWrite {
		m.write()
	}
	return m.Host.Do(ctx, op, parameters)
}

// What is inserted into a file is inserted into the file that was read, or not at all; line endings stay what they are.
func TestInsert(t *testing.T) {
	t.Parallel()
	b := newBox(t, Options{})
	name := filepath.Join(b.fake.files, "tmp/src/a.txt")
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	p, _ := tools.Named("anthropic")
	editor, _ := p.Tool("str_replace_based_edit_tool")
	session := b.open(t)
	for _, row := range []struct {
		before, insert, after string
		line                  int
		write                 func()
		code                  api.Code
	}{
		{"one\ntwo\n", "x", "one\nx\ntwo\n", 1, nil, ""},
		{"one\r\ntwo\r\n", "x\ny", "one\r\ntwo\r\nx\r\ny\r\n", 2, nil, ""},
		{"one", "x", "one\nx\n", 1, nil, ""},
		{"", "x\n", "x\n", 0, nil, ""},
		{"one\n", "x", "other\n", 1, func() { os.WriteFile(name, []byte("other\n"), 0o666) }, "sha256_mismatch"},
		{strings.Repeat("x", 5<<20), "x", strings.Repeat("x", 5<<20), 0, nil, "file_too_large"},
		{"a\xff\n", "x", "a\xff\n", 1, nil, "invalid_utf8"},
	} {
		if err := os.WriteFile(name, []byte(row.before), 0o666); err != nil {
			t.Fatal(err)
		}
		host := meanwhile{b.Client, func() {}}
		if row.write != nil {
			host.write = row.write
		}
		args := fmt.Sprintf(`{"command":"insert","path":"src/a.txt","insert_line":%d,"insert_text":%s}`, row.line, quoted(row.insert))
		a, err := new(tools.Desk).Call(t.Context(), host, tools.Call{Profile: p, Tool: editor, SessionID: session, Arguments: []byte(args)})
		after, _ := os.ReadFile(name)
		if err != nil || a.OK != (row.code == "") || a.Code != row.code || string(after) != row.after {
			t.Errorf("%.40q: %+v %v, %.40q", row.before, a, err, after)
		}
	}
}

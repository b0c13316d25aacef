package tools

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The tools that OpenAI's models know. codex has those of its command line: commands that go on are polled and written
// to by number. openai has the older ones, which wait for the end.

const patchHelp = "Change files by a patch: all of it is applied, or nothing. It begins with a line `*** Begin Patch` and ends with `*** End Patch`. " +
	"Between them is a section for each file: `*** Add File: PATH` with lines that begin with `+`; `*** Delete File: PATH`; or `*** Update File: PATH`, " +
	"after which `*** Move to: PATH` may rename it, with hunks. A hunk may begin with `@@` and a line such as a function's head to say where it belongs; " +
	"its lines begin with a space (context, three above and below), `-` (taken away) or `+` (put there). Paths are relative to the working directory."

// patchGrammar is what a patch looks like, in Lark, for models that write it without JSON around it.
const patchGrammar = `start: "*** Begin Patch" LF section+ "*** End Patch" LF?
section: add | delete | update
add: "*** Add File: " TEXT LF ("+" TEXT? LF)+
delete: "*** Delete File: " TEXT LF
update: "*** Update File: " TEXT LF move? hunk*
move: "*** Move to: " TEXT LF
hunk: anchor* line+ eof?
anchor: "@@" (" " TEXT)? LF
line: ("+" | "-" | " ") TEXT? LF
eof: "*** End of File" LF
TEXT: /[^\n]+/
%import common.LF
`

var (
	workdir   = Arg{Name: "workdir", Text: "Directory to run in; the session's own if it is not said."}
	timeoutMS = Arg{Name: "timeout_ms", Kind: Number, Min: 1, Max: 24 * 3600 * 1000, Text: "Milliseconds after which the command is ended."}
	login     = Arg{Name: "login", Kind: Flag, Default: true, Text: "Whether the shell is a login shell."}
	maxTokens = Arg{Name: "max_output_tokens", Kind: Number, Min: 1, Max: 1 << 16, Text: "About how many tokens of output to show; the middle of more is left out."}
	yieldMS   = Arg{Name: "yield_time_ms", Kind: Number, Min: 0, Max: maxYield.Milliseconds(), Text: "Milliseconds to wait for output."}
)

const (
	defaultYield = 10 * time.Second
	defaultPoll  = 5 * time.Second
	minYield     = 250 * time.Millisecond
	maxYield     = 5 * time.Minute
	tokenBytes   = 4 // of a token, as a rule
)

// Rows that both profiles have.
var (
	readFile = Tool{
		Name: "read_file", Text: "Read a file with the numbers of its lines.", Ops: []api.Op{api.OpFileRead}, ReadOnly: true, Idempotent: true,
		Args: []Arg{
			{Name: "file_path", Required: true, Text: "Path of the file."},
			{Name: "offset", Kind: Number, Min: 1, Max: math.MaxInt64, Default: 1, Text: "Number of the first line, from 1."},
			{Name: "limit", Kind: Number, Min: 1, Max: math.MaxInt64, Default: 2000, Text: "How many lines at most."},
		},
		do: func(r *run, v values) *Answer {
			return r.read(view{path: v.text("file_path"), first: v.number("offset", 1), lines: v.number("limit", 2000), format: "L%d: %s", more: "offset %d goes on"})
		},
	}
	listDir = Tool{
		Name: "list_dir", Text: "List the names in a directory, with / behind directories.", Ops: []api.Op{api.OpFileList}, ReadOnly: true, Idempotent: true,
		Args: []Arg{
			{Name: "dir_path", Required: true, Text: "Path of the directory."},
			{Name: "offset", Kind: Number, Min: 1, Max: math.MaxInt32, Default: 1, Text: "Number of the first entry, from 1."},
			{Name: "limit", Kind: Number, Min: 1, Max: math.MaxInt32, Default: 25, Text: "How many entries at most."},
		},
		do: func(r *run, v values) *Answer {
			return r.list(listing{path: v.text("dir_path"), first: v.number("offset", 1), most: v.number("limit", 25)})
		},
	}
	grepFiles = Tool{
		Name: "grep_files", Text: "Find the files that have a line that matches a regular expression (RE2).", Ops: []api.Op{api.OpFileGrep}, ReadOnly: true, Idempotent: true,
		Args: []Arg{
			{Name: "pattern", Required: true, Text: "The regular expression."},
			{Name: "include", Text: "Glob of the files to search, such as *.go."},
			{Name: "path", Text: "File or directory to search; the working directory if it is not said."},
			{Name: "limit", Kind: Number, Min: 1, Max: math.MaxInt32, Default: 100, Text: "How many files at most."},
		},
		do: func(r *run, v values) *Answer {
			most := v.number("limit", 100)
			return r.grep(file.Grep{Target: at(v.text("path")), Pattern: v.text("pattern"), GlobFilter: v.text("include"), MaxResults: &most}, true)
		},
	}
	patchFunction = Tool{
		Name: "apply_patch", Text: patchHelp, Ops: []api.Op{api.OpFilePatch}, Destructive: true,
		Args: []Arg{{Name: "input", Required: true, Text: "The whole patch."}},
		do:   func(r *run, v values) *Answer { return r.patch(v.text("input")) },
	}
)

var openAIPhrases = map[api.Code]string{
	api.Code(file.CodePatchParse):   "Invalid patch:",
	api.Code(file.CodeHunkRejected): "Failed to find expected lines:",
}

var openAI = Profile{
	Name: "openai", Wire: responses, Budget: 10_000 * tokenBytes, Phrases: openAIPhrases,
	Tools: []Tool{
		{
			Name: "shell", Text: "Run a command and return its output and exit code.", Ops: execOps, Destructive: true,
			Args: []Arg{{Name: "command", Kind: Texts, Required: true, Text: "The program and its arguments."}, workdir, timeoutMS},
			do: func(r *run, v values) *Answer {
				o := r.runCommand(command{exec: api.Exec{Argv: v.texts("command"), Cwd: v.text("workdir"), TimeoutNS: v.number("timeout_ms", 0) * 1e6}, budget: r.call.Profile.Budget})
				return r.answer(o, withMetadata)
			},
		},
		{
			Name: "shell_command", Text: "Run a shell script and return its output and exit code.", Ops: execOps, Destructive: true,
			Args: []Arg{{Name: "command", Required: true, Text: "The script, for bash."}, workdir, timeoutMS, login},
			do: func(r *run, v values) *Answer {
				o := r.runCommand(command{exec: api.Exec{Argv: script("bash", shellFlags(v), v.text("command")), Cwd: v.text("workdir"), TimeoutNS: v.number("timeout_ms", 0) * 1e6}, budget: r.call.Profile.Budget})
				return r.answer(o, withTimes)
			},
		},
		patchFunction,
		readFile,
		{
			Name: "write_file", Text: "Write a file, in place of what is there.", Ops: []api.Op{api.OpFileWrite}, Destructive: true, Idempotent: true,
			Args: []Arg{{Name: "file_path", Required: true, Text: "Path of the file."}, {Name: "content", Required: true, Text: "All that the file is to have."}},
			do:   func(r *run, v values) *Answer { return r.write(v.text("file_path"), v.text("content")) },
		},
		listDir,
		grepFiles,
		{
			Name: "glob", Text: "Find files whose paths match a pattern (** is any depth), newest first.", Ops: []api.Op{api.OpFileGlob}, ReadOnly: true, Idempotent: true,
			Args: []Arg{{Name: "pattern", Required: true, Text: "The pattern, such as src/**/*.go."}, {Name: "path", Text: "Directory to search; the working directory if it is not said."}},
			do: func(r *run, v values) *Answer {
				return r.glob(file.Glob{Target: at(v.text("path")), Pattern: v.text("pattern")})
			},
		},
	},
}

// write is write_file of those who say what became of it in a sentence.
func (r *run) write(name, content string) *Answer {
	return r.put(file.Write{Target: at(name), Content: inline(content), CreateParents: true}, func(created bool) string {
		if created {
			return "Created " + name + "."
		}
		return "Overwrote " + name + "."
	})
}

var codex = Profile{
	Name: "codex", Wire: responses, Budget: 10_000 * tokenBytes, Phrases: openAIPhrases,
	Tools: []Tool{
		{
			Name: "exec_command", Text: "Run a shell script. What goes on after yield_time_ms is polled and written to with write_stdin by its session_id.", Ops: execOps, Destructive: true,
			Args: []Arg{
				{Name: "cmd", Required: true, Text: "The script."},
				workdir,
				{Name: "shell", Default: "bash", Text: "The shell to run it."},
				{Name: "tty", Kind: Flag, Default: false, Text: "Keep stdin open for write_stdin. There is no terminal: stdin is a pipe."},
				yieldMS, maxTokens, login,
				{Name: "sandbox_permissions", OneOf: []string{"use_default", "require_escalated", "with_additional_permissions"}, Text: "No call leaves the sandbox: all but use_default is refused."},
				{Name: "additional_permissions", Kind: Object, Text: "Of with_additional_permissions."},
				{Name: "justification", Text: "Of require_escalated."},
				{Name: "prefix_rule", Kind: Texts, Text: "Of require_escalated."},
			},
			do: execCommand,
		},
		{
			Name: "write_stdin", Text: "Write to a command that runs, or poll it with no chars, and return its new output.", Destructive: true,
			Ops: []api.Op{api.OpProcessList, api.OpProcessInput, api.OpOutput},
			Args: []Arg{
				{Name: "session_id", Kind: Number, Required: true, Min: 1, Max: math.MaxUint32, Text: "Number of the command, from exec_command."},
				{Name: "chars", Text: "What to write; nothing polls."},
				yieldMS, maxTokens,
			},
			do: writeStdin,
		},
		func() Tool {
			t := patchFunction
			t.Native = map[string]any{"type": "custom", "name": t.Name, "description": t.Text + " This is not JSON: write the patch itself.",
				"format": map[string]any{"type": "grammar", "syntax": "lark", "definition": patchGrammar}}
			return t
		}(),
		readFile, listDir, grepFiles,
	},
}

// execOps are what a call that runs a command can lead to: its output is read where the receipt does not have all of it in one.
var execOps = []api.Op{api.OpExec, api.OpOutput, api.OpProcessCancel}

func shellFlags(v values) string {
	if v.either("login", true) {
		return "-lc"
	}
	return "-c"
}

func execCommand(r *run, v values) *Answer {
	if asked := v.text("sandbox_permissions"); asked != "" && asked != "use_default" || v.has("additional_permissions") {
		return r.escalation()
	}
	shell := v.text("shell")
	if shell == "" {
		shell = "bash"
	}
	yield := min(max(time.Duration(v.number("yield_time_ms", defaultYield.Milliseconds()))*time.Millisecond, minYield), maxYield)
	o := r.runCommand(command{
		exec:  api.Exec{Argv: script(shell, shellFlags(v), v.text("cmd")), Cwd: v.text("workdir"), StdinOpen: v.flag("tty")},
		yield: yield, budget: r.tokens(v),
	})
	r.desk.hasTold(o.execID, o.cursor, o.running)
	return r.answer(o, withSession)
}

// escalation is the answer to who asks for more than the session was granted.
func (r *run) escalation() *Answer {
	return r.failed(failure{status: "denied", code: api.CodeEscalation, message: "no call leaves the sandbox, whatever its justification; policy decides what a session may"})
}

// tokens is the budget of a call that says one.
func (r *run) tokens(v values) int64 {
	return min(v.number("max_output_tokens", r.call.Profile.Budget/tokenBytes)*tokenBytes, 256<<10)
}

func writeStdin(r *run, v values) *Answer {
	began := time.Now()
	id, f := r.byHandle(v.number("session_id", 0))
	if f != nil {
		return r.failed(*f)
	}
	otherwise := defaultPoll
	if chars := v.text("chars"); chars != "" {
		otherwise = minYield
		_, f := r.do(api.OpProcessInput, api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: id}, Data: &api.Stdin{InlineText: &api.InlineText{Text: chars}}})
		if f != nil {
			return r.failed(*f)
		}
	}
	yield := min(time.Duration(v.number("yield_time_ms", otherwise.Milliseconds()))*time.Millisecond, maxYield)
	out := &clip{limit: r.tokens(v)}
	o := outcome{execID: id, cursor: r.desk.tellFrom(id)}
	r.follow(&o, out, began.Add(yield), nil)
	o.text, o.cut = out.text()
	o.took = time.Since(began)
	r.desk.hasTold(id, o.cursor, o.running)
	return r.answer(o, withSession)
}

// withMetadata is the answer of shell: JSON with the output in it.
func withMetadata(o outcome) string {
	type metadata struct {
		ExitCode int     `json:"exit_code"`
		Seconds  float64 `json:"duration_seconds"`
		Error    string  `json:"error,omitempty"`
	}
	m := metadata{-1, math.Round(o.took.Seconds()*10) / 10, how(o)}
	if o.result != nil {
		m.ExitCode = o.result.ExitCode
	}
	if m.Error != "" {
		o.text += "\nError: " + m.Error
	}
	return string(must(struct {
		Output   string   `json:"output"`
		Metadata metadata `json:"metadata"`
	}{o.text, m}))
}

// withTimes is the answer of shell_command.
func withTimes(o outcome) string {
	var b strings.Builder
	if o.result != nil {
		fmt.Fprintf(&b, "Exit code: %d\n", o.result.ExitCode)
	}
	if why := how(o); why != "" {
		fmt.Fprintf(&b, "Error: %s\n", why)
	}
	fmt.Fprintf(&b, "Wall time: %.1f seconds\nOutput:\n%s", o.took.Seconds(), o.text)
	return b.String()
}

// withSession is the answer of exec_command and write_stdin.
func withSession(o outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Wall time: %.4f seconds\n", o.took.Seconds())
	switch why := how(o); {
	case why != "":
		fmt.Fprintf(&b, "Error: %s\n", why)
	case o.running:
		fmt.Fprintf(&b, "Process running with session ID %d\n", handle(o.execID))
	case o.result != nil:
		fmt.Fprintf(&b, "Process exited with code %d\n", o.result.ExitCode)
	}
	b.WriteString("Output:\n" + o.text)
	return b.String()
}

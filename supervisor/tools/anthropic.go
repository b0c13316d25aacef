package tools

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The tools that Anthropic's models know: a shell that stays, and the text editor, both by the provider's own definitions; glob
// and grep as its command line has them.

// subcommand is one of those that a tool does by the word in its argument command, with what it needs of the others.
type subcommand struct {
	needs []string
	do    func(*run, values) *Answer
}

// byCommand is a tool of subcommands. An argument that belongs to another one would be taken for what it is not.
func byCommand(commands map[string]subcommand, of map[string][]string) func(*run, values) *Answer {
	return func(r *run, v values) *Answer {
		invalid := func(why string) *Answer {
			return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: why})
		}
		name := v.text("command")
		for _, need := range commands[name].needs {
			if !v.has(need) {
				return invalid(name + " needs " + need)
			}
		}
		for _, arg := range slices.Sorted(maps.Keys(of)) {
			if v.has(arg) && !slices.Contains(of[arg], name) {
				return invalid(arg + " belongs to " + strings.Join(of[arg], " and ") + ", not to " + name)
			}
		}
		return commands[name].do(r, v)
	}
}

// editorCommands are the commands of the text editor.
var editorCommands = map[string]subcommand{
	"view": {nil, editorView},
	"create": {[]string{"file_text"}, func(r *run, v values) *Answer {
		return r.put(file.Write{Target: at(v.text("path")), Content: inline(v.text("file_text")), CreateParents: true},
			func(bool) string { return "File created successfully at: " + v.text("path") })
	}},
	"str_replace": {[]string{"old_str"}, replaceExactly},
	"insert": {[]string{"insert_line"}, func(r *run, v values) *Answer {
		// Models say insert_text where the provider's documents have had new_str.
		if v.has("insert_text") == v.has("new_str") {
			return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "insert needs insert_text"})
		}
		return r.insert(v.text("path"), v.number("insert_line", 0), v.text("insert_text")+v.text("new_str"))
	}},
}

// replaceExactly replaces the text that a model was shown, and no other like it.
func replaceExactly(r *run, v values) *Answer {
	return r.edit(file.Edit{Target: at(v.text("path")), OldString: v.text("old_str"), NewString: v.text("new_str"), ExactOnly: true}, func(e *file.EditResult) string {
		return fmt.Sprintf("The file %s has been edited. %s", v.text("path"), e.Summary)
	})
}

// editorArgs are which of the arguments belong to which command.
var editorArgs = map[string][]string{
	"view_range": {"view"}, "file_text": {"create"}, "old_str": {"str_replace"}, "insert_line": {"insert"}, "insert_text": {"insert"},
}

// editing are the arguments of the commands that both editors have.
var editing = []Arg{
	{Name: "view_range", Kind: Numbers, Count: 2, Text: "Of view: the first and the last line, from 1; -1 is the end."},
	{Name: "file_text", Text: "Of create: all that the file is to have."},
	{Name: "old_str", Text: "Of str_replace: the text to be replaced, exactly, which is in the file once."},
	{Name: "new_str", Text: "Of str_replace: what takes its place; nothing deletes it."},
	{Name: "insert_line", Kind: Number, Min: 0, Max: math.MaxInt32, Text: "Of insert: the line behind which the text goes; 0 is the beginning."},
	{Name: "insert_text", Text: "Of insert: the text."},
}

var anthropic = Profile{
	Name: "anthropic", Wire: messages, Budget: 30_000,
	Phrases: map[api.Code]string{
		api.CodePathNotFound:            "File not found.",
		api.Code(file.CodeEditNotFound): "No match found for replacement. Please check your text and try again.",
		api.Code(file.CodeAmbiguous):    "More than one match found for replacement. Please provide more context to make a unique match.",
		api.Code(file.CodeForbidden):    "Permission denied.",
		api.Code(file.CodeReadOnly):     "Permission denied. Cannot write to file.",
	},
	Tools: []Tool{
		{
			Name: "bash", Text: "Run a command in a bash that stays: directory, variables and functions are there for the next one.", Destructive: true,
			Native: map[string]any{"type": "bash_20250124", "name": "bash"},
			Ops:    []api.Op{api.OpProcessList, api.OpExec, api.OpProcessGet, api.OpProcessInput, api.OpOutput, api.OpProcessCancel},
			Args: []Arg{
				{Name: "command", Text: "The command. It reads nothing: its stdin is empty."},
				{Name: "restart", Kind: Flag, Text: "End the shell and begin another; instead of a command."},
				{Name: "timeout_ms", Kind: Number, Min: 1, Max: shellMost.Milliseconds(), Default: int(shellDefault.Milliseconds()), Text: "Milliseconds after which the command is given up, and the shell with it."},
			},
			do: bash,
		},
		{
			Name: "str_replace_based_edit_tool", Text: "View, create and edit files.", Destructive: true,
			Native: map[string]any{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
			Ops:    []api.Op{api.OpFileRead, api.OpFileList, api.OpFileWrite, api.OpFileEdit},
			Args: slices.Concat([]Arg{
				{Name: "command", Required: true, OneOf: []string{"view", "create", "str_replace", "insert"}, Text: "What to do."},
				{Name: "path", Required: true, Text: "Path of the file; of a directory for view."},
			}, editing),
			do: byCommand(editorCommands, editorArgs),
		},
		{
			Name: "memory", Text: "View, create and edit files below /memories, which are there in later conversations.", Destructive: true,
			Native: map[string]any{"type": "memory_20250818", "name": "memory"},
			Ops:    []api.Op{api.OpFileRead, api.OpFileList, api.OpFileWrite, api.OpFileEdit, api.OpFileRemove, api.OpFileMove},
			Args: slices.Concat([]Arg{
				{Name: "command", Required: true, OneOf: []string{"view", "create", "str_replace", "insert", "delete", "rename"}, Text: "What to do."},
				{Name: "path", Text: "Path below /memories; of a directory for view and delete as well."},
			}, editing, []Arg{
				{Name: "old_path", Text: "Of rename: what is to be renamed."},
				{Name: "new_path", Text: "Of rename: its new path, at which nothing is yet."},
			}),
			do: byCommand(memoryCommands, memoryArgs),
		},
		{
			Name: "glob", Text: "Find files whose paths match a pattern (** is any depth), newest first.", Ops: []api.Op{api.OpFileGlob}, ReadOnly: true, Idempotent: true,
			Args: []Arg{{Name: "pattern", Required: true, Text: "The pattern, such as src/**/*.go."}, {Name: "path", Text: "Directory to search; the working directory if it is not said."}},
			do: func(r *run, v values) *Answer {
				return r.glob(file.Glob{Target: at(v.text("path")), Pattern: v.text("pattern")})
			},
		},
		{
			Name: "grep", Text: "Find lines that match a regular expression (RE2), or the files that have one.", Ops: []api.Op{api.OpFileGrep}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "pattern", Required: true, Text: "The regular expression."},
				{Name: "path", Text: "File or directory to search; the working directory if it is not said."},
				{Name: "glob", Text: "Glob of the files to search, such as *.go."},
				{Name: "output_mode", OneOf: []string{"content", "files_with_matches"}, Default: "files_with_matches", Text: "Lines, or files."},
				{Name: "-A", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context behind each match."},
				{Name: "-B", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context before each match."},
				{Name: "-C", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context on both sides."},
				{Name: "-i", Kind: Flag, Text: "Case does not count."},
				{Name: "-n", Kind: Flag, Text: "Line numbers; they are always there."},
				{Name: "head_limit", Kind: Number, Min: 1, Max: math.MaxInt32, Default: 100, Text: "How many lines or files at most."},
				{Name: "multiline", Kind: Flag, Text: "The pattern may match across lines."},
			},
			do: func(r *run, v values) *Answer {
				most, around := v.number("head_limit", 100), v.number("-C", 0)
				return r.grep(file.Grep{
					Target: at(v.text("path")), Pattern: v.text("pattern"), GlobFilter: v.text("glob"), CaseInsensitive: v.flag("-i"), Multiline: v.flag("multiline"),
					After: max(around, v.number("-A", 0)), Before: max(around, v.number("-B", 0)), MaxResults: &most,
				}, v.text("output_mode") != "content")
			},
		},
	},
}

// editorView shows a file, or the names in a directory.
func editorView(r *run, v values) *Answer {
	show := view{path: v.text("path"), first: 1, format: "%6d\t%s", more: "view_range [%d, -1] goes on"}
	if span := v.numbers("view_range"); span != nil {
		if span[0] < 1 || span[1] != -1 && span[1] < span[0] {
			return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: fmt.Sprintf("view_range %v is not a first and a last line, from 1", span)})
		}
		if show.first = span[0]; span[1] != -1 {
			show.lines = span[1] - span[0] + 1
		}
	}
	a := r.read(show)
	if a.Status != string(file.IsDirectory) || v.has("view_range") {
		return a
	}
	return r.list(listing{path: v.text("path"), head: "The names in " + v.text("path") + ":\n"})
}

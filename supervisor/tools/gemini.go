package tools

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The tools that Google's models know from the Gemini command line.

var dirPath = Arg{Name: "dir_path", Text: "Directory; the working directory if it is not said."}

// backgroundYield is how long a command that goes on by itself is watched for an early end.
const backgroundYield = time.Second

var gemini = Profile{
	Name: "gemini", Wire: parts, Budget: 40_000,
	Phrases: map[api.Code]string{
		api.CodePathNotFound:            "File not found.",
		api.Code(file.CodeEditNotFound): "Failed to edit, could not find the string to replace.",
		api.Code(file.CodeAmbiguous):    "Failed to edit, expected 1 occurrence but found more.",
	},
	Tools: []Tool{
		{
			Name: "run_shell_command", Text: "Run a command with bash -c and return its output and how it ended.", Ops: execOps, Destructive: true,
			Args: []Arg{
				{Name: "command", Required: true, Text: "The command."},
				{Name: "description", Text: "What it is for, for a person."},
				dirPath,
				{Name: "is_background", Kind: Flag, Default: false, Text: "Let it go on, and return at once."},
				{Name: "additional_permissions", Kind: Object, Text: "No call leaves the sandbox: it is refused."},
			},
			do: func(r *run, v values) *Answer {
				if v.has("additional_permissions") {
					return r.escalation()
				}
				c := command{exec: api.Exec{Argv: script("bash", "-c", v.text("command")), Cwd: v.text("dir_path")}, budget: r.call.Profile.Budget}
				if v.flag("is_background") {
					c.yield = backgroundYield
				}
				return r.answer(r.runCommand(c), withParts)
			},
		},
		{
			Name: "read_file", Text: "Read a file, or lines of it.", Ops: []api.Op{api.OpFileRead}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "file_path", Required: true, Text: "Path of the file."},
				{Name: "start_line", Kind: Number, Min: 1, Max: math.MaxInt32, Text: "The first line, from 1."},
				{Name: "end_line", Kind: Number, Min: 1, Max: math.MaxInt32, Text: "The last line."},
			},
			do: func(r *run, v values) *Answer {
				show := view{path: v.text("file_path"), first: v.number("start_line", 1), more: "start_line %d goes on"}
				if last := v.number("end_line", 0); last != 0 {
					if show.lines = last - show.first + 1; show.lines < 1 {
						return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "end_line is before start_line"})
					}
				}
				return r.read(show)
			},
		},
		{
			Name: "read_many_files", Text: "Read the files whose paths match patterns, one after the other.", Ops: []api.Op{api.OpFileGlob, api.OpFileRead}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "include", Kind: Texts, Text: "Patterns of paths, such as src/**/*.go, or paths of files and directories."},
				{Name: "paths", Kind: Texts, Text: "More of them, as older models name them."},
				{Name: "exclude", Kind: Texts, Text: "Patterns of files to leave out."},
				{Name: "recursive", Kind: Flag, Default: true, Text: "The path of a directory stands for all that is below it, not only for what is in it."},
				{Name: "useDefaultExcludes", Kind: Flag, Default: true, Text: "Leave out what programs make and fetch, such as node_modules and build, and .env."},
			},
			do: (*run).readMany,
		},
		{
			Name: "write_file", Text: "Write a file, in place of what is there.", Ops: []api.Op{api.OpFileWrite}, Destructive: true, Idempotent: true,
			Args: []Arg{{Name: "file_path", Required: true, Text: "Path of the file."}, {Name: "content", Required: true, Text: "All that the file is to have."}},
			do: func(r *run, v values) *Answer {
				return r.put(file.Write{Target: at(v.text("file_path")), Content: inline(v.text("content")), CreateParents: true}, func(created bool) string {
					if created {
						return "Successfully created and wrote to new file: " + v.text("file_path") + "."
					}
					return "Successfully overwrote file: " + v.text("file_path") + "."
				})
			},
		},
		{
			Name: "replace", Text: "Replace text in a file, which is in it once unless allow_multiple; with an empty old_string, create the file.", Destructive: true,
			Ops: []api.Op{api.OpFileEdit, api.OpFileWrite},
			Args: []Arg{
				{Name: "file_path", Required: true, Text: "Path of the file."},
				{Name: "instruction", Text: "What the change is for, for a person."},
				{Name: "old_string", Required: true, Text: "The text to be replaced, with what is around it."},
				{Name: "new_string", Required: true, Text: "What takes its place."},
				{Name: "allow_multiple", Kind: Flag, Default: false, Text: "Replace every occurrence."},
			},
			do: func(r *run, v values) *Answer {
				name := v.text("file_path")
				if v.text("old_string") == "" {
					return r.put(file.Write{Target: at(name), Content: inline(v.text("new_string")), Mode: "create_new", CreateParents: true},
						func(bool) string { return "Created new file: " + name + " with provided content." })
				}
				return r.edit(file.Edit{Target: at(name), OldString: v.text("old_string"), NewString: v.text("new_string"), ReplaceAll: v.flag("allow_multiple")}, func(e *file.EditResult) string {
					n := int64(0)
					if e.Replacements != nil {
						n = *e.Replacements
					}
					text := fmt.Sprintf("Successfully modified file: %s (%d %s).", name, n, plural("replacement", n))
					if e.Match == "fuzzy" {
						text += " White space, quotes or dashes of the text differed."
					}
					return text
				})
			},
		},
		{
			Name: "grep_search", Text: "Find lines that match a regular expression (RE2), or the files that have one.", Ops: []api.Op{api.OpFileGrep}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "pattern", Required: true, Text: "The regular expression."},
				dirPath,
				{Name: "include_pattern", Text: "Glob of the files to search, such as *.go."},
				{Name: "exclude_pattern", Text: "Glob of files not to search; instead of include_pattern."},
				{Name: "names_only", Kind: Flag, Default: false, Text: "Only the files."},
				{Name: "case_sensitive", Kind: Flag, Default: false, Text: "Case counts."},
				{Name: "fixed_strings", Kind: Flag, Default: false, Text: "The pattern is a text."},
				{Name: "context", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context on both sides."},
				{Name: "after", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context behind each match."},
				{Name: "before", Kind: Number, Min: 0, Max: file.MaxContext, Text: "Lines of context before each match."},
				{Name: "no_ignore", Kind: Flag, Default: false, Text: "Also in what ignore-files exclude."},
				{Name: "max_matches_per_file", Kind: Number, Min: 1, Max: math.MaxInt32, Text: "How many matching lines of one file."},
				{Name: "total_max_matches", Kind: Number, Min: 1, Max: math.MaxInt32, Default: 100, Text: "How many matching lines in all."},
			},
			do: func(r *run, v values) *Answer {
				filter := v.text("include_pattern")
				if except := v.text("exclude_pattern"); except != "" {
					if filter != "" {
						return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "include_pattern and exclude_pattern cannot be combined"})
					}
					filter = "!" + except
				}
				most, around := v.number("total_max_matches", 100), v.number("context", 0)
				return r.grep(file.Grep{
					Target: at(v.text("dir_path")), Pattern: v.text("pattern"), GlobFilter: filter, CaseInsensitive: !v.flag("case_sensitive"), FixedStrings: v.flag("fixed_strings"),
					After: max(around, v.number("after", 0)), Before: max(around, v.number("before", 0)), MaxPerFile: v.number("max_matches_per_file", 0), MaxResults: &most,
					RespectIgnore: !v.flag("no_ignore"),
				}, v.flag("names_only"))
			},
		},
		{
			Name: "glob", Text: "Find files whose paths match a pattern (** is any depth), newest first.", Ops: []api.Op{api.OpFileGlob}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "pattern", Required: true, Text: "The pattern, such as src/**/*.go."},
				dirPath,
				{Name: "case_sensitive", Kind: Flag, Default: false, Text: "Case counts."},
				{Name: "respect_git_ignore", Kind: Flag, Default: true, Text: "Leave out what ignore-files exclude."},
			},
			do: func(r *run, v values) *Answer {
				return r.glob(file.Glob{Target: at(v.text("dir_path")), Pattern: v.text("pattern"), CaseInsensitive: !v.flag("case_sensitive"), RespectIgnore: v.either("respect_git_ignore", true)})
			},
		},
		{
			Name: "list_directory", Text: "List the names in a directory, with / behind directories.", Ops: []api.Op{api.OpFileList}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				{Name: "dir_path", Required: true, Text: "Path of the directory."},
				{Name: "ignore", Kind: Texts, Text: "Patterns of names to leave out."},
			},
			do: func(r *run, v values) *Answer {
				return r.list(listing{path: v.text("dir_path"), ignore: v.texts("ignore"), head: "Directory listing for " + v.text("dir_path") + ":\n"})
			},
		},
	},
}

// withParts is the answer of run_shell_command.
func withParts(o outcome) string {
	var b strings.Builder
	text := o.text
	if text == "" {
		text = "(empty)"
	}
	fmt.Fprintf(&b, "Output: %s", text)
	if why := how(o); why != "" {
		fmt.Fprintf(&b, "\nError: %s", why)
	}
	if o.running {
		fmt.Fprintf(&b, "\nThe command goes on in the background as execution %s.", o.execID)
	}
	if x := o.result; x != nil {
		if x.ExitCode > 0 {
			fmt.Fprintf(&b, "\nExit Code: %d", x.ExitCode)
		}
		if x.Signal != "" {
			fmt.Fprintf(&b, "\nSignal: %s", x.Signal)
		}
	}
	return b.String()
}

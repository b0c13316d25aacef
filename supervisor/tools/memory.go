package tools

import (
	"path"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// memories is the directory that the memory tool of Anthropic's models works in: a mount of the session, or a directory that
// somebody has made there.
const memories = "/memories"

// memoryCommands are the commands of the memory tool.
var memoryCommands = map[string]subcommand{
	"view": {[]string{"path"}, inMemories(editorView, "path")},
	"create": {[]string{"path", "file_text"}, inMemories(func(r *run, v values) *Answer {
		return r.put(file.Write{Target: at(v.text("path")), Content: inline(v.text("file_text")), Mode: "create_new", CreateParents: true},
			func(bool) string { return "File created successfully at: " + v.text("path") })
	}, "path")},
	"str_replace": {[]string{"path", "old_str"}, inMemories(replaceExactly, "path")},
	"insert": {[]string{"path", "insert_line", "insert_text"}, inMemories(func(r *run, v values) *Answer {
		return r.insert(v.text("path"), v.number("insert_line", 0), v.text("insert_text"))
	}, "path")},
	"delete": {[]string{"path"}, inMemories(func(r *run, v values) *Answer {
		if path.Clean(v.text("path")) == memories {
			return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: memories + " itself stays"})
		}
		_, f := r.inFile(api.OpFileRemove, api.FileRemove{SessionID: r.call.SessionID, Remove: file.Remove{Target: at(v.text("path")), Recursive: true}})
		if f != nil {
			return r.failed(*f)
		}
		return done("Successfully deleted " + v.text("path"))
	}, "path")},
	"rename": {[]string{"old_path", "new_path"}, inMemories(func(r *run, v values) *Answer {
		_, f := r.inFile(api.OpFileMove, api.FileMove{SessionID: r.call.SessionID, Move: file.Move{Target: at(v.text("old_path")), To: v.text("new_path")}})
		if f != nil {
			return r.failed(*f)
		}
		return done("Successfully renamed " + v.text("old_path") + " to " + v.text("new_path"))
	}, "old_path", "new_path")},
}

// memoryArgs are which of the arguments belong to which command.
var memoryArgs = map[string][]string{
	"path": {"view", "create", "str_replace", "insert", "delete"}, "view_range": {"view"}, "file_text": {"create"}, "old_str": {"str_replace"}, "new_str": {"str_replace"},
	"insert_line": {"insert"}, "insert_text": {"insert"}, "old_path": {"rename"}, "new_path": {"rename"},
}

// inMemories has a command refuse paths that lead elsewhere as they are written. It is what the model was promised; what the paths
// lead to is for the session and its grant, as with every other tool.
func inMemories(do func(*run, values) *Answer, args ...string) func(*run, values) *Answer {
	return func(r *run, v values) *Answer {
		for _, arg := range args {
			p := v.text(arg)
			if clean := path.Clean(p); clean != memories && !strings.HasPrefix(clean, memories+"/") {
				return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: arg + " is not below " + memories})
			}
		}
		return do(r, v)
	}
}

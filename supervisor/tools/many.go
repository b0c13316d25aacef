package tools

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/internal/filetool/glob"
	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Bounds of one reading of many files: each file that is read is an operation, with a receipt.
const (
	mostPatterns = 32
	mostFiles    = 100
	mostFound    = 1000 // by one pattern
)

// unread are the files that read_many_files leaves out unless it is told not to: what programs make and fetch, and secrets.
const unread = "**/{node_modules,bower_components,.git,.svn,.hg,.vscode,.idea,dist,build,coverage,__pycache__}/**,**/{*.pyc,*.pyo,.DS_Store,.env}"

// readMany answers with the contents of the files that patterns find, one after the other, in the order of their paths.
func (r *run) readMany(v values) *Answer {
	invalid := func(why string) *Answer {
		return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: why})
	}
	patterns := slices.Concat(v.texts("include"), v.texts("paths"))
	if len(patterns) == 0 {
		return invalid("include names no files")
	}
	if len(patterns) > mostPatterns {
		return invalid(fmt.Sprintf("%d patterns are more than %d", len(patterns), mostPatterns))
	}
	excluded := v.texts("exclude")
	if v.either("useDefaultExcludes", true) {
		excluded = append(slices.Clone(excluded), "{"+unread+"}")
	}
	var except []*glob.Pattern
	for _, e := range excluded {
		p, err := glob.Compile(e, true)
		if err != nil {
			return r.failed(failure{status: "error", code: api.Code(file.CodeInvalidPattern), message: fmt.Sprintf("exclude %.80q: %v", e, err)})
		}
		except = append(except, p)
	}
	found, cut := map[string]bool{}, false
	for _, p := range patterns {
		most := int64(mostFound)
		res, f := r.inFile(api.OpFileGlob, api.FileGlob{SessionID: r.call.SessionID,
			Glob: file.Glob{Pattern: below(p, v.either("recursive", true)), CaseInsensitive: true, RespectIgnore: true, MaxResults: &most}})
		if f != nil {
			return r.failed(*f)
		}
		list, short := r.content(res.Glob.Paths, 1<<20)
		cut = cut || short || res.Glob.Truncated
		for line := range strings.Lines(list) {
			name, whole := strings.CutSuffix(line, "\n")
			name, ok := file.Unquote(name)
			if whole && ok && !slices.ContainsFunc(except, func(p *glob.Pattern) bool { return p.Match(name) }) {
				found[name] = true
			}
		}
	}
	return r.concatenate(slices.Sorted(maps.Keys(found)), cut)
}

// below has a name without wildcards stand for what is below it, too, if it is a directory's.
func below(pattern string, recursive bool) string {
	if strings.ContainsAny(pattern, `*?[]{}\,`) || pattern == "" {
		return pattern
	}
	depth := "**"
	if !recursive {
		depth = "*"
	}
	at := strings.TrimSuffix(pattern, "/")
	return "{" + at + "," + at + "/" + depth + "}"
}

// concatenate shows files behind each other as far as the budget goes. What could not be read is named, with the reason.
func (r *run) concatenate(names []string, cut bool) *Answer {
	var b, left strings.Builder
	budget, read := r.call.Profile.Budget, 0
	var first *failure
	for i, name := range names {
		if read == mostFiles || budget <= 0 {
			fmt.Fprintf(&left, "\n[not read for want of room: %d %s, from %s on]", len(names)-i, plural("file", int64(len(names)-i)), file.Quote(name))
			cut = true
			break
		}
		res, f := r.inFile(api.OpFileRead, api.FileRead{SessionID: r.call.SessionID, Read: file.Read{Target: at(name), MaxBytes: &budget}})
		if f != nil {
			if first == nil {
				first = f
			}
			if r.lost != nil {
				break
			}
			fmt.Fprintf(&left, "\n[not read: %s: %s]", file.Quote(name), f.code)
			continue
		}
		content, short := r.content(res.Read.Content, budget)
		if short || res.Read.Truncated {
			fmt.Fprintf(&left, "\n[truncated: %s has %d bytes]", file.Quote(name), *res.Read.SizeBytes)
			cut = true
		}
		fmt.Fprintf(&b, "--- %s ---\n\n%s\n\n", file.Quote(name), content)
		budget -= int64(len(content))
		read++
	}
	switch {
	case read == 0 && first != nil:
		return r.failed(*first)
	case read == 0:
		return done("No files matching the criteria were found or all were skipped.")
	}
	if cut && left.Len() == 0 {
		left.WriteString("\n[truncated: there are more files than are shown]")
	}
	a := done(b.String() + "\n--- End of content ---" + left.String())
	a.Truncated = cut
	return a
}

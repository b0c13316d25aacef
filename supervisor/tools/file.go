package tools

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// inline is content as a request has it.
func inline(text string) file.Content { return file.Content{InlineText: &file.InlineText{Text: text}} }

func at(name string) file.Target { return file.Target{Path: name} }

// notes of file tools: what a limit of somebody else's made of the request.
func clamps(list []file.Clamp) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "\n[%s was lowered to %d by %s]", c.Field, c.Effective, c.Source)
	}
	return b.String()
}

// view is lines of a file as a model wants them.
type view struct {
	path   string
	first  int64 // from 1
	lines  int64 // 0 is to the end
	format string
	more   string // how the model asks for the rest: a format of the number of the next line
}

// read answers with lines of a file.
func (r *run) read(v view) *Answer {
	budget := r.call.Profile.Budget
	res, f := r.inFile(api.OpFileRead, api.FileRead{SessionID: r.call.SessionID,
		Read: file.Read{Target: at(v.path), StartLine: v.first, MaxLines: v.lines, MaxBytes: &budget}})
	if f != nil {
		return r.failed(*f)
	}
	text, cut := r.content(res.Read.Content, budget)
	// What is cut in the middle of a line is told to its beginning, so that the next line can be asked for.
	if cut || res.Read.Truncated && !strings.HasSuffix(text, "\n") && v.lines == 0 {
		if end := strings.LastIndexByte(text, '\n'); end >= 0 {
			text, cut = text[:end+1], true
		}
	}
	lines := int64(strings.Count(text, "\n"))
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	a, told := done(text), lines
	if v.format != "" {
		a.Text, told = numbered(text, max(1, v.first), v.format, budget)
		cut = cut || told < lines
	}
	full := v.lines != 0 && told >= v.lines // it is what was asked for; that there is more is no news
	if a.Truncated = cut || res.Read.Truncated && !full; a.Truncated {
		a.Text = strings.TrimSuffix(a.Text, "\n") + "\n[truncated: the file has " + fmt.Sprint(*res.Read.SizeBytes) + " bytes; " + fmt.Sprintf(v.more, max(1, v.first)+told) + "]"
	}
	a.Text += clamps(res.Read.Clamped)
	return a
}

// put gives a file its content.
func (r *run) put(w file.Write, text func(created bool) string) *Answer {
	res, f := r.inFile(api.OpFileWrite, api.FileWrite{SessionID: r.call.SessionID, Write: w})
	if f != nil {
		return r.failed(*f)
	}
	return done(text(res.Write.Created != nil && *res.Write.Created))
}

// edit replaces text in a file.
func (r *run) edit(e file.Edit, text func(*file.EditResult) string) *Answer {
	res, f := r.inFile(api.OpFileEdit, api.FileEdit{SessionID: r.call.SessionID, Edit: e})
	if f != nil {
		return r.failed(*f)
	}
	return done(text(res.Edit))
}

// mostInserted bounds the file into which a line can be inserted: it is read and written whole, in a request, and policy judges no
// larger ones.
const mostInserted = 1 << 20

// inserts are how many such files a desk holds at a time: they are what a call can make it hold most of.
const inserts = 8

// insert puts text behind a line of a file, which is still the file that was read when it is written.
func (r *run) insert(name string, line int64, text string) *Answer {
	leave, f := r.desk.hold(r)
	if f != nil {
		return r.failed(*f)
	}
	defer leave()
	most := int64(mostInserted)
	res, f := r.inFile(api.OpFileRead, api.FileRead{SessionID: r.call.SessionID, Read: file.Read{Target: at(name), MaxBytes: &most}})
	if f != nil {
		return r.failed(*f)
	}
	old, cut := r.content(res.Read.Content, most)
	if cut || res.Read.Truncated || res.Read.SHA256 == "" {
		return r.failed(failure{status: "error", code: api.Code(file.CodeTooLarge), message: "not all of the file could be read, so nothing was inserted"})
	}
	lines := slices.Collect(strings.Lines(old))
	if line < 0 || line > int64(len(lines)) {
		return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: fmt.Sprintf("insert_line is a number from 0 to %d, how many lines the file has", len(lines))})
	}
	ending := "\n"
	if len(lines) > 0 && strings.HasSuffix(lines[0], "\r\n") {
		ending = "\r\n"
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += ending
	}
	if line > 0 && !strings.HasSuffix(lines[line-1], "\n") {
		lines[line-1] += ending
	}
	lines = slices.Insert(lines, int(line), text)
	return r.put(file.Write{Target: at(name), Content: inline(strings.Join(lines, "")), ExpectedSHA256: res.Read.SHA256},
		func(bool) string { return fmt.Sprintf("The text was inserted behind line %d of %s.", line, name) })
}

// patch applies a patch, all of it or nothing.
func (r *run) patch(text string) *Answer {
	res, f := r.inFile(api.OpFilePatch, api.FilePatch{SessionID: r.call.SessionID, Patch: file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}}})
	if f != nil {
		return r.failed(*f)
	}
	var b strings.Builder
	b.WriteString("Success. Updated the following files:\n")
	for _, c := range res.Patch.Changes {
		letter := map[string]string{"add": "A", "delete": "D"}[c.Kind]
		if letter == "" {
			letter = "M"
		}
		fmt.Fprintf(&b, "%s %s\n", letter, c.Path)
	}
	return done(b.String())
}

// grep answers with lines that match, or with the files that have them.
func (r *run) grep(g file.Grep, filesOnly bool) *Answer {
	if filesOnly {
		g.MaxPerFile, g.Before, g.After = 1, 0, 0
	}
	res, f := r.inFile(api.OpFileGrep, api.FileGrep{SessionID: r.call.SessionID, Grep: g})
	if f != nil {
		return r.failed(*f)
	}
	text, cut := r.content(res.Grep.Matches, r.call.Profile.Budget)
	if filesOnly {
		text = onlyPaths(text)
	}
	return r.found(text, cut || res.Grep.Truncated, res.Grep.MatchCount, "match", "No matches found.", res.Grep.Clamped)
}

// found is the answer of a search or a list.
func (r *run) found(text string, cut bool, count *int64, noun, none string, lowered []file.Clamp) *Answer {
	a := done(text)
	if text == "" {
		a.Text = none
	}
	if a.Truncated = cut; cut {
		note := "more than is shown"
		if count != nil {
			note = fmt.Sprintf("%d %s in all", *count, plural(noun, *count))
		}
		a.Text = strings.TrimSuffix(a.Text, "\n") + "\n[truncated: " + note + "]"
	}
	a.Text += clamps(lowered)
	return a
}

func plural(noun string, n int64) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "ch"):
		return noun + "es"
	case strings.HasSuffix(noun, "y"):
		return strings.TrimSuffix(noun, "y") + "ies"
	}
	return noun + "s"
}

// place is where the number of a matching line stands behind its path.
var place = regexp.MustCompile(`:[0-9]+:`)

// onlyPaths takes the text of matching lines away. A line in which the end of the path cannot be told for certain stays whole.
func onlyPaths(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if where := place.FindAllStringIndex(line, 2); len(where) == 1 {
			line = line[:where[0][0]] + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// glob answers with files, newest first.
func (r *run) glob(g file.Glob) *Answer {
	res, f := r.inFile(api.OpFileGlob, api.FileGlob{SessionID: r.call.SessionID, Glob: g})
	if f != nil {
		return r.failed(*f)
	}
	text, cut := r.content(res.Glob.Paths, r.call.Profile.Budget)
	return r.found(text, cut || res.Glob.Truncated, res.Glob.Count, "file", "No files found.", res.Glob.Clamped)
}

// listing is a directory as a model wants it.
type listing struct {
	path   string
	first  int64 // from 1
	most   int64 // 0 is what the grant allows
	ignore []string
	head   string
}

// list answers with the names in a directory.
func (r *run) list(l listing) *Answer {
	if bad := slices.IndexFunc(l.ignore, func(p string) bool { _, err := path.Match(p, ""); return err != nil }); bad >= 0 {
		return r.failed(failure{status: "error", code: api.Code(file.CodeInvalidPattern), message: fmt.Sprintf("%.80q is no pattern of names", l.ignore[bad])})
	}
	first, most := max(1, l.first), l.most
	if most == 0 {
		most = 1000
	}
	last := first + most - 1
	res, f := r.inFile(api.OpFileList, api.FileList{SessionID: r.call.SessionID, List: file.List{Target: at(l.path), MaxResults: &last}})
	if f != nil {
		return r.failed(*f)
	}
	text, cut := r.content(res.List.Entries, r.call.Profile.Budget)
	var b strings.Builder
	number, shown := int64(0), 0
	for line := range strings.Lines(text) {
		number++
		name := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "/")
		if number < first || slices.ContainsFunc(l.ignore, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			continue
		}
		b.WriteString(line)
		shown++
	}
	a := r.found(b.String(), cut || res.List.Truncated, res.List.Count, "entry", "The directory is empty.", res.List.Clamped)
	if shown == 0 && number > 0 {
		a.Text = "Nothing to show: all of the directory is left out by what was asked."
	} else if shown > 0 {
		a.Text = l.head + a.Text
	}
	return a
}

package patch

import (
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/internal/filetool/edit"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// budget bounds how many lines the search for the places of one file's hunks compares. A patch of a
// person or a model needs a thousandth of it.
const budget = 50_000_000

// text is a file as lines.
type text struct {
	lines []string // without endings
	ends  []string // "\n", "\r\n", or "" of the last
	folds [3][]string
	left  int // of the budget
}

func newText(content string) *text {
	t := &text{left: budget}
	for line := range strings.Lines(content) {
		body, end := line, ""
		if strings.HasSuffix(body, "\n") {
			body, end = body[:len(body)-1], "\n"
			if strings.HasSuffix(body, "\r") {
				body, end = body[:len(body)-1], "\r\n"
			}
		}
		t.lines = append(t.lines, body)
		t.ends = append(t.ends, end)
	}
	return t
}

// ending is what most lines end with.
func (t *text) ending() string {
	crlf := 0
	for _, e := range t.ends {
		if e == "\r\n" {
			crlf++
		}
	}
	if crlf*2 > len(t.ends) {
		return "\r\n"
	}
	return "\n"
}

// The passes: what is the same in each.
var passes = [...]func(string) string{
	func(s string) string { return strings.TrimRight(s, " \t\r") },
	func(s string) string { return strings.TrimSpace(s) },
	func(s string) string { return strings.TrimSpace(edit.Fold(s)) },
}

// pass gives the lines of the file as the pass sees them; pass 0 is exact.
func (t *text) pass(n int) []string {
	if n == 0 {
		return t.lines
	}
	if t.folds[n-1] == nil {
		folded := make([]string, len(t.lines))
		for i, l := range t.lines {
			folded[i] = passes[n-1](l)
		}
		t.folds[n-1] = folded
	}
	return t.folds[n-1]
}

func seen(n int, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		if n == 0 {
			out[i] = strings.TrimSuffix(l, "\r")
		} else {
			out[i] = passes[n-1](l)
		}
	}
	return out
}

// find looks for lines at or behind from; near 0 takes the first place, otherwise the one closest to that index. -1 is nowhere.
func (t *text) find(lines []string, from, near int, end bool) int {
	for n := 0; n <= len(passes); n++ {
		file, want := t.pass(n), seen(n, lines)
		if end {
			at := len(file) - len(want)
			// Blank lines at the end of the file are not worth a failure.
			for at >= from {
				if t.at(file, want, at) {
					return at
				}
				if last := at + len(want) - 1; last < 0 || last >= len(file) || strings.TrimSpace(file[last]) != "" {
					break
				}
				at--
			}
			continue
		}
		best := -1
		for i := max(from, 0); i+len(want) <= len(file) && t.left > 0; i++ {
			if !t.at(file, want, i) {
				continue
			}
			if near < 0 {
				return i
			}
			if best < 0 || abs(i-near) < abs(best-near) {
				best = i
			}
			if i >= near {
				break
			}
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}

func (t *text) at(file, want []string, i int) bool {
	for j, w := range want {
		t.left--
		if file[i+j] != w {
			return false
		}
	}
	return true
}

// findHint looks for the line that a hint means, at or behind from: the whole line by the passes, then one that begins with it, then
// one that has it.
func (t *text) findHint(hint string, from int) int {
	if at := t.find([]string{hint}, from, -1, false); at >= 0 {
		return at
	}
	folded, want := t.pass(len(passes)), passes[len(passes)-1](hint)
	for _, fits := range []func(string, string) bool{strings.HasPrefix, strings.Contains} {
		for i := max(from, 0); i < len(folded); i++ {
			if t.left--; fits(folded[i], want) {
				return i
			}
		}
	}
	return -1
}

func abs(n int) int { return max(n, -n) }

// Apply gives the content of a file after an update. Of a deletion it checks what the hunks say is there.
func (f *File) Apply(content string) (string, *file.PatchError) {
	t := newText(content)
	eol := t.ending()
	var out strings.Builder
	out.Grow(len(content) + 256)
	cursor, drift := 0, 0
	for i := range f.Hunks {
		h := &f.Hunks[i]
		at, n, err := f.place(t, h, cursor, drift)
		if err != nil {
			err.Path, err.Hunk = file.Quote(f.Path), int64(i+1)
			return "", err
		}
		if h.strict && h.At > 0 && n > 0 {
			drift = at - (h.At - 1)
		}
		for j := cursor; j < at; j++ {
			out.WriteString(t.lines[j])
			out.WriteString(t.ends[j])
		}
		cursor = t.write(&out, h, at, n, eol)
	}
	for j := cursor; j < len(t.lines); j++ {
		out.WriteString(t.lines[j])
		out.WriteString(t.ends[j])
	}
	return out.String(), nil
}

// write writes a hunk that lies at line at with n old lines, and returns the line behind it.
func (t *text) write(out *strings.Builder, h *Hunk, at, n int, eol string) int {
	pos, last := at, lastNew(h.Lines)
	for i, l := range h.Lines {
		switch {
		case l.Op == '+':
			end := eol
			switch {
			case pos < at+n && t.ends[pos] != "":
				end = t.ends[pos] // of the line that it replaces, or comes before
			case pos > 0 && t.ends[pos-1] != "":
				end = t.ends[pos-1]
			}
			if pos == len(t.lines) && !strings.HasSuffix(out.String(), "\n") && out.Len() > 0 {
				out.WriteString(end) // the last line had no newline, and is not the last any more
			}
			out.WriteString(strings.TrimSuffix(l.Text, "\r"))
			if !h.strict || h.NewEOL || i != last {
				out.WriteString(end)
			}
		case pos >= at+n: // blank lines that the hunk has behind the end of the file
		case l.Op == ' ':
			out.WriteString(t.lines[pos])
			end := t.ends[pos]
			if h.strict && i == last {
				if !h.NewEOL {
					end = ""
				} else if end == "" && !h.OldEOL {
					end = eol
				}
			}
			out.WriteString(end)
			pos++
		default:
			pos++
		}
	}
	return pos
}

func lastNew(lines []Line) int {
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].Op != '-' {
			return i
		}
	}
	return -1
}

// place finds the first line of a hunk, and how many lines of the file it covers.
func (f *File) place(t *text, h *Hunk, cursor, drift int) (at, n int, err *file.PatchError) {
	old := h.old()
	if h.strict {
		return t.placeUnified(h, old, cursor, drift)
	}
	from, hinted := cursor, false
	for _, hint := range h.Hints {
		line := t.findHint(hint, from)
		if line < 0 {
			return 0, 0, t.lost(h, []string{hint}, from, "the line that @@ names is not behind line %d", from)
		}
		from, hinted = line+1, true
	}
	if len(old) == 0 {
		if hinted && !h.End {
			return from, 0, nil
		}
		return len(t.lines), 0, nil
	}
	for _, try := range []struct {
		from int
		old  []string
	}{
		{from, old},
		{from - 1, old}, // the hint is the first line of the hunk as well
		{from, unpadded(old)},
	} {
		if try.from < from && (!hinted || try.from < cursor) || len(try.old) == 0 {
			continue
		}
		if at := t.find(try.old, try.from, -1, h.End); at >= 0 {
			return at, len(try.old), nil
		}
	}
	if t.left <= 0 {
		return 0, 0, t.lost(h, nil, from, "finding this hunk takes more than %d comparisons", budget)
	}
	if h.End {
		return 0, 0, t.lost(h, old, from, "the file does not end with these lines")
	}
	return 0, 0, t.lost(h, old, from, "these lines are not behind line %d", from)
}

// unpadded is lines without blank ones at their end, which are often only the distance to the next hunk.
func unpadded(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func (t *text) placeUnified(h *Hunk, old []string, cursor, drift int) (at, n int, err *file.PatchError) {
	if len(old) == 0 {
		at = min(max(h.At+drift, cursor), len(t.lines)) // a header of no old lines names the line before
		return at, 0, nil
	}
	near := max(h.At-1+drift, 0)
	at = t.find(old, cursor, near, false)
	// A hunk that speaks of a missing newline speaks of the end.
	if !h.OldEOL {
		at = t.find(old, cursor, -1, true)
		if at >= 0 && t.ends[len(t.ends)-1] != "" && at+len(old) == len(t.ends) {
			return 0, 0, t.lost(h, old, cursor, "the last line of the file has a newline, the patch says that it has none")
		}
	}
	if at < 0 {
		if t.left <= 0 {
			return 0, 0, t.lost(h, nil, cursor, "finding this hunk takes more than %d comparisons", budget)
		}
		return 0, 0, t.lost(h, old, cursor, "these lines are not in the file behind line %d", cursor)
	}
	return at, len(old), nil
}

const (
	shownLines = 12
	shownBytes = 240
)

// lost is the error of a hunk without a place, with the place that comes nearest.
func (t *text) lost(h *Hunk, want []string, from int, format string, args ...any) *file.PatchError {
	e := fault(file.CodeHunkRejected, h.Line, format, args...)
	if len(want) == 0 {
		return e
	}
	e.Expected = shown(want)
	best, score := t.nearest(want)
	if score > 0 {
		e.Nearest = &file.Candidate{Line: int64(best + 1), Text: short(t.lines[best])}
		e.Actual = shown(t.lines[best:min(best+len(want), len(t.lines))])
		if best < from && score == len(want) {
			e.Message += "; they are at an earlier line, so the hunks are not in the order of the file"
		}
	}
	return e
}

// nearest is the place at which most lines agree, with white space and quotes folded.
func (t *text) nearest(want []string) (best, score int) {
	lines, folded := t.pass(len(passes)), seen(len(passes), want)
	folded = folded[:min(len(folded), shownLines)]
	if len(lines)*len(folded) > 5_000_000 {
		return 0, 0
	}
	for i := range lines {
		n := 0
		for j, w := range folded {
			if i+j < len(lines) && w != "" && lines[i+j] == w {
				n++
			}
		}
		if n > score {
			best, score = i, n
		}
	}
	return best, score
}

func shown(lines []string) []string {
	lines = slices.Clone(lines[:min(len(lines), shownLines)])
	for i := range lines {
		lines[i] = short(lines[i])
	}
	return lines
}

func short(s string) string {
	if len(s) <= shownBytes {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:shownBytes], "") + "…"
}

package patch

import (
	"strconv"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// parseUnified reads unified diff. What stands before the first header, and between files, is
// prose (a commit message, an e-mail).
func parseUnified(s *source) (*Patch, *file.PatchError) {
	s.unwrap()
	var p Patch
	for s.more() {
		line := s.peek()
		if !strings.HasPrefix(line, "diff --git ") && !s.atFile() {
			if strings.HasPrefix(line, "@@ -") {
				return nil, fault(file.CodePatchParse, s.next+1, "a hunk without a file: --- and +++ are missing")
			}
			s.next++
			continue
		}
		f, err := s.fileUnified()
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, *f)
	}
	if len(p.Files) == 0 {
		return nil, fault(file.CodePatchParse, 1, "no file header (--- and +++) was found")
	}
	return &p, nil
}

func (s *source) atFile() bool {
	return strings.HasPrefix(s.peek(), "--- ") && s.next+1 < len(s.lines) && strings.HasPrefix(s.lines[s.next+1], "+++ ")
}

// header is what the lines before the hunks say.
type header struct {
	from, to        string // as written, without prefix; "" is /dev/null
	newFile, gone   bool
	renamed, marked bool // rename from and to; --- and +++
	exec            *bool
}

func (s *source) fileUnified() (*File, *file.PatchError) {
	start := s.next + 1
	var h header
	if strings.HasPrefix(s.peek(), "diff --git ") {
		h.from, h.to = gitNames(s.peek()[len("diff --git "):])
		s.next++
	}
	for s.more() && !s.atFile() && !strings.HasPrefix(s.peek(), "diff --git ") && !strings.HasPrefix(s.peek(), "@@ ") {
		line := strings.TrimSuffix(s.peek(), "\r")
		if mode := modeOf(line); mode != "" && !strings.HasPrefix(mode, "100") { // the content of a link is where it leads
			return nil, fault(file.CodePatchParse, s.next+1, "mode %.8s: links and submodules are not supported, only files", mode)
		}
		switch {
		case strings.HasPrefix(line, "new file mode "):
			h.newFile, h.exec = true, execOf(line)
		case strings.HasPrefix(line, "deleted file mode "):
			h.gone = true
		case strings.HasPrefix(line, "new mode "):
			h.exec = execOf(line)
		case strings.HasPrefix(line, "rename from "):
			h.from, h.renamed = bare(line[len("rename from "):]), true
		case strings.HasPrefix(line, "rename to "):
			h.to = bare(line[len("rename to "):])
		case strings.HasPrefix(line, "copy from "):
			return nil, fault(file.CodePatchParse, s.next+1, "copies are not supported: add the file instead")
		case strings.HasPrefix(line, "GIT binary patch"), strings.HasPrefix(line, "Binary files "):
			return nil, fault(file.CodePatchParse, s.next+1, "binary patches are not supported")
		case strings.HasPrefix(line, "index "), strings.HasPrefix(line, "old mode "), strings.HasPrefix(line, "similarity index "), strings.HasPrefix(line, "dissimilarity index "):
		default:
			goto body
		}
		s.next++
	}
body:
	if s.more() && s.atFile() {
		from, to := nameOf(s.peek()[4:]), nameOf(s.lines[s.next+1][4:])
		s.next += 2
		h.marked = true
		if !h.renamed {
			h.from, h.to = strip(from, to)
			h.newFile = h.newFile || from == "/dev/null"
			h.gone = h.gone || to == "/dev/null"
		}
	}
	f := &File{Kind: Update, Path: h.from, Line: start, Exec: h.exec}
	for s.more() && strings.HasPrefix(s.peek(), "@@ ") {
		hunk, err := s.hunkUnified()
		if err != nil {
			return nil, err
		}
		f.Hunks = append(f.Hunks, *hunk)
	}
	return f.settle(h, start)
}

// settle makes of header and hunks what they mean.
func (f *File) settle(h header, line int) (*File, *file.PatchError) {
	switch {
	case h.newFile && h.gone:
		return nil, fault(file.CodePatchParse, line, "a file from /dev/null to /dev/null")
	case h.newFile:
		f.Kind, f.Path = Add, h.to
		var b strings.Builder
		for i, hunk := range f.Hunks {
			for j, l := range hunk.Lines {
				if l.Op != '+' {
					return nil, fault(file.CodePatchParse, hunk.Line, "a new file has old lines")
				}
				b.WriteString(l.Text)
				if hunk.NewEOL || i < len(f.Hunks)-1 || j < len(hunk.Lines)-1 {
					b.WriteByte('\n')
				}
			}
		}
		f.Content, f.Hunks = b.String(), nil
	case h.gone:
		f.Kind = Delete
	default:
		if h.to != h.from {
			f.MoveTo = h.to
		}
		if len(f.Hunks) == 0 && f.MoveTo == "" && f.Exec == nil {
			return nil, fault(file.CodePatchParse, line, "a file without a hunk")
		}
	}
	for _, name := range []string{f.Path, f.MoveTo} {
		if msg := file.NameFault(name, name == f.Path); msg != "" {
			return nil, fault(file.CodePatchParse, line, "%s", msg)
		}
	}
	return f, nil
}

func (s *source) hunkUnified() (*Hunk, *file.PatchError) {
	if s.hunks++; s.hunks > maxHunks {
		return nil, fault(file.CodePatchParse, s.next+1, "more than %d hunks", maxHunks)
	}
	head := strings.TrimSuffix(s.peek(), "\r")
	numbers, rest, ok := strings.Cut(strings.TrimPrefix(head, "@@ "), " @@")
	old, fresh, ok2 := hunkNumbers(numbers)
	if !ok || !ok2 {
		return nil, fault(file.CodePatchParse, s.next+1, "%.200q is no hunk header: @@ -line,count +line,count @@", head)
	}
	h := &Hunk{At: old.start, Line: s.next + 1, OldEOL: true, NewEOL: true, strict: true}
	if hint := strings.TrimSpace(rest); hint != "" {
		h.Hints = []string{hint}
	}
	s.next++
	start := s.next
	if !s.counted(h, old.count, fresh.count) {
		// The counts are wrong, as models' often are: the lines say themselves what they are.
		s.next, h.Lines, h.OldEOL, h.NewEOL = start, nil, true, true
		s.prefixed(h)
		if old.count > 0 && len(h.old()) == 0 {
			h.At = max(h.At-1, 0) // it named the first line, not the one before
		}
	}
	changes := false
	for _, l := range h.Lines {
		changes = changes || l.Op != ' '
	}
	if !changes && h.OldEOL == h.NewEOL {
		return nil, fault(file.CodePatchParse, h.Line, "the hunk changes nothing")
	}
	return h, nil
}

// counted reads as many lines as the header says, and reports whether they fit.
func (s *source) counted(h *Hunk, old, fresh int) bool {
	for s.more() && (old > 0 || fresh > 0) {
		line := s.peek()
		if strings.HasPrefix(line, `\`) {
			h.noEOL()
			s.next++
			continue
		}
		op, text := byte(' '), ""
		if line != "" {
			op, text = line[0], line[1:]
		}
		switch op {
		case ' ':
			old, fresh = old-1, fresh-1
		case '-':
			old--
		case '+':
			fresh--
		default:
			return false
		}
		if old < 0 || fresh < 0 {
			return false
		}
		h.Lines = append(h.Lines, Line{op, text})
		s.next++
	}
	if s.more() && strings.HasPrefix(s.peek(), `\`) {
		h.noEOL()
		s.next++
	}
	if old != 0 || fresh != 0 {
		return false
	}
	if !s.more() {
		return true
	}
	next := s.peek()
	return next == "" || !strings.ContainsRune(" -+", rune(next[0])) || s.atFile() || next == "-- " || next == "--"
}

// prefixed reads lines as long as they can be a hunk's.
func (s *source) prefixed(h *Hunk) {
	blank := 0 // lines at the end that are empty, without even a space
	for s.more() && !s.atFile() {
		line := s.peek()
		switch {
		case strings.HasPrefix(line, `\`):
			h.noEOL()
		case line == "":
			h.Lines = append(h.Lines, Line{' ', ""})
			blank++
			s.next++
			continue
		case line[0] == ' ' || line[0] == '-' || line[0] == '+':
			h.Lines = append(h.Lines, Line{line[0], line[1:]})
		default:
			h.Lines = h.Lines[:len(h.Lines)-blank]
			return
		}
		blank = 0
		s.next++
	}
	h.Lines = h.Lines[:len(h.Lines)-blank] // the space before the next file
}

// noEOL notes the marker that stands behind the last line read.
func (h *Hunk) noEOL() {
	if len(h.Lines) == 0 {
		return
	}
	switch h.Lines[len(h.Lines)-1].Op {
	case '-':
		h.OldEOL = false
	case '+':
		h.NewEOL = false
	default:
		h.OldEOL, h.NewEOL = false, false
	}
}

type span struct{ start, count int }

// hunkNumbers reads "-1,2 +3,4".
func hunkNumbers(s string) (old, fresh span, ok bool) {
	a, b, ok := strings.Cut(strings.TrimSpace(s), " ")
	b = strings.TrimSpace(b)
	if !ok || !strings.HasPrefix(a, "-") || !strings.HasPrefix(b, "+") {
		return
	}
	if old, ok = spanOf(a[1:]); !ok {
		return
	}
	fresh, ok = spanOf(b[1:])
	return
}

func spanOf(s string) (span, bool) {
	start, count, has := strings.Cut(s, ",")
	n, err := strconv.ParseInt(start, 10, 32)
	c := int64(1)
	if has && err == nil {
		c, err = strconv.ParseInt(count, 10, 32)
	}
	return span{int(n), int(c)}, err == nil && n >= 0 && c >= 0
}

// modeOf is the mode in a line of git's that has one; "" in others.
func modeOf(line string) string {
	words := strings.Fields(line)
	for _, before := range []string{"new file mode", "deleted file mode", "new mode", "old mode"} {
		if strings.HasPrefix(line, before+" ") {
			return words[len(words)-1]
		}
	}
	if strings.HasPrefix(line, "index ") && len(words) == 3 {
		return words[2]
	}
	return ""
}

func execOf(line string) *bool {
	exec := strings.HasSuffix(modeOf(line), "755")
	return &exec
}

// nameOf is the name in a --- or +++ line, without the time behind it.
func nameOf(s string) string {
	s, _, _ = strings.Cut(strings.TrimSuffix(s, "\r"), "\t")
	return bare(s)
}

func bare(s string) string {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, `"`) {
		if name, ok := file.Unquote(s); ok {
			return name
		}
	}
	return s
}

// strip takes git's a/ and b/ from the two names, if both have them.
func strip(from, to string) (string, string) {
	a, okA := strings.CutPrefix(from, "a/")
	b, okB := strings.CutPrefix(to, "b/")
	if from == "/dev/null" {
		if okB {
			return "", b
		}
		return "", to
	}
	if to == "/dev/null" {
		if okA {
			return a, ""
		}
		return from, ""
	}
	if okA && okB {
		return a, b
	}
	return from, to
}

// gitNames cuts "a/x b/x" in the middle; both names are the same unless other lines say more.
func gitNames(s string) (from, to string) {
	s = strings.TrimSuffix(s, "\r")
	if n := len(s); n%2 == 1 && s[n/2] == ' ' {
		return strip(bare(s[:n/2]), bare(s[n/2+1:]))
	}
	a, b, _ := strings.Cut(s, " ")
	return strip(bare(a), bare(b))
}

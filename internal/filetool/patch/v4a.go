package patch

import (
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
)

const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	addFile    = "*** Add File:"
	deleteFile = "*** Delete File:"
	updateFile = "*** Update File:"
	moveTo     = "*** Move to:"
	endOfFile  = "*** End of File"
)

func parseV4A(s *source) (*Patch, *file.PatchError) {
	s.unwrap()
	if !s.more() || strings.TrimSpace(s.peek()) != beginPatch {
		return nil, fault(file.CodePatchParse, s.next+1, "the first line is not %q", beginPatch)
	}
	s.next++
	var p Patch
	for {
		for s.more() && strings.TrimSpace(s.peek()) == "" {
			s.next++
		}
		if !s.more() {
			return nil, fault(file.CodePatchParse, s.next+1, "the patch ends without %q: it is not whole", endPatch)
		}
		head := strings.TrimSpace(s.peek())
		if head == endPatch {
			s.next++
			break
		}
		f, err := s.fileV4A(head)
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, *f)
	}
	for s.more() {
		if strings.TrimSpace(s.peek()) != "" {
			return nil, fault(file.CodePatchParse, s.next+1, "something follows %q", endPatch)
		}
		s.next++
	}
	if len(p.Files) == 0 {
		return nil, fault(file.CodePatchEmpty, 0, "the patch changes no file")
	}
	return &p, nil
}

func (s *source) fileV4A(head string) (*File, *file.PatchError) {
	f := &File{Line: s.next + 1}
	name := ""
	switch {
	case strings.HasPrefix(head, addFile):
		f.Kind, name = Add, head[len(addFile):]
	case strings.HasPrefix(head, deleteFile):
		f.Kind, name = Delete, head[len(deleteFile):]
	case strings.HasPrefix(head, updateFile):
		f.Kind, name = Update, head[len(updateFile):]
	default:
		return nil, fault(file.CodePatchParse, s.next+1, "%.200q is none of %q, %q, %q, %q", head, addFile, deleteFile, updateFile, endPatch)
	}
	s.next++
	var err *file.PatchError
	if f.Path, err = pathOf(strings.TrimSpace(name), f.Line); err != nil {
		return nil, err
	}
	switch f.Kind {
	case Add:
		var b strings.Builder
		for s.more() && strings.HasPrefix(s.peek(), "+") {
			b.WriteString(strings.TrimSuffix(s.peek()[1:], "\r"))
			b.WriteByte('\n')
			s.next++
		}
		f.Content = b.String()
		if s.more() && !atHeader(s.peek()) {
			return nil, fault(file.CodePatchParse, s.next+1, "%.200q: every line of a new file begins with +", s.peek())
		}
	case Update:
		if s.more() && strings.HasPrefix(strings.TrimSpace(s.peek()), moveTo) {
			s.next++
			if f.MoveTo, err = pathOf(strings.TrimSpace(strings.TrimSpace(s.lines[s.next-1])[len(moveTo):]), s.next); err != nil {
				return nil, err
			}
		}
		for s.more() && !isHeader(s.peek()) {
			h, err := s.hunkV4A(len(f.Hunks) == 0)
			if err != nil {
				return nil, err
			}
			if h != nil {
				f.Hunks = append(f.Hunks, *h)
			}
		}
		if len(f.Hunks) == 0 && f.MoveTo == "" {
			return nil, fault(file.CodePatchParse, f.Line, "the update of %s has no hunk", file.Quote(f.Path))
		}
	}
	return f, nil
}

// pathOf reads a path, which may be quoted.
func pathOf(s string, line int) (string, *file.PatchError) {
	if strings.HasPrefix(s, `"`) {
		if name, ok := file.Unquote(s); ok {
			s = name
		}
	}
	if msg := file.NameFault(s, true); msg != "" {
		return "", fault(file.CodePatchParse, line, "%s", msg)
	}
	return s, nil
}

func isHeader(line string) bool {
	for _, head := range []string{endPatch, addFile, deleteFile, updateFile} {
		if strings.HasPrefix(line, head) {
			return true
		}
	}
	return false
}

// atHeader says the same where no hunk can be: white space before it does not matter there.
func atHeader(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || isHeader(line)
}

// hunkV4A reads the next hunk; nil when there were only blank lines.
func (s *source) hunkV4A(first bool) (*Hunk, *file.PatchError) {
	if s.hunks++; s.hunks > maxHunks {
		return nil, fault(file.CodePatchParse, s.next+1, "more than %d hunks", maxHunks)
	}
	h := &Hunk{Line: s.next + 1}
	for s.more() && strings.HasPrefix(s.peek(), "@@") {
		if hint := hintOf(s.peek()); hint != "" {
			h.Hints = append(h.Hints, hint)
		}
		s.next++
		first = true
	}
	if !first {
		if strings.TrimSpace(s.peek()) == "" {
			s.next++
			return nil, nil
		}
		return nil, fault(file.CodePatchParse, s.next+1, "%.200q: a hunk begins with @@", s.peek())
	}
	for s.more() {
		line := strings.TrimSuffix(s.peek(), "\r")
		switch {
		case strings.TrimSpace(line) == endOfFile && strings.HasPrefix(line, "***"):
			s.next++
			h.End = true
			return s.whole(h)
		case isHeader(line) || strings.HasPrefix(line, "@@"):
			return s.whole(h)
		case line == "":
			h.Lines = append(h.Lines, Line{' ', ""})
		case line[0] == ' ' || line[0] == '-' || line[0] == '+':
			h.Lines = append(h.Lines, Line{line[0], line[1:]})
		default:
			return nil, fault(file.CodePatchParse, s.next+1, "%.200q: a line of a hunk begins with a space, - or +", line)
		}
		s.next++
	}
	return s.whole(h)
}

func (s *source) whole(h *Hunk) (*Hunk, *file.PatchError) {
	for _, l := range h.Lines {
		if l.Op != ' ' {
			return h, nil
		}
	}
	if !s.more() { // the missing end is the better reason
		return h, nil
	}
	return nil, fault(file.CodePatchParse, h.Line, "the hunk changes nothing")
}

// hintOf is what an @@ line says beside line numbers.
func hintOf(line string) string {
	hint := strings.TrimSpace(strings.TrimPrefix(strings.TrimSuffix(line, "\r"), "@@"))
	if strings.HasPrefix(hint, "-") {
		if numbers, rest, ok := strings.Cut(hint, "@@"); ok {
			if _, _, ok := hunkNumbers(numbers); ok {
				return strings.TrimSpace(rest)
			}
		}
	}
	return strings.TrimSpace(strings.TrimSuffix(hint, "@@"))
}

// Package patch reads patches as models and tools write them, and applies them to text. It
// opens no file: what a patch does to a tree is internal/filetool's.
//
// Two formats are read: v4a (*** Begin Patch …), and unified diff with git's headers. Both become one
// [Patch]. What is tolerated is tolerated because models write it and because it can mean only one thing: a heredoc or a code fence around the
// whole, headers with white space before them, a first hunk without @@, CRLF, wrong counts in
// a unified header. What could mean two things is an error, and a patch without its end is one: half a patch is never applied.
//
// Context that differs from the file in white space at the end of lines, in indentation, or in the shape of quotes and dashes is found
// nevertheless, by passes in this order; the first pass that finds a place wins, and in it the first place behind the
// hunk before. Lines that a patch keeps stay as they are in the file, whatever the patch calls them; new ones get the line
// ending of their neighbours.
package patch

import (
	"fmt"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// Kind is what a patch does with one file.
type Kind string

// The kinds. A move is an update that says where to.
const (
	Add    Kind = "add"
	Update Kind = "update"
	Delete Kind = "delete"
)

// Patch is a list of changes, in order. A file may occur more than once; the later change sees the earlier one.
type Patch struct {
	Files []File
}

// File is one change.
type File struct {
	Kind    Kind
	Path    string
	MoveTo  string // of an update; "" stays
	Content string // of Add
	Exec    *bool  // what the patch says of the executable bit; nil says nothing
	Hunks   []Hunk // of Update, and of a unified Delete: what the file must hold
	Line    int    // in the patch, from 1
}

// Hunk is one place in a file.
type Hunk struct {
	Hints  []string // lines that come before it, from the outside in
	At     int      // line in the old file by a unified header, from 1; 0 is unknown
	Lines  []Line
	End    bool // the hunk's end is the file's
	OldEOL bool // unified: the last old line has a newline
	NewEOL bool // unified: the last new line has one
	Line   int  // in the patch, from 1
	strict bool // unified: OldEOL and NewEOL count
}

// Line is one line of a hunk, without its ending.
type Line struct {
	Op   byte // ' ', '-' or '+'
	Text string
}

func (h *Hunk) old() (lines []string) {
	for _, l := range h.Lines {
		if l.Op != '+' {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// Formats are the formats that [Parse] reads.
var Formats = []string{"v4a", "unified"}

// maxHunks bounds the hunks of a patch: what is beyond has not been written by hand.
const maxHunks = 100_000

// Parse reads a patch. format "" is v4a.
func Parse(format, text string) (*Patch, *file.PatchError) {
	lines := split(text)
	if strings.TrimSpace(text) == "" {
		return nil, fault(file.CodePatchEmpty, 0, "the patch is empty")
	}
	switch format {
	case "", "v4a":
		return parseV4A(lines)
	case "unified":
		return parseUnified(lines)
	}
	return nil, fault(file.CodePatchFormat, 0, "the format %.100q is unknown", format)
}

func fault(code file.Code, line int, format string, args ...any) *file.PatchError {
	return &file.PatchError{Code: code, PatchLine: int64(line), Message: fmt.Sprintf(format, args...)}
}

// source is the lines of a patch, without line endings.
type source struct {
	lines []string
	next  int
	hunks int
}

func (s *source) more() bool   { return s.next < len(s.lines) }
func (s *source) peek() string { return s.lines[s.next] }

// split cuts a text into lines. The carriage returns go when every line has one.
func split(text string) *source {
	text = strings.TrimSuffix(text, "\n")
	lines := strings.Split(text, "\n")
	crlf := true
	for i, l := range lines {
		crlf = crlf && (strings.HasSuffix(l, "\r") || i == len(lines)-1)
	}
	if crlf {
		for i := range lines {
			lines[i] = strings.TrimSuffix(lines[i], "\r")
		}
	}
	return &source{lines: lines}
}

// unwrap takes a heredoc or a code fence from around the patch, and blank lines.
func (s *source) unwrap() {
	end := len(s.lines)
	blank := func() {
		for s.next < end && strings.TrimSpace(s.lines[s.next]) == "" {
			s.next++
		}
		for end > s.next && (s.lines[end-1] == "" || s.lines[end-1] == "\r") { // a space is a line of context
			end--
		}
	}
	blank()
	for range 2 {
		if end-s.next < 2 {
			break
		}
		first, last := strings.TrimSpace(s.lines[s.next]), strings.TrimSpace(s.lines[end-1])
		switch {
		case strings.HasPrefix(first, "```") && last == "```":
		case strings.Contains(first, "<<") && last != "" && strings.Trim(first[strings.Index(first, "<<")+2:], "-'\" ") == last:
		default:
			s.lines = s.lines[:end]
			return
		}
		s.next++
		end--
		blank()
	}
	s.lines = s.lines[:end]
}

package api

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The name of a file is bytes, and JSON has text only. A name that is not UTF-8 has two members: the text, with
// U+FFFD for what is not, which people and policies read, and beside it the bytes (base64), which are meant. Of each name there
// is one spelling: the bytes are absent, or empty in a list, where the text is the name.

// Spell returns the two members of a name.
func Spell(name string) (text string, exact []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, "\uFFFD"), []byte(name)
}

// SpellAll returns the two members of a list of names. The second is nil when no name needs it.
func SpellAll(names []string) (texts []string, exact [][]byte) {
	for i, name := range names {
		text, bytes := Spell(name)
		texts = append(texts, text)
		if bytes != nil && exact == nil {
			exact = make([][]byte, len(names))
		}
		if bytes != nil {
			exact[i] = bytes
		}
	}
	return texts, exact
}

// name is the name that two members spell.
func name(text string, exact []byte) string {
	if len(exact) > 0 {
		return string(exact)
	}
	return text
}

// Names are the paths of a commit, as they are on the disk.
func (w *Workspace) Names() []string {
	names := append([]string(nil), w.Paths...)
	for i, exact := range w.PathsBytes {
		names[i] = name(names[i], exact)
	}
	return names
}

// Last is the path that a page of a diff begins behind, as it is on the disk.
func (w *Workspace) Last() string { return name(w.After, w.AfterBytes) }

// Name is the path as it is on the disk.
func (c *Change) Name() string { return name(c.Path, c.PathBytes) }

// spellingFault refuses a second spelling of a name: whoever judges by the text must judge what is meant.
func spellingFault(member, text string, exact []byte) string {
	if want, bytes := Spell(string(exact)); len(exact) > 0 && (bytes == nil || want != text) {
		return member + " is not beside the text of what is not UTF-8, with U+FFFD in it"
	}
	return ""
}

func spellingsFault(w *Workspace) string {
	if len(w.PathsBytes) > 0 && len(w.PathsBytes) != len(w.Paths) {
		return "paths_bytes are not as many as paths"
	}
	for i, exact := range w.PathsBytes {
		if f := spellingFault(fmt.Sprintf("paths_bytes/%d", i), w.Paths[i], exact); f != "" {
			return f
		}
	}
	return ""
}

// named reports whether a request says which paths, paged whether it says which page.
func (w *Workspace) named() bool { return len(w.Paths) > 0 || len(w.PathsBytes) > 0 }
func (w *Workspace) paged() bool { return w.Limit != 0 || w.After != "" || len(w.AfterBytes) > 0 }

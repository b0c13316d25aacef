package api

import (
	"testing"
	"testing/quick"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// hostileNames are names of files that somebody inside has chosen.
var hostileNames = []string{"a", "new\nline", "\x1b[2J", "d/\xff", "\xff\xfe\xff", "\uFFFD", "\xed\xa0\x80", "\x01/\x7f"}

// Every name there is has one spelling, which JSON carries, and which is the name again.
func TestSpell(t *testing.T) {
	spells := func(names ...string) bool {
		texts, exact := SpellAll(names)
		b, err := Encode(&Workspace{SessionID: "s", Paths: texts, PathsBytes: exact})
		if err != nil {
			t.Fatal(err)
		}
		w, fault := Decode[Workspace](b)
		if fault != nil {
			t.Fatal(fault)
		}
		for _, text := range w.Paths {
			if !utf8.ValidString(text) {
				t.Errorf("%q", text)
			}
		}
		if fault := spellingsFault(&w); fault != "" {
			t.Errorf("%q: %s", names, fault)
		}
		return cmp.Equal(names, w.Names())
	}
	if !spells(hostileNames...) {
		t.Error("a name changed")
	}
	for _, name := range hostileNames {
		c := Change{}
		if c.Path, c.PathBytes = Spell(name); c.Name() != name || (c.PathBytes == nil) != utf8.ValidString(name) {
			t.Errorf("%q: %+v", name, c)
		}
	}
	if err := quick.Check(func(name []byte) bool { return spells(string(name)) }, nil); err != nil {
		t.Error(err)
	}
}

package edit

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// R191–R194: exact if there is one, else folded; places are in order, do not overlap, and say what they should; everything
// outside of them stays.
func TestFindAndReplace(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b", " ", "  ", "\t", "\n", "\r\n", "'", "’", "“", `"`, "–", "-", "\u00a0", "é", "日", "\r"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "text"), "")
		old := strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(t, "old"), "")
		m := Find(text, old, false)
		if n := strings.Count(text, old); n > 0 && (m.Fuzzy || len(m.Places) != n) {
			t.Fatalf("%d exact places, found %+v", n, m)
		}
		end := 0
		for _, p := range m.Places {
			if p.Start < end || p.End <= p.Start || p.End > len(text) {
				t.Fatalf("%+v in %d bytes", m, len(text))
			}
			a, _ := fold(text[p.Start:p.End], true, false)
			b, _ := fold(old, true, false)
			if m.trimmed {
				b = strings.TrimSpace(b)
			}
			if a != b && m.Fuzzy {
				t.Fatalf("%q is taken for %q", text[p.Start:p.End], old)
			}
			end = p.End
		}
		out, _ := m.Replace(text, "<>", 1<<20)
		if !utf8.ValidString(out) || strings.Count(out, "<>") != len(m.Places) {
			t.Fatalf("%q", out)
		}
		rest := text
		for i := len(m.Places) - 1; i >= 0; i-- {
			rest = rest[:m.Places[i].Start] + "<>" + rest[m.Places[i].End:]
		}
		if rest != out {
			t.Fatalf("%q, want %q", out, rest)
		}
	})
}

// R192, table 3.4: each quote, dash and space that stands for one of ASCII, in the text and in what is looked for; and what does not.
func TestFolds(t *testing.T) {
	for want, runes := range map[string]string{
		"'": "\u2018\u2019\u201a\u201b\u02bc", `"`: "\u201c\u201d\u201e\u201f", "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
		" ": "\u00a0\u2003\u3000\t\v\f\u0085\u2028", "": "\u00b4\u02d7\u200b",
	} {
		for _, r := range runes {
			for _, pair := range [][2]string{{"a" + string(r) + "b", "a" + want + "b"}, {"a" + want + "b", "a" + string(r) + "b"}} {
				if m := Find("x "+pair[0]+" y", pair[1], false); (len(m.Places) == 1) != (want != "") || want != "" && (!m.Fuzzy || m.Places[0] != Match{2, 2 + len(pair[0])}) {
					t.Errorf("%q in %q: %+v", pair[1], pair[0], m)
				}
			}
			if m := Find("a"+string(r)+"b", "a"+want+"b", true); len(m.Places) != 0 {
				t.Errorf("%U, exactly: %+v", r, m)
			}
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("a  b\r\n“c”", "a b\n\"c\"")
	f.Fuzz(func(t *testing.T, text, old string) {
		if old == "" {
			return
		}
		Find(text, old, false).Replace(text, old, 1<<20)
	})
}

// What would be larger than allowed is not made; line endings count.
func TestReplaceWithinBounds(t *testing.T) {
	m := Find("a\r\na\r\n", "a\n", false)
	if out, ok := m.Replace("a\r\na\r\n", "b\n", 6); !ok || out != "b\r\nb\r\n" {
		t.Errorf("%q %v", out, ok)
	}
	if out, ok := m.Replace("a\r\na\r\n", "b\n", 5); ok {
		t.Errorf("%q", out)
	}
}

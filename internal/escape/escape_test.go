package escape

import "testing"

// T109: what a terminal acts on is taken out whole, and nothing else is.
func TestStrip(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"text", "plain ü\r\n", "plain ü\r\n"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"private", "\x1b[?2004hpaste\x1b[?2004l", "paste"},
		{"intermediate", "\x1b[4 qbar", "bar"},
		{"title, ended by BEL", "\x1b]0;owned\a$ ", "$ "},
		{"title, ended by ST", "\x1b]0;owned\x1b\\$ ", "$ "},
		{"device", "\x1bP1$r0m\x1b\\after", "after"},
		{"application", "\x1b_text\x1b\\after", "after"},
		{"character set", "\x1b(Bafter", "after"},
		{"keypad", "\x1b=after", "after"},
		{"not UTF-8 inside", "\x1b]0;\xff\xfe\aafter", "after"},
		{"not UTF-8 beside", "\xff\x1b[mafter", "\xffafter"},
		{"never ended", "\x1b[1;", "1;"},
		{"an ESC alone", "a\x1b", "a\x1b"},
		{"other controls", "a\a\bb", "a\a\bb"},
	} {
		if got := Strip(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

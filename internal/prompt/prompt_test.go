package prompt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const nonce = "0123456789abcdef0123456789abcdef"

func mark(kind string) string { return "\x1b]133;" + nonce + ";" + kind + "\a" }

// all takes output apart that comes in pieces of so many bytes.
func all(t *testing.T, b string, size int) (text, marks string) {
	t.Helper()
	var have []byte
	for rest := []byte(b); ; {
		n := min(size, len(rest))
		have, rest = append(have, rest[:n]...), rest[n:]
		for {
			piece, m, n := Next(nonce, have, len(rest) == 0)
			text += string(piece)
			if m != nil {
				marks += fmt.Sprintf("%c%s@%d ", m.Kind, m.Arg, len(text))
			}
			if have = have[n:]; n == 0 || len(have) == 0 {
				break
			}
		}
		if len(rest) == 0 {
			if len(have) > 0 {
				t.Errorf("%q is left", have)
			}
			return text, marks
		}
	}
}

// 1.6: marks are taken out, however the output comes in pieces; what is like one stays as it is.
func TestNext(t *testing.T) {
	for _, tt := range []struct{ in, text, marks string }{
		{"plain", "plain", ""},
		{mark("A") + "$ " + mark("B"), "$ ", "A@0 B@2 "},
		{"x" + mark("D;12") + "y", "xy", "D12@1 "},
		{"\x1b]133;A\a\x1b]133;00000000000000000000000000000000;D;0\a", "\x1b]133;A\a\x1b]133;00000000000000000000000000000000;D;0\a", ""},
		{"cut \x1b]133;" + nonce[:30], "cut \x1b]133;" + nonce[:30], ""},
		{"\x1b\x1b" + mark("C"), "\x1b\x1b", "C@2 "},
		{"\x1b]133;" + nonce + ";C somebody else's output in it", "C somebody else's output in it", ""},
		{"\x1b]133;" + nonce + ";D", "D", ""},
	} {
		for size := 1; size <= len(tt.in)+1; size++ {
			if text, marks := all(t, tt.in, size); text != tt.text || marks != tt.marks {
				t.Fatalf("%q by %d: %q, %q", tt.in, size, text, marks)
			}
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add([]byte("x"+mark("D;1")+"y"), true)
	f.Fuzz(func(t *testing.T, b []byte, final bool) {
		text, _, n := Next(nonce, b, final)
		if n < len(text) || n > len(b) || !bytes.HasPrefix(b, text) || final && n == 0 && len(b) > 0 {
			t.Errorf("%d of %d, %d bytes of text", n, len(b), len(text))
		}
		if bytes.Contains(text, prefix(nonce)) {
			t.Error("a nonce is text")
		}
	})
}

func TestExitCode(t *testing.T) {
	for arg, want := range map[string]int{"0": 0, "255": 255, "256": -1, "-1": -1, "": -1, "x": -1} {
		code, ok := Mark{Done, arg}.ExitCode()
		if ok != (want >= 0) || ok && code != want {
			t.Errorf("%q: %d, %v", arg, code, ok)
		}
	}
	if _, ok := (Mark{Prompt, "0"}).ExitCode(); ok {
		t.Error("a prompt has an exit code")
	}
}

// Nonces differ by execution and by secret, and are in nothing that the shell's children are given.
func TestHooks(t *testing.T) {
	if Nonce([]byte("a"), "x") == Nonce([]byte("a"), "y") || Nonce([]byte("a"), "x") == Nonce([]byte("b"), "x") || len(Nonce(nil, "")) != 32 {
		t.Error("nonces")
	}
	for _, tt := range []struct {
		argv []string
		ok   bool
	}{
		{[]string{"/bin/bash", "--login"}, true},
		{[]string{"bash"}, true},
		{[]string{"-bash"}, true},
		{[]string{"/bin/sh", "-i"}, true},
		{[]string{"bash", "-c", "x"}, false},
		{[]string{"bash", "script"}, false},
		{[]string{"python3", "-i"}, false},
	} {
		h, ok := HooksOf(tt.argv, []string{"PROMPT_COMMAND=mine", "ENV=/etc/env"}, nonce, 9)
		if ok != tt.ok {
			t.Errorf("%q: %v", tt.argv, ok)
			continue
		}
		if strings.Contains(strings.Join(h.Env, ""), nonce) || ok && !strings.Contains(h.Script, nonce) {
			t.Errorf("%q: %q", tt.argv, h.Env)
		}
		if strings.Contains(h.Script, "NONCE") {
			t.Errorf("%q: unfilled", tt.argv)
		}
	}
	if h, _ := HooksOf([]string{"bash"}, []string{"PROMPT_COMMAND=mine"}, nonce, 9); !strings.Contains(h.Script, "PROMPT_COMMAND='__stockade_prompt;mine'\n") {
		t.Errorf("what was there before: %s", h.Script)
	}
}

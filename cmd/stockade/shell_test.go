package main

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is typed is the shell's, but for the keys that leave it, one soon after the other.
func TestDetachKeys(t *testing.T) {
	keys, err := parseKeys("ctrl-p,ctrl-q")
	if err != nil || string(keys) != "\x10\x11" {
		t.Fatalf("%q, %v", keys, err)
	}
	for _, tt := range []struct {
		name  string
		typed []string // "" is a while in which nothing is
		sent  string
		away  bool
	}{
		{"others", []string{"ls\r"}, "ls\r", false},
		{"both", []string{"a\x10\x11b"}, "a", true},
		{"one after the other", []string{"a\x10", "\x11"}, "a", true},
		{"the first, and another", []string{"\x10", "x"}, "\x10x", false},
		{"the first twice", []string{"\x10\x10", "\x11"}, "\x10", true},
		{"the second alone", []string{"\x11"}, "\x11", false},
		{"the first alone", []string{"\x10", ""}, "\x10", false},
		{"the second too late", []string{"\x10", "", "\x11"}, "\x10\x11", false},
		{"nothing", []string{""}, "", false},
	} {
		d := &desk{o: &shellOptions{}, raw: true, detach: keys}
		var sent strings.Builder
		away := false
		for _, text := range tt.typed {
			if text == "" {
				sent.Write(d.release())
				continue
			}
			send, left := d.press([]byte(text))
			sent.Write(send)
			away = away || left
		}
		if sent.String() != tt.sent || away != tt.away {
			t.Errorf("%s: %q, %v", tt.name, &sent, away)
		}
	}
	for _, bad := range []string{"ctrl-", "ctrl-\u00e9", "xy", "ctrl-p,"} {
		if _, err := parseKeys(bad); err == nil {
			t.Errorf("%q is keys", bad)
		}
	}
}

// R258: a recording is played back as text, from a time to another, and by what its lines say; nothing of it acts on a terminal.
func TestCastLines(t *testing.T) {
	const cast = `{"version": 2, "width": 80, "height": 24}
[0.5, "o", "one\r\ntw"]
[1.5, "i", "typed"]
[2.25, "o", "o \u001b[31mred\u001b[0m\r\nold\rnew \u009b31m\u0007\r\n"]
[3661.5, "o", "last"]
`
	events, err := readCast(strings.NewReader(cast))
	if err != nil {
		t.Fatal(err)
	}
	one, two, three, last := "0:00:00.500  one\n", "0:00:00.500  two red\n", "0:00:02.250  new \uFFFD31m\uFFFD\n", "1:01:01.500  last\n"
	for _, tt := range []struct {
		name     string
		from, to time.Duration
		grep     string
		want     string
		fails    bool
	}{
		{"all", 0, math.MaxInt64, "", one + two + three + last, false},
		{"from", time.Second, math.MaxInt64, "", three + last, false},
		{"to", 0, 3 * time.Second, "", one + two + three, false},
		{"between", time.Second, time.Minute, "", three, false},
		{"grep", 0, math.MaxInt64, "^(two|last)", two + last, false},
		{"grep, of what was written over", 0, math.MaxInt64, "old", "", true},
		{"grep, of what was typed", 0, math.MaxInt64, "typed", "", true},
		{"grep, from", time.Hour, math.MaxInt64, "one|last", last, false},
	} {
		var pattern *regexp.Regexp
		if tt.grep != "" {
			pattern = regexp.MustCompile(tt.grep)
		}
		var out bytes.Buffer
		c := &cli{stdout: &out}
		err := c.castLines(events, pattern, &playOptions{from: tt.from, to: tt.to})
		if diff := cmp.Diff(tt.want, out.String()); diff != "" || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %s", tt.name, err, diff)
		}
	}
	for _, bad := range []string{"", "{}", "{\"version\": 1}", "{\"version\": 2}\n[1, \"o\"]", "{\"version\": 2}\n[-1, \"o\", \"x\"]", "{\"version\": 2}\n[1e300, \"o\", \"x\"]"} {
		if _, err := readCast(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is an asciicast", bad)
		}
	}
}

// T109: JSON means what it did, and no terminal acts on it.
func TestJSONIsInert(t *testing.T) {
	text := "plain gr\u00fcn \U0001F600 \x1b[31m \x07 \u009b31m \u009d0;owned\u009c \u007f \u202e \u00a0 \U000e0041"
	var out bytes.Buffer
	c := &cli{stdout: &out}
	if err := c.line(map[string]string{text: text}); err != nil {
		t.Fatal(err)
	}
	if err := document(&out, []string{text}); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r != '\n' && (r < ' ' || r >= 0x7f && printable(string(r)) != string(r)) {
			t.Errorf("%U is in %q", r, &out)
		}
	}
	var one map[string]string
	var all []string
	d := json.NewDecoder(&out)
	if err := d.Decode(&one); err != nil || one[text] != text {
		t.Errorf("%q, %v", one, err)
	}
	if err := d.Decode(&all); err != nil || len(all) != 1 || all[0] != text {
		t.Errorf("%q, %v", all, err)
	}
	if plain := []byte(`{"a": "gr\u00fcn"}`); &inert(plain)[0] != &plain[0] {
		t.Error("what is plain is copied")
	}
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/docker/go-units"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// document writes v as one indented JSON document.
func document(w io.Writer, v any) error {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	_, err = w.Write(append(inert(b), '\n'))
	return err
}

// inert writes what a terminal would act on as escapes, in a JSON text, which means the same with them. What is ASCII is written so already,
// but for DEL; of the rest a terminal knows C1 controls.
func inert(b []byte) []byte {
	acts := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if !bytes.ContainsFunc(b, acts) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) { // it is UTF-8
		switch {
		case !acts(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// table writes rows in columns.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// printable replaces what a terminal would act on. Names, labels and messages may have been
// chosen inside a sandbox.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// shown is where what came out of a session is written: to a terminal as text that it does not act on, to anything else as it is.
func shown(to io.Writer) io.Writer {
	if !terminal(to) {
		return to
	}
	return &plain{to: to}
}

// plain writes text without what a terminal would act on: lines and tabs stay. What may be a part of something waits for the rest of it.
type plain struct {
	to   io.Writer
	rest []byte
}

func (p *plain) Write(b []byte) (int, error) {
	all := append(p.rest, b...)
	var out strings.Builder
	for len(all) > 0 {
		r, n := utf8.DecodeRune(all)
		switch {
		case !utf8.FullRune(all), r == '\r' && len(all) == 1:
			p.rest = bytes.Clone(all)
			_, err := io.WriteString(p.to, out.String())
			return len(b), err
		case r == '\r' && all[1] == '\n': // of a terminal's output, the end of a line
		case r == '\n', r == '\t':
			out.WriteRune(r)
		default:
			out.WriteString(printable(string(r)))
		}
		all = all[n:]
	}
	p.rest = nil
	_, err := io.WriteString(p.to, out.String())
	return len(b), err
}

// pairs formats a map as k=v,k=v in order of the keys.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

// size reads a number of bytes: 512M, 1.5GiB, 1048576. Units are powers of two.
func size(s string) (int64, error) {
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("size %q: want a positive number of bytes such as 512M", s)
	}
	return n, nil
}

// cpus reads a number of CPUs and gives thousandths: 1, 0.5, 2.25.
func cpus(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0.001 && f <= 1<<20) {
		return 0, fmt.Errorf("cpus %q: want a number of CPUs such as 1 or 0.5", s)
	}
	return int64(f*1000 + 0.5), nil
}

func amount(n int64) string { return units.BytesSize(float64(n)) }

// span is a length of time to three digits.
func span(ns int64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

package file

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote is how a name appears in texts: as it is, or, where it has control characters, is not UTF-8, or begins with a
// quotation mark, between quotation marks with the escapes of C (\n, \t, \", \\, \033, \377). So every line
// of such a text is one name, no terminal obeys it, and [Unquote] gives back the bytes.
func Quote(name string) string {
	if plain(name) {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			for _, c := range []byte(name[:n]) {
				b.WriteByte('\\')
				b.WriteString(strconv.FormatUint(uint64(c)|1<<9, 8)[1:])
			}
		default:
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	b.WriteByte('"')
	return b.String()
}

func plain(name string) bool {
	if strings.HasPrefix(name, `"`) || !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Unquote undoes [Quote]. ok is false for what Quote does not write.
func Unquote(s string) (name string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return s, plain(s)
	}
	if len(s) < 2 || !strings.HasSuffix(s, `"`) {
		return "", false
	}
	var b strings.Builder
	for s = s[1 : len(s)-1]; s != ""; {
		if s[0] == '"' {
			return "", false
		}
		if s[0] != '\\' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		if len(s) < 2 {
			return "", false
		}
		switch s[1] {
		case 'n', 't', 'r', '"', '\\':
			b.WriteByte(map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '"': '"', '\\': '\\'}[s[1]])
			s = s[2:]
		default:
			if len(s) < 4 {
				return "", false
			}
			c, err := strconv.ParseUint(s[1:4], 8, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(c))
			s = s[4:]
		}
	}
	return b.String(), true
}

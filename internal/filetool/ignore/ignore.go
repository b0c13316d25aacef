// Package ignore reads ignore files as git does, and says of paths whether they are named. It opens no file.
package ignore

import (
	"strings"

	"github.com/stockade-dev/stockade/internal/filetool/glob"
)

// Rules are the rules of a directory and of those above it.
type Rules struct {
	above *Rules
	dir   string // relative; "" is the top
	rules []rule
}

type rule struct {
	pattern *glob.Pattern
	base    bool // held against the name only
	dirs    bool // directories only
	negate  bool
}

// maxRules bounds the rules of one file.
const maxRules = 10_000

// With gives the rules with those of a file in a directory, which are stronger.
func (r *Rules) With(dir, text string) *Rules {
	out := &Rules{above: r, dir: dir}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if rule, ok := parse(line); ok {
			if out.rules = append(out.rules, rule); len(out.rules) == maxRules {
				break
			}
		}
	}
	return out
}

func parse(line string) (r rule, ok bool) {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return r, false
	}
	line, r.negate = strings.CutPrefix(line, "!")
	line, r.dirs = strings.CutSuffix(line, "/")
	r.base = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	// Git knows no braces.
	line = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(line)
	if rest, ok := strings.CutSuffix(line, "/**"); ok {
		line = rest + "/**/*" // what is in it, not itself
	}
	var err error
	r.pattern, err = glob.Compile(line, false)
	return r, err == nil && line != ""
}

// Ignored reports whether a path is named: by the last rule that fits it, of the innermost file that has one. Paths
// below an ignored directory are not asked for.
func (r *Rules) Ignored(path string, dir bool) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for ; r != nil; r = r.above {
		rel := path
		if r.dir != "" {
			rel = strings.TrimPrefix(path, r.dir+"/")
		}
		for i := len(r.rules) - 1; i >= 0; i-- {
			rule := &r.rules[i]
			if rule.dirs && !dir {
				continue
			}
			at := rel
			if rule.base {
				at = name
			}
			if rule.pattern.Match(at) {
				return !rule.negate
			}
		}
	}
	return false
}

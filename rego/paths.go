package rego

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// tryPaths changes paths, in the request and in what was found out about them at once.
func (a *auditor) tryPaths(ctx context.Context, s *specimen) {
	seen := map[string]bool{}
	places(s.doc, nil, func(at []string, v ast.Value) {
		p, ok := v.(ast.String)
		if !ok || !strings.HasPrefix(string(p), "/") || seen[string(p)] || at[0] == "ceiling" || regionOf(at) == ofGrant || ctx.Err() != nil {
			return
		}
		seen[string(p)] = true
		if s.base.allow {
			a.trySiblings(ctx, s, at, string(p))
		} else if at[0] == "facts" {
			a.tryParents(ctx, s, at, string(p))
		}
	})
}

// trySiblings asks about a directory whose name begins like a granted one's. Where a stranger's is denied, it
// was granted for its first letters. A path that climbs out is no better than where it leads.
func (a *auditor) trySiblings(ctx context.Context, s *specimen, at []string, p string) {
	allowed := func(to string) (ast.Value, verdict) {
		doc := move(s.doc, p, to)
		return doc, a.ask(ctx, s.Entrypoint, doc, nil)
	}
	for dir, rest := p, ""; dir != "/" && dir != "."; dir, rest = path.Dir(dir), "/"+path.Base(dir)+rest {
		doc, v := allowed(dir + "x" + rest)
		if !v.allow || v.caught != "" {
			continue
		}
		if stranger, no := allowed(path.Join(path.Dir(dir), unknown) + rest); !no.allow {
			why := fmt.Sprintf("%s is allowed because it begins like %s: compare with a slash at the end of both", dir+"x"+rest, dir)
			a.report(ctx, s, spoiled{"sibling", at, doc, v, nil, why, stranger})
			return
		}
	}
	if at[0] != "request" {
		return // what was found out has no detours
	}
	out := p + strings.Repeat("/..", strings.Count(p, "/")) + "/etc"
	if doc, v := allowed(out); v.allow && v.caught == "" {
		if direct, no := allowed("/etc"); !no.allow {
			a.report(ctx, s, spoiled{"climb", at, doc, v, nil, out + " is allowed, and leads to /etc, which is denied", direct})
		}
	}
}

// tryParents asks for the directories that a denied source lies in.
func (a *auditor) tryParents(ctx context.Context, s *specimen, at []string, p string) {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		doc := move(s.doc, p, dir)
		if v := a.ask(ctx, s.Entrypoint, doc, nil); v.allow && v.caught == "" {
			a.report(ctx, s, spoiled{"parent", at, doc, v, nil, fmt.Sprintf("%s is denied, and %s, which it lies in, is allowed", p, dir), nil})
			return
		}
		if dir == "/" || dir == "." {
			return
		}
	}
}

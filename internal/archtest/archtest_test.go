package archtest

import (
	"slices"
	"strings"
	"testing"
)

func tree(t *testing.T) map[string]Package {
	t.Helper()
	list, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Package{}
	for _, p := range list {
		out[p.Path] = p
	}
	return out
}

func rows() map[string]Row {
	out := map[string]Row{}
	for _, r := range Table {
		out[r.Path] = r
	}
	return out
}

func TestEveryPackageHasARow(t *testing.T) {
	table := rows()
	for path, p := range tree(t) {
		if _, ok := table[path]; !ok && !p.TestOnly {
			t.Errorf("package %s has no row in the import table", path)
		}
	}
}

func TestEveryRowHasAPackage(t *testing.T) {
	packages := tree(t)
	for _, r := range Table {
		if _, ok := packages[r.Path]; !ok {
			t.Errorf("row %s names no package", r.Path)
		}
	}
}

func TestTableRunsOneWay(t *testing.T) {
	seen := map[string]bool{}
	later := map[string]bool{}
	for _, r := range Table {
		later[r.Path] = true
	}
	for _, r := range Table {
		seen[r.Path] = true
		delete(later, r.Path)
		for _, dep := range r.Ours {
			if !seen[dep] || dep == r.Path {
				t.Errorf("row %s names %s, which does not stand above it", r.Path, dep)
			}
		}
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	table := rows()
	for path, p := range tree(t) {
		row := table[path]
		for _, imp := range p.Imports {
			if ours, ok := inside(imp); ok {
				if !slices.Contains(row.Ours, ours) {
					t.Errorf("%s imports %s: not in its row", path, ours)
				}
				continue
			}
			if (foreign(imp) || imp == cpath) && !slices.ContainsFunc(row.Theirs, func(m string) bool { return below(imp, m) }) {
				t.Errorf("%s imports %s: not in its row", path, imp)
			}
		}
	}
}

// A row that permits more than is used would be a hole that nobody sees.
func TestRowsSayNoMore(t *testing.T) {
	packages := tree(t)
	for _, row := range Table {
		p := packages[row.Path]
		for _, ours := range row.Ours {
			if !slices.Contains(p.Imports, Module+"/"+ours) {
				t.Errorf("row %s permits %s, which is not imported", row.Path, ours)
			}
		}
		for _, theirs := range row.Theirs {
			if !slices.ContainsFunc(p.Imports, func(imp string) bool { return below(imp, theirs) }) {
				t.Errorf("row %s permits %s, which is not imported", row.Path, theirs)
			}
		}
	}
}

func TestModulesEnterByTheirGates(t *testing.T) {
	for path, p := range tree(t) {
		for _, imp := range p.Imports {
			for _, g := range Gates {
				if below(imp, g.Module) && !slices.ContainsFunc(g.Only, func(d string) bool { return below(path, d) }) {
					t.Errorf("%s imports %s, which enters only at %s", path, imp, strings.Join(g.Only, ", "))
				}
			}
		}
	}
}

func TestCommandsReachOnlyWhatTheyMay(t *testing.T) {
	packages := tree(t)
	for path := range packages {
		if !strings.HasPrefix(path, "cmd/") {
			continue
		}
		for imp, via := range reach(packages, path) {
			for _, w := range Walls {
				if below(imp, w.Module) && !slices.Contains(w.Only, path) {
					t.Errorf("%s reaches %s through %s", path, imp, via)
				}
			}
		}
	}
}

// The guest runs as PID 1 inside every session: it is small, static and has nothing
// of others but the system call numbers.
func TestGuestIsSmall(t *testing.T) {
	for imp, via := range reach(tree(t), "cmd/stockade-init") {
		if foreign(imp) && !below(imp, unix) || imp == cpath {
			t.Errorf("stockade-init reaches %s through %s", imp, via)
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for path, p := range tree(t) {
		if !p.TestOnly && len(p.Docs) != 1 {
			t.Errorf("package %s has %d package comments %v, want one", path, len(p.Docs), p.Docs)
		}
	}
}

// reach gives every import that a package reaches through packages of ours, with the
// package of ours that imports it.
func reach(packages map[string]Package, from string) map[string]string {
	out := map[string]string{}
	visited := map[string]bool{}
	var visit func(string)
	visit = func(path string) {
		if visited[path] {
			return
		}
		visited[path] = true
		for _, imp := range packages[path].Imports {
			if ours, ok := inside(imp); ok {
				visit(ours)
				continue
			}
			out[imp] = path
		}
	}
	visit(from)
	return out
}

// Package archtest keeps the walls between packages: which package may import
// which, where a foreign module may enter, and what each binary may reach. The
// table in table.go is the promise; the tests read the imports of the tree with
// go/parser and compare. It has no code that ships.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the tree.
const Module = "github.com/stockade-dev/stockade"

// Package is what one directory of the tree imports.
type Package struct {
	Path     string   // below Module, e.g. "sandbox/runc"
	Name     string   // of the package clause
	Docs     []string // files that carry a package comment
	Imports  []string // of the files that ship, sorted
	TestOnly bool     // the directory has nothing but tests
}

// Load reads every package below root. Directories that the go command ignores are
// left out (testdata, names that begin with a dot or an underscore, nested modules), and
// so is the build directory.
func Load(root string) ([]Package, error) {
	var out []Package
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != root && ignored(dir, d.Name()) {
			return filepath.SkipDir
		}
		p, found, err := load(root, dir)
		if err != nil || !found {
			return err
		}
		out = append(out, p)
		return nil
	})
	return out, err
}

func ignored(dir, name string) bool {
	if name == "testdata" || name == "build" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func load(root, dir string) (p Package, found bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return Package{}, false, err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return Package{}, false, err
	}
	p = Package{Path: filepath.ToSlash(rel), TestOnly: true}
	imports := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return Package{}, false, fmt.Errorf("parse %s: %w", file, err)
		}
		if documents(f) {
			p.Docs = append(p.Docs, filepath.Base(file))
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		p.TestOnly, p.Name = false, f.Name.Name
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return Package{}, false, fmt.Errorf("import in %s: %w", file, err)
			}
			imports[path] = true
		}
	}
	for path := range imports {
		p.Imports = append(p.Imports, path)
	}
	slices.Sort(p.Imports)
	return p, true, nil
}

// documents says whether a file carries a package comment: one that is more than
// a directive.
func documents(f *ast.File) bool { return f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" }

// inside gives the path of an import below Module, and whether it is one of ours.
func inside(path string) (string, bool) { return strings.CutPrefix(path, Module+"/") }

// foreign says whether an import comes from another module. Import paths of the standard
// library have no dot in their first element.
func foreign(path string) bool {
	if path == Module || strings.HasPrefix(path, Module+"/") {
		return false
	}
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}

// below says whether path is prefix or lies below it.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

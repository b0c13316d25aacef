package rego

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// Bundle is a policy tree that parsed: modules, their tests and data. A data file
// dir/x.json is merged into the document data.dir; two files that set the same
// member are an error.
type Bundle struct {
	Modules    map[string]*ast.Module // what decides, by path
	Tests      map[string]*ast.Module // *_test.rego, by path
	Data       ast.Object
	Digest     string // sha256:<hex> over the sorted paths and contents of modules and data; tests decide nothing
	DataDigest string // the same over data alone
}

// ReadBundle reads every *.rego and *.json of fsys. Names that begin with a dot are left out.
func ReadBundle(fsys fs.FS) (*Bundle, error) {
	return readBundle(fsys, parts{rules: true, tests: true})
}

// ReadData is ReadBundle without the modules: it digests them, and parses nothing of them.
func ReadData(fsys fs.FS) (*Bundle, error) { return readBundle(fsys, parts{}) }

// parts are what is parsed of a tree beside its data.
type parts struct{ rules, tests bool }

func readBundle(fsys fs.FS, parse parts) (*Bundle, error) {
	b := &Bundle{Modules: map[string]*ast.Module{}, Tests: map[string]*ast.Module{}, Data: ast.NewObject()}
	digest, dataDigest := sha256.New(), sha256.New()
	var errs []error
	// WalkDir goes in lexical order of path elements, so the digest does not depend on the host.
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		ext := path.Ext(name)
		if ext != ".rego" && ext != ".json" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		test := strings.HasSuffix(name, "_test.rego")
		if !test {
			digestFile(digest, name, text)
		}
		switch {
		case ext == ".json":
			digestFile(dataDigest, name, text)
			err = b.addData(name, text)
		case test && parse.tests:
			err = addModule(b.Tests, name, text)
		case !test && parse.rules:
			err = addModule(b.Modules, name, text)
		}
		if err != nil {
			errs = append(errs, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	b.Digest = "sha256:" + hex.EncodeToString(digest.Sum(nil))
	b.DataDigest = "sha256:" + hex.EncodeToString(dataDigest.Sum(nil))
	return b, nil
}

func digestFile(h hash.Hash, name string, text []byte) {
	fmt.Fprintf(h, "%d %s %d\n", len(name), name, len(text))
	h.Write(text)
}

// DataAt decodes the document data.NAME, strictly; found is false when there is none.
func (b *Bundle) DataAt(name string, into any) (found bool, err error) {
	t := b.Data.Get(ast.InternedTerm(name))
	if t == nil {
		return false, nil
	}
	text, err := appendJSON(nil, t.Value)
	if err == nil {
		err = json.Unmarshal(text, into, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return true, fmt.Errorf("data.%s: %w", name, err)
	}
	return true, nil
}

func addModule(into map[string]*ast.Module, name string, text []byte) error {
	m, err := ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{
		ProcessAnnotation: true,
		RegoVersion:       ast.RegoV1,
		Capabilities:      capabilities(),
	})
	if err != nil {
		return sourceError(err)
	}
	if m == nil {
		return fmt.Errorf("%s: empty module", name)
	}
	into[name] = m
	return nil
}

func (b *Bundle) addData(name string, text []byte) error {
	v, err := parseJSON(bytes.TrimSpace(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	doc, ok := v.(ast.Object)
	if !ok {
		return fmt.Errorf("%s: data must be an object", name)
	}
	dirs := strings.Split(path.Dir(name), "/")
	for _, dir := range slices.Backward(dirs) {
		if dir != "." {
			doc = ast.NewObject(ast.Item(ast.StringTerm(dir), ast.NewTerm(doc)))
		}
	}
	merged, ok := b.Data.Merge(doc)
	if !ok {
		return fmt.Errorf("%s: sets a member of data that another file sets", name)
	}
	b.Data = merged
	return nil
}

// Member is a member of the top of the data as JSON; nil when there is none.
func (b *Bundle) Member(name string) []byte {
	t := b.Data.Get(ast.StringTerm(name))
	if t == nil {
		return nil
	}
	return plain(t)
}

// ruleLabel marks, in the annotations of a rule, where the rule stands.
const ruleLabel = "stockade.rule"

// Compile compiles what decides, strictly and under our capabilities, and returns the
// compiler and the store of the data.
func (b *Bundle) Compile() (*ast.Compiler, storage.Store, error) {
	store := inmem.NewFromASTObject(b.Data)
	modules := map[string]*ast.Module{}
	for name, m := range b.Modules {
		if !masks(m) {
			modules[name] = bare(m)
		}
	}
	if len(modules) < len(b.Modules) {
		if _, err := b.Masker(); err != nil {
			return nil, nil, err
		}
	}
	version, err := ContractOf(b)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entrypoints {
		if version < typedSince {
			break
		}
		// A package says once what its input is, in whichever of its files.
		for _, m := range modules {
			if m.Package.Path.Equal(e.pkg()) {
				m.Annotations = append(m.Annotations, e.typed(m))
				break
			}
		}
	}
	c := newCompiler(store)
	if c.Compile(modules); c.Failed() {
		return nil, nil, sourceError(c.Errors)
	}
	locate(c)
	return c, store, nil
}

func newCompiler(store storage.Store) *ast.Compiler {
	return ast.NewCompiler().
		WithCapabilities(capabilities()).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(true).
		WithSchemas(inputSchema()).
		WithUseTypeCheckAnnotations(true).
		WithPathConflictsCheck(func(path []string) (bool, error) { return holds(store, path) })
}

// holds reports whether data has a value at path, where a rule wants to put one.
func holds(store storage.Store, path []string) (found bool, err error) {
	ctx := context.Background()
	err = storage.Txn(ctx, store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		found, err = storage.NonEmpty(ctx, store, txn)(path)
		return err
	})
	return found, err
}

// bare returns a copy of m without annotations.
func bare(m *ast.Module) *ast.Module {
	m = m.Copy()
	m.Annotations = nil
	return m
}

// locate gives the rules that speak for a decision their place as a label. OPA's tracker of evaluated rules reports
// labels, so this is what attributes a decision to rules at a fraction of the cost of a tracer.
//
// It does so after the compiler has made its set of annotations. The tracker looks up what applies to each rule that is
// evaluated, by the names of its package and all above it, once any rule of the set has a label; that would cost as
// much as an expression for each rule that only helps. Where the set has none it looks at the rule itself, and takes
// the annotations that it finds there if the set does not know the rule's module: hence the copy.
func locate(c *ast.Compiler) {
	for _, m := range c.Modules {
		if !entryPackage(m) {
			continue
		}
		unknown := *m
		for _, r := range m.Rules {
			if speaks(r) {
				where := &ast.Annotations{Scope: "rule", Location: r.Location, Labels: map[string]any{ruleLabel: ruleName(r)}}
				r.Annotations = []*ast.Annotations{where.Copy(r)}
				r.Module = &unknown
			}
		}
	}
}

// entryPackage reports a module in the package of an entry point.
func entryPackage(m *ast.Module) bool {
	return slices.ContainsFunc(entrypoints, func(e entrypoint) bool { return m.Package.Path.Equal(e.pkg()) })
}

// speaks reports a rule that answers, grants, or puts an element into a set, such as deny.
func speaks(r *ast.Rule) bool {
	return r.Head.Name == "decision" || r.Head.Name == "grant" || r.Head.Key != nil && r.Head.Value == nil
}

// titles are the titles that METADATA gives to rules, by their names.
func (b *Bundle) titles() map[string]string {
	titles := map[string]string{}
	for _, m := range b.Modules {
		for _, r := range m.Rules {
			for _, a := range r.Annotations {
				titles[ruleName(r)] = a.Title
			}
		}
	}
	return titles
}

// labels are the labels that METADATA gives to the rules that speak for a decision, those of their packages included, by their names:
// "name=value". The tracker would report them itself, and write them as JSON each time a rule is evaluated.
func (b *Bundle) labels() (map[string][]string, error) {
	set, errs := ast.BuildAnnotationSet(slices.Collect(maps.Values(b.Modules)))
	if len(errs) > 0 {
		return nil, sourceError(errs)
	}
	all := map[string][]string{}
	for _, m := range b.Modules {
		for _, r := range m.Rules {
			if !speaks(r) {
				continue
			}
			labels, _ := set.MergedLabels(r)
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				all[ruleName(r)] = append(all[ruleName(r)], fmt.Sprintf("%s=%v", name, labels[name]))
			}
		}
	}
	return all, nil
}

// accepted are the findings of an audit that METADATA accepts, by name of the rule: custom: {audit: {FIELD: REASON}}.
func (b *Bundle) accepted() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, m := range b.Modules {
		for _, r := range m.Rules {
			for _, a := range r.Annotations {
				fields, ok := a.Custom["audit"].(map[string]any)
				if !ok {
					continue
				}
				all[ruleName(r)] = map[string]string{}
				for field, reason := range fields {
					all[ruleName(r)][field] = fmt.Sprint(reason)
				}
			}
		}
	}
	return all
}

// ruleName is how records name a rule: "file:line package.rule".
func ruleName(r *ast.Rule) string {
	pkg := strings.TrimPrefix(r.Module.Package.Path.String(), "data.")
	return fmt.Sprintf("%s:%d %s.%s", r.Location.File, r.Location.Row, pkg, r.Head.Ref().GroundPrefix())
}

// sourceError turns OPA's errors into lines of "file:line: message".
func sourceError(err error) error {
	var list ast.Errors
	if !errors.As(err, &list) {
		return err
	}
	list = slices.Clone(list)
	list.Sort()
	var errs []error
	for _, e := range list {
		msg := e.Message
		if name, ok := strings.CutPrefix(msg, "undefined function "); ok && knownBuiltin(name) {
			msg = "builtin " + name + " is not available to policies"
		}
		if e.Location == nil {
			errs = append(errs, errors.New(msg))
			continue
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s", e.Location.File, e.Location.Row, msg))
	}
	return errors.Join(errs...)
}

func knownBuiltin(name string) bool {
	_, ok := ast.BuiltinMap[name]
	return ok
}

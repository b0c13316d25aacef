package rego

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
	"github.com/open-policy-agent/opa/v1/types"
)

// Words for questions about whole lists. A rule in Rego asks them of each element, in several expressions; of twenty mounts,
// or the arguments of a command, that was most of a decision. Each gives those elements for which something holds, or says
// whether there is any, and knows nothing of sessions or grants. An operand of another type is an error, as with OPA's own, and denies.
var vocabulary = []struct {
	decl *ast.Builtin
	f    topdown.BuiltinFunc
}{
	{word("longer", "The places of the texts of a list that have more bytes than a number.",
		[]types.Type{types.Named("texts", types.NewArray(nil, types.S)), types.Named("bytes", types.N)}, types.SetOfNum), textsLonger},
	{word("named", "Those of the names, or of the members' names of an object, that are in a list, or begin like one of it that ends in an asterisk.",
		[]types.Type{types.Named("names", types.NewAny(types.NewObject(nil, types.NewDynamicProperty(types.S, types.A)), listOfText, types.SetOfStr)), types.Named("patterns", texts)}, types.SetOfStr), namesAmong},
	{word("any_contains", "Whether one of the texts contains one of the parts.",
		[]types.Type{types.Named("texts", texts), types.Named("parts", texts)}, types.B), anyContains},
	{word("slashed", "The paths, each with a slash at its end.",
		[]types.Type{types.Named("paths", texts)}, types.SetOfStr), pathsSlashed},
	{word("parents", "The directories that the paths are in, each with a slash at its end.",
		[]types.Type{types.Named("paths", texts)}, types.SetOfStr), pathsParents},
	{word("below", "Those of the paths that are one of the directories, or below one, by components. A path that climbs is below none.",
		[]types.Type{types.Named("paths", texts), types.Named("directories", texts)}, types.SetOfStr), pathsBelow},
	{word("capped", "An object of numbers, each no more than the member of the same name of another, if there is one.",
		[]types.Type{types.Named("numbers", anyObject), types.Named("caps", anyObject)}, anyObject), numbersCapped},
}

var (
	anyObject  = types.NewObject(nil, types.NewDynamicProperty(types.A, types.A))
	listOfText = types.NewArray(nil, types.S)
	texts      = types.NewAny(listOfText, types.SetOfStr)
)

func word(name, says string, args []types.Type, result types.Type) *ast.Builtin {
	return &ast.Builtin{
		Name:        "stockade." + name,
		Description: says,
		Decl:        types.NewFunction(types.Args(args...), types.Named("result", result)),
		CanSkipBctx: true,
	}
}

func init() {
	for _, w := range vocabulary {
		ast.RegisterBuiltin(w.decl)
		topdown.RegisterBuiltinFunc(w.decl.Name, w.f)
	}
}

type yield = func(*ast.Term) error

func textsLonger(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	list, err := builtins.ArrayOperand(args[0].Value, 1)
	if err != nil {
		return err
	}
	most, err := builtins.NumberOperand(args[1].Value, 2)
	if err != nil {
		return err
	}
	var places []*ast.Term
	for i := range list.Len() {
		text, ok := list.Elem(i).Value.(ast.String)
		if !ok {
			return builtins.NewOperandElementErr(1, list, list.Elem(i).Value, "string")
		}
		if ast.Compare(ast.InternedTerm(len(text)).Value, most) > 0 {
			places = append(places, ast.InternedTerm(i))
		}
	}
	return result(ast.SetTerm(places...))
}

func namesAmong(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	var names []*ast.Term
	if o, ok := args[0].Value.(ast.Object); ok {
		names = o.Keys()
	} else if err := each(args[0].Value, 1, func(t *ast.Term, _ string) { names = append(names, t) }); err != nil {
		return err
	}
	among := make([]bool, len(names))
	err := each(args[1].Value, 2, func(_ *ast.Term, pattern string) {
		prefix, open := strings.CutSuffix(pattern, "*")
		for i, t := range names {
			name, _ := t.Value.(ast.String)
			among[i] = among[i] || string(name) == pattern || open && strings.HasPrefix(string(name), prefix)
		}
	})
	if err != nil {
		return err
	}
	var kept []*ast.Term
	for i, t := range names {
		if _, ok := t.Value.(ast.String); !ok {
			return builtins.NewOperandElementErr(1, args[0].Value, t.Value, "string")
		}
		if among[i] {
			kept = append(kept, t)
		}
	}
	return result(ast.SetTerm(kept...))
}

func anyContains(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	var parts []string
	if err := each(args[1].Value, 2, func(_ *ast.Term, part string) { parts = append(parts, part) }); err != nil {
		return err
	}
	contains := false
	err := each(args[0].Value, 1, func(_ *ast.Term, text string) {
		for i := 0; i < len(parts) && !contains; i++ {
			contains = strings.Contains(text, parts[i])
		}
	})
	if err != nil {
		return err
	}
	return result(ast.InternedTerm(contains))
}

func pathsSlashed(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	var all []*ast.Term
	err := each(args[0].Value, 1, func(t *ast.Term, path string) {
		if !strings.HasSuffix(path, "/") {
			t = ast.StringTerm(path + "/")
		}
		all = append(all, t)
	})
	if err != nil {
		return err
	}
	return result(ast.SetTerm(all...))
}

func pathsParents(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	var all []*ast.Term
	err := each(args[0].Value, 1, func(_ *ast.Term, path string) {
		path = strings.TrimRight(path, "/")
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			all = append(all, ast.StringTerm(path[:i+1]))
		}
	})
	if err != nil {
		return err
	}
	return result(ast.SetTerm(all...))
}

func pathsBelow(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	var dirs []string
	err := each(args[1].Value, 2, func(_ *ast.Term, dir string) { dirs = append(dirs, strings.TrimSuffix(dir, "/")) })
	if err != nil {
		return err
	}
	var kept []*ast.Term
	err = each(args[0].Value, 1, func(t *ast.Term, path string) {
		for _, dir := range dirs {
			rest, ok := strings.CutPrefix(path, dir)
			if ok && (rest == "" && dir != "" && !strings.HasSuffix(dir, "/") || strings.HasPrefix(rest, "/")) && !climbs(path) {
				kept = append(kept, t)
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return result(ast.SetTerm(kept...))
}

func numbersCapped(_ topdown.BuiltinContext, args []*ast.Term, result yield) error {
	numbers, err := builtins.ObjectOperand(args[0].Value, 1)
	if err != nil {
		return err
	}
	caps, err := builtins.ObjectOperand(args[1].Value, 2)
	if err != nil {
		return err
	}
	capped := make([][2]*ast.Term, 0, numbers.Len())
	numbers.Foreach(func(name, number *ast.Term) {
		if most := caps.Get(name); most != nil && most.Value.Compare(number.Value) < 0 {
			number = most
		}
		capped = append(capped, [2]*ast.Term{name, number})
	})
	return result(ast.ObjectTerm(capped...))
}

// climbs reports a path with a component that leads up.
func climbs(path string) bool {
	return strings.Contains(path, "..") && (path == ".." || strings.HasPrefix(path, "../") || strings.HasSuffix(path, "/..") || strings.Contains(path, "/../"))
}

// each calls f for each text of a list or a set, in its order.
func each(v ast.Value, pos int, f func(*ast.Term, string)) error {
	var err error
	visit := func(t *ast.Term) {
		text, ok := t.Value.(ast.String)
		if !ok {
			err = builtins.NewOperandElementErr(pos, v, t.Value, "string")
			return
		}
		f(t, string(text))
	}
	switch v := v.(type) {
	case *ast.Array:
		v.Foreach(visit)
	case ast.Set:
		v.Foreach(visit)
	default:
		return builtins.NewOperandTypeErr(pos, v, "array", "set")
	}
	return err
}

package filetool

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// reached are the codes and the statuses of operations that the tests have seen.
var reached struct {
	sync.Mutex
	codes    map[file.Code]bool
	statuses map[string]bool
}

// Do is that of the tools. It notes how they answer, and that no operation answers with a status that it does not have.
func (b *box) Do(ctx context.Context, r *file.Request) *file.Result {
	res := b.Tools.Do(ctx, r)
	if !res.Formed() {
		b.t.Errorf("%s answers %+v", r.Op, res.Outcome())
	}
	out := res.Outcome()
	seen(out.Code)
	reached.Lock()
	reached.statuses[fmt.Sprint(r.Op, " ", out.Status)] = true
	reached.Unlock()
	if res.Patch != nil {
		for _, e := range res.Patch.Errors {
			seen(e.Code)
		}
	}
	return res
}

// seen notes a code.
func seen(code file.Code) {
	reached.Lock()
	defer reached.Unlock()
	if reached.codes == nil {
		reached.codes, reached.statuses = map[file.Code]bool{}, map[string]bool{}
	}
	reached.codes[code] = true
}

// elsewhere are the codes that no use of a tool ends with, and where they are seen.
var elsewhere = map[file.Code]string{
	file.CodeInvalidFollow: "sandbox/file TestCaps: such capabilities are not taken",
}

// unreached says which codes of sandbox/file and which statuses of operations (R180 to R224, contract table 3.3) no test has seen, when all of
// them have run.
func unreached() (missing []string) {
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" || os.Getuid() != 0 {
		return nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), "../../sandbox/file/code.go", nil, 0)
	if err != nil {
		return []string{err.Error()}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if code := file.Code(text); err != nil || !reached.codes[code] && elsewhere[code] == "" {
			missing = append(missing, text)
		}
		return true
	})
	for _, row := range file.Ops {
		for _, status := range row.Op.Statuses() {
			if what := fmt.Sprint(row.Op, " ", status); !reached.statuses[what] {
				missing = append(missing, what)
			}
		}
	}
	for code := range maps.Keys(elsewhere) {
		if reached.codes[code] {
			missing = append(missing, string(code)+" is seen here")
		}
	}
	slices.Sort(missing)
	return missing
}

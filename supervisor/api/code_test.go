package api

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Every constant is in the table, once, and the document is the table.
func TestCodes(t *testing.T) {
	var doc bytes.Buffer
	fmt.Fprintf(&doc, "# Error and denial codes\n\nMade from `supervisor/api/code.go`; refresh with `go test ./supervisor/api -update`.\n"+
		"The status is that of the HTTP answer when the code is why the operation failed.\nA policy may deny with codes of its own; they answer 403.\n\n"+
		"| code | status | meaning |\n|---|---|---|\n")
	inTable := map[Code]bool{}
	for _, c := range Codes {
		if inTable[c.Code] || c.Status < 200 || c.Status > 599 || c.Text == "" {
			t.Errorf("row %+v", c)
		}
		inTable[c.Code] = true
		fmt.Fprintf(&doc, "| `%s` | %d | %s |\n", c.Code, c.Status, c.Text)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			code, _ := strconv.Unquote(lit.Value)
			if !inTable[Code(code)] {
				t.Errorf("%s is not in the table", code)
			}
		}
		return true
	})
	const golden = "../../docs/api/errors.md"
	if *update {
		if err := os.WriteFile(golden, doc.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, doc.Bytes()) {
		t.Errorf("%s is not what the table says (%v); run with -update", golden, err)
	}
}

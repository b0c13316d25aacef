package workbench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

// contract is what schema says without an argument.
type contract struct {
	Contract  int             `json:"contract"`
	Questions []rego.Question `json:"questions"`
}

func (b *bench) schema() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print what policy is asked, and the schemas of its input and its result",
		Long: `schema lists the entry points of the contract: which operations ask each, and what it is
told. With a name, such as open_input or exec_result, it prints that JSON Schema
(draft 7); --dir writes all of them for an editor, or for "opa check -s".`,
		Example: `  stockade policy schema
  stockade policy schema open_input
  stockade policy schema --dir schemas`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case dir != "":
				return os.CopyFS(dir, rego.Schemas())
			case len(args) == 1:
				text, err := fs.ReadFile(rego.Schemas(), args[0]+".json")
				if err != nil {
					return fmt.Errorf("there is no schema %q; the names are %s", args[0], strings.Join(schemaNames(), ", "))
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			c := contract{rego.Contract, rego.Questions()}
			return b.print(cmd, c, func() {
				out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintf(out, "contract %d\n\nENTRY POINT\tSINCE\tINPUT HOLDS\tOPERATIONS\n", c.Contract)
				for _, q := range c.Questions {
					first := true
					for _, op := range q.Operations {
						if first {
							fmt.Fprintf(out, "%s\t%d\t%s\t%s\n", q.Entrypoint, q.Since, strings.Join(append([]string{"request"}, q.About...), " "), op)
						} else {
							fmt.Fprintf(out, "\t\t\t%s\n", op)
						}
						first = false
					}
				}
				out.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all schemas into this directory, which they must not be in yet")
	return cmd
}

func schemaNames() []string {
	names, err := fs.Glob(rego.Schemas(), "*.json")
	if err != nil {
		panic("bug: " + err.Error()) // the pattern is well formed
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(filepath.Base(name), ".json")
	}
	return names
}

// Package manual writes manual pages from a table of commands: one page for each command that is not hidden, with what
// its help says. Programs link it only when they are built to write their pages (build tag man).
//
// Non-goals: text that help does not have. What a page should say, the command says.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Asked reports whether this run of a program is to write its pages, and where: PROGRAM man DIR.
func Asked() (dir string, ok bool) {
	if len(os.Args) == 3 && os.Args[1] == "man" {
		return os.Args[2], true
	}
	return "", false
}

// Write writes the pages of root and of everything below it to dir, in one section. They are dated at the time at which the
// sources are, if the environment says when that is (SOURCE_DATE_EPOCH), so that the same sources give the same bytes.
func Write(root *cobra.Command, section, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	for c := range all(root) {
		flat(c)
	}
	date := time.Unix(0, 0)
	header := &doc.GenManHeader{Section: section, Source: "Stockade", Manual: "Stockade", Date: &date}
	if os.Getenv("SOURCE_DATE_EPOCH") != "" {
		header.Date = nil // and so it is read from there
	}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("pages of %s: %w", root.Name(), err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*."+section))
	if err == nil && len(pages) == 0 {
		err = fmt.Errorf("pages of %s: none was written", root.Name())
	}
	return err
}

// all are the commands of a tree.
func all(root *cobra.Command) func(func(*cobra.Command) bool) {
	var walk func(c *cobra.Command, yield func(*cobra.Command) bool) bool
	walk = func(c *cobra.Command, yield func(*cobra.Command) bool) bool {
		if !yield(c) {
			return false
		}
		for _, sub := range c.Commands() {
			if !walk(sub, yield) {
				return false
			}
		}
		return true
	}
	return func(yield func(*cobra.Command) bool) { walk(root, yield) }
}

// flat takes from a command's text what Markdown, which pages are made of, would take for a mark: what is meant is what help shows.
func flat(c *cobra.Command) {
	c.Long = escape(c.Long)
	c.Short = escape(c.Short)
	for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(f.Usage, `\`) {
				f.Usage = escape(f.Usage)
			}
		})
	}
}

// escape makes of what is indented a block that is shown as it is, and leaves nothing in the rest that means something to Markdown.
func escape(text string) string {
	mark := strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "#", `\#`, "`", "\\`", "[", `\[`)
	var out strings.Builder
	block := false
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		if indented != block && strings.TrimSpace(line) != "" {
			out.WriteString("\n")
			block = indented
		}
		if indented {
			out.WriteString("    " + line)
			continue
		}
		out.WriteString(mark.Replace(line))
	}
	return out.String()
}

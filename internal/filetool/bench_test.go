package filetool

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// BenchmarkRead reads 16 KiB beside os.ReadFile and cat(1).
func BenchmarkRead(b *testing.B) {
	x := newFastBox(b, file.Caps{Roots: []string{"/work"}})
	x.file("a/b/c/f", strings.Repeat("x", 16<<10))
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if r := x.readFile(file.Read{Target: at("a/b/c/f")}); r.Status != file.OK {
				b.Fatal(r.Outcome)
			}
		}
	})
	b.Run("os.ReadFile", func(b *testing.B) {
		for b.Loop() {
			os.ReadFile(x.at("a/b/c/f"))
		}
	})
	b.Run("cat", func(b *testing.B) {
		for b.Loop() {
			exec.Command("cat", x.at("a/b/c/f")).Output()
		}
	})
}

// BenchmarkChange writes and edits 16 KiB, on a disk, synced; and patches 100 files of it.
func BenchmarkChange(b *testing.B) {
	x := newBox(b, file.Caps{})
	content := strings.Repeat("line of text\n", 1260)
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if w := x.writeFile(file.Write{Target: at("w"), Content: text(content)}); w.Status != file.OK {
				b.Fatal(w.Outcome)
			}
		}
	})
	b.Run("os.WriteFile+fsync", func(b *testing.B) {
		for b.Loop() {
			f, _ := os.Create(x.at("o"))
			f.WriteString(content)
			f.Sync()
			f.Close()
		}
	})
	x.file("e", content+"needle 0\n")
	b.Run("edit", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if e := x.editFile(file.Edit{Target: at("e"), OldString: fmt.Sprint("needle ", i, "\n"), NewString: fmt.Sprint("needle ", i+1, "\n")}); e.Status != file.OK {
				x.file("e", content+fmt.Sprint("needle ", i+1, "\n"))
			}
		}
	})
	patches := [2]strings.Builder{}
	for i := range patches {
		patches[i].WriteString("*** Begin Patch\n")
		for n := range 100 {
			fmt.Fprintf(&patches[i], "*** Update File: p/%d\n@@\n-%d\n+%d\n", n, i, 1-i)
		}
		patches[i].WriteString("*** End Patch\n")
	}
	b.Run("patch of 100 files", func(b *testing.B) {
		for n := range 100 {
			x.file(fmt.Sprint("p/", n), content+"0\n"+content)
		}
		for i := 0; b.Loop(); i++ {
			if p := x.applyPatch(patches[i%2].String()); p.Status != file.OK {
				b.Fatal(p.Outcome)
			}
		}
	})
}

// BenchmarkGrep searches the Go tree beside rg with the same semantics, and through it.
func BenchmarkGrep(b *testing.B) {
	root := strings.TrimSpace(run(b, "go", "env", "GOROOT"))
	src := root + "/src"
	x := &box{t: b, dir: root, blobs: map[string][]byte{}}
	x.open(file.Caps{}, func(c *Config) { c.Workdir = "/src" })
	rg := rgPath(b)
	other := &box{t: b, dir: root, blobs: map[string][]byte{}}
	other.open(file.Caps{}, through(b, rg), func(c *Config) { c.Workdir = "/src" })
	for _, row := range []struct {
		name, pattern string
		fold          bool
	}{
		{"rare literal", "ErrBadPattern", false},
		{"common literal", "return err", false},
		{"any case", "errbadpattern", true},
		{"prefix and class", `func \(\w+ \*?\w+\) Read\(`, false},
		{"alternation", "ErrBadPattern|ErrNoProgress|ErrShortWrite", false},
		{"no literal", `[A-Z]\w{20,}\(`, false},
	} {
		ask := file.Grep{Pattern: row.pattern, CaseInsensitive: row.fold}
		b.Run(row.name+"/native", func(b *testing.B) {
			for b.Loop() {
				x.grepFor(ask)
			}
		})
		b.Run(row.name+"/through ripgrep", func(b *testing.B) {
			for b.Loop() {
				if g := other.grepFor(ask); g.Backend != "ripgrep" {
					b.Fatal(g.Reason)
				}
			}
		})
		b.Run(row.name+"/rg", func(b *testing.B) {
			args := []string{"--no-config", "--no-ignore", "--hidden", "--no-heading", "-n", "--sort=path", "--color=never"}
			if row.fold {
				args = append(args, "-i")
			}
			for b.Loop() {
				cmd := exec.Command(rg, append(args, row.pattern, ".")...)
				cmd.Dir = src
				cmd.Output()
			}
		})
		b.Run(row.name+"/rg unsorted", func(b *testing.B) {
			args := []string{"--no-config", "--no-ignore", "--hidden", "--no-heading", "-n", "--color=never"}
			if row.fold {
				args = append(args, "-i")
			}
			for b.Loop() {
				cmd := exec.Command(rg, append(args, row.pattern, ".")...)
				cmd.Dir = src
				cmd.Output()
			}
		})
	}
}

// BenchmarkGlob finds every Go file of the Go tree, newest first.
func BenchmarkGlob(b *testing.B) {
	x := &box{t: b, dir: strings.TrimSpace(run(b, "go", "env", "GOROOT")) + "/src", blobs: map[string][]byte{}}
	x.open(file.Caps{}, func(c *Config) { c.Workdir = "/" })
	for b.Loop() {
		x.globFor(file.Glob{Pattern: "**/*.go"})
	}
}

func run(b *testing.B, name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		b.Skip(name, ": ", err)
	}
	return string(out)
}

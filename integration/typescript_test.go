package integration

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// The TypeScript client's own suite against real supervisors, which it starts and kills itself: sessions, commands, streams,
// files, shells, tools; every golden request and reply; a loop of an agent, over three kills; and the examples of its guides, compiled
// and run as they stand there. Afterwards nothing is left behind.
func TestTypeScript(t *testing.T) {
	needRoot(t)
	dir := typescriptClient(t)
	place, err := os.MkdirTemp("", "ts-") // a short name, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(place)
	tests, err := filepath.Glob(filepath.Join(dir, "built", "*.test.js"))
	if err != nil || len(tests) < 4 {
		t.Fatalf("%v %v", tests, err)
	}
	docs, err := filepath.Abs("../docs")
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", append([]string{"--test", "--test-reporter=spec"}, tests...)...)
	node.Dir = dir
	node.Env = append(os.Environ(), "STOCKADE_BIN="+bin, "STOCKADE_TEST_DIR="+place, "STOCKADE_TEST_DOCS="+docs,
		"STOCKADE_TEST_DEGRADED="+strings.Join(degraded(), ","), fmt.Sprintf("STOCKADE_TEST_CALLS=%d", soak(1000, 50_000)))
	node.WaitDelay = 10 * time.Second
	out, err := node.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"ℹ skipped 0\n", "ℹ fail 0\n", "✔ a loop of an agent", "✔ outlives its supervisor"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	directories, err := filepath.Glob(filepath.Join(place, "ts-*", "sv"))
	if err != nil || len(directories) == 0 {
		t.Errorf("no supervisor was started: %v", err)
	}
	for _, at := range directories {
		d := testbox.Daemon{Bin: bin, Dir: at, State: filepath.Join(at, "state")}
		left, err := d.Left()
		for _, line := range left {
			t.Errorf("left behind: %s", line)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// What npm packs is the client, compiled, and a program of somebody who has it and nothing of ours is strictly typed by it.
func TestTypeScriptPacked(t *testing.T) {
	dir := typescriptClient(t)
	t.Cleanup(func() {
		if t.Failed() {
			os.RemoveAll(dir) // what the other tests use may be half made
		}
	})
	user := t.TempDir()
	program := `import { Denied, Stockade } from "stockade";
const code: number | undefined = await new Stockade().within({ workdir: "/" }, async (s) => (await s.exec(["true"])).exitCode);
await using session = await new Stockade().open({});
console.log(code, session.id, Denied);
`
	if err := os.WriteFile(filepath.Join(user, "user.ts"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(user, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(user, "node_modules", "stockade")
	if err := os.MkdirAll(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		in   string
		argv []string
	}{
		{dir, []string{"rm", "-rf", "dist"}}, // as in a clone
		{dir, []string{"npm", "pack", "--loglevel=error", "--pack-destination", user}},
		{user, []string{"sh", "-c", "tar --extract --gzip --strip-components 1 --directory node_modules/stockade --file stockade-*.tgz"}},
		{user, []string{filepath.Join(dir, "node_modules", ".bin", "tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "user.ts"}},
	} {
		cmd := exec.CommandContext(t.Context(), step.argv[0], step.argv[1:]...)
		cmd.Dir = step.in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", step.argv, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(modules, "dist", "index.js")); err != nil {
		t.Error(err)
	}
}

// typescriptClient is a directory with the client, its tests and the examples of its guides, compiled. What it needs for that is
// installed by the lock file, once: in build, where the next run finds it, and what was compiled of the same sources.
func typescriptClient(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, program+" is not installed: scripts/setup tests would do it")
		}
	}
	const source = "../clients/typescript"
	sources := map[string][]byte{}
	err := filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(source, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == "node_modules" || name == "dist" || name == "built"):
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		sources[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range []string{filepath.Join(source, "README.md"), "../docs/agents.md"} {
		for i, example := range typescriptExamples(t, document) {
			name := strings.TrimSuffix(filepath.Base(document), ".md")
			sources[fmt.Sprintf("test/examples/%s-%d.ts", name, i+1)] = []byte(example)
		}
	}
	dir, err := filepath.Abs(fmt.Sprintf("../build/typescript-%.8x", sha256.Sum256(sources["package-lock.json"])))
	if err != nil {
		t.Fatal(err)
	}
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		fmt.Fprintf(all, "%s %d %x\n", name, len(sources[name]), sha256.Sum256(sources[name]))
	}
	compiled := filepath.Join(dir, fmt.Sprintf("compiled-%.8x", all.Sum(nil)))
	if _, err := os.Stat(compiled); err == nil {
		return dir
	}
	for _, old := range []string{"src", "test", "dist", "built"} {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			t.Fatal(err)
		}
	}
	if old, _ := filepath.Glob(filepath.Join(dir, "compiled-*")); len(old) > 0 {
		for _, name := range old {
			os.Remove(name)
		}
	}
	for name, content := range sources {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err != nil {
		if out, err := run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
			skip(t, fmt.Sprintf("the compiler cannot be installed: %v\n%s", err, out))
		}
		if err := os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{}, {"-p", "test"}} {
		if out, err := run("node_modules/.bin/tsc", args...); err != nil {
			t.Fatalf("tsc %v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(compiled, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

var typescriptBlock = regexp.MustCompile("(?ms)^```ts\n(.*?)^```$")

// typescriptExamples are the programs of a document: each begins where the client is imported, and goes on in the examples that do
// not import it. They say what they print: `// → text`.
func typescriptExamples(t *testing.T, document string) (examples []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, block := range typescriptBlock.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[1], "// → ") {
			t.Errorf("%s: an example does not say what it prints:\n%s", document, block[1])
		}
		if len(examples) > 0 && !strings.Contains(block[1], ` from "stockade"`) {
			examples[len(examples)-1] += "\n" + block[1]
			continue
		}
		examples = append(examples, block[1])
	}
	return examples
}

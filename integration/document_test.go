package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// TestDocuments runs the examples of every document: R111, and what issue 8 asks for. An example is a block of indented lines, which
// are commands, or a fence with a language; a fence without one is a picture. The text is the document's own, so that one that is new is
// run, or named, or fails the test. In an example `# → TEXT` is a line that its commands print, in this order, with … for what
// differs; a command that fails shows its status (`$?`) or what it prints. What no test runs says so, right below, in the words of the table.
func TestDocuments(t *testing.T) {
	needRoot(t)
	all := map[string][]example{}
	for _, name := range markdown(t) {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if found := examples(string(text)); len(found) > 0 {
			all[name] = found
		}
	}
	for name := range all {
		if !slices.ContainsFunc(documents, func(d document) bool { return d.name == name }) {
			t.Errorf("%s has examples, and nothing runs them", name)
		}
	}
	d := start(t)
	ran, left := 0, 0
	t.Run("in", func(t *testing.T) {
		for _, doc := range documents {
			script := doc.compose(t, all[doc.name])
			ran, left = ran+script.ran, left+script.untested
			t.Run(strings.TrimSuffix(doc.name, ".md"), func(t *testing.T) {
				if script.ran == 0 {
					return
				}
				t.Parallel()
				script.run(t, doc, d)
			})
		}
	})
	t.Logf("%d examples are run here, %d by other tests, %d by none", ran, func() (n int) {
		for _, list := range all {
			n += len(list)
		}
		return n - ran - left
	}(), left)
}

// An example is a block of a document.
type example struct {
	line     int    // of the document, of its first line of text
	language string // "" for commands
	lines    []string
	remark   string // what stands right below
}

// markdown are the documents of this tree.
func markdown(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != ".." && (slices.Contains([]string{"build", "node_modules", "dist"}, e.Name()) || strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			name, err := filepath.Rel("..", path)
			names = append(names, name)
			return err
		}
		return nil
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("%d documents, %v", len(names), err)
	}
	return names
}

// typed is how a line begins that is no part of a picture.
var typed = regexp.MustCompile(`^\s*(\$ |# |sudo )?(stockaded?|stockade-run|curl|make|systemctl|opa|npm|pip|docker|apt-get|dpkg)( [a-z]+)?( --?[a-z]\S*| "| [a-z./]+)*$`)

// examples finds those of a text.
func examples(text string) (all []example) {
	lines := strings.Split(text, "\n")
	blank, below := true, false // an empty line before, an example right above
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if mark, language, fence := strings.Cut(strings.TrimSpace(line), "```"); fence && mark == "" {
			e := example{line: i + 2, language: language}
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				e.lines = append(e.lines, lines[i])
			}
			if language != "" || slices.ContainsFunc(e.lines, typed.MatchString) {
				all, below = append(all, e), true
			}
			continue
		}
		if strings.HasPrefix(line, "    ") && blank {
			e := example{line: i + 1}
			indent := len(line) - len(strings.TrimLeft(line, " ")) // more than four in a list
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ")); i++ {
				e.lines = append(e.lines, lines[i][min(indent, len(lines[i])):])
			}
			i--
			all, blank, below = append(all, e), false, true
			continue
		}
		if blank = strings.TrimSpace(line) == ""; !blank && below {
			all[len(all)-1].remark, below = line, false
		}
	}
	return all
}

// A document is how the examples of one are run: a script of bash, in which the line
//
//	example           is the next example, as it stands
//	examples N        are the next N
//	example >FILE     is the text of the next as a file
//	untested REASON   is one that nothing runs; below it the document says: *No test runs this: REASON.*
//	by FILE           is one that another script takes from the document
//
// It begins in a directory like a clone of the tree, with the commands built, and STOCKADE_SOCKET is a supervisor that many documents share.
// /tmp/sk is a place of its own, and so are /etc/stockade, /var/lib/stockade and what is below /run.
type document struct {
	name      string
	elsewhere map[string]string // by language: the file with the test that takes these examples from the document
	script    string
	outside   bool // in a network where every address answers: see [testbox.Internet]
}

// A script is what is composed of a document's.
type script struct {
	text          []string
	from          []string // what each line of the text is, for whoever reads a failure
	shows         []string // for each line of an example, the whole of it
	examples      []example
	ran, untested int
}

// composed are the words that a script of a document has beyond those of bash.
var composed = regexp.MustCompile(`^(examples?|untested|by)(?: (\d+))?(?: ?>(.+)| (.+))?$`)

func (d document) compose(t *testing.T, all []example) (s script) {
	t.Helper()
	var rest []example
	for _, e := range all {
		file, taken := d.elsewhere[e.language]
		if !taken {
			rest = append(rest, e)
			continue
		}
		d.named(t, file)
	}
	for language := range d.elsewhere {
		if !slices.ContainsFunc(all, func(e example) bool { return e.language == language }) {
			t.Errorf("%s has no example in %s", d.name, language)
		}
	}
	next := func() (e example, ok bool) {
		if len(rest) == 0 {
			t.Errorf("%s has fewer examples than its script", d.name)
			return e, false
		}
		e, rest = rest[0], rest[1:]
		return e, true
	}
	own := func(line string) {
		s.text, s.from, s.shows = append(s.text, line), append(s.from, "the script of "+d.name+": "+line), append(s.shows, "")
	}
	for line := range strings.SplitSeq(strings.TrimSpace(d.script), "\n") {
		m := composed.FindStringSubmatch(line)
		if m == nil {
			own(line)
			continue
		}
		count, _ := strconv.Atoi(m[2])
		for range max(count, 1) {
			e, ok := next()
			if !ok {
				return s
			}
			switch {
			case m[1] == "untested":
				s.untested++
				if want := "*No test runs this: " + m[4] + ".*"; e.remark != want {
					t.Errorf("%s:%d: below it stands %q, and not %q", d.name, e.line, e.remark, want)
				}
			case m[1] == "by":
				d.named(t, m[4])
			case m[3] != "":
				own("cat >" + m[3] + " <<'EXAMPLE'\n" + strings.Join(e.lines, "\n") + "\nEXAMPLE")
				s.ran++
			case e.language != "" && e.language != "sh":
				t.Errorf("%s:%d: %s is no language of a shell", d.name, e.line, e.language)
			default:
				s.ran++
				own(fmt.Sprintf(`printf '\001%d\n' >&9`, len(s.examples)))
				s.examples = append(s.examples, e)
				for i, text := range e.lines {
					s.text = append(s.text, patient.ReplaceAllString(text, "& patience"))
					s.from = append(s.from, fmt.Sprintf("%s:%d: %s", d.name, e.line+i, text))
					s.shows = append(s.shows, whole(e.lines, i))
				}
				own(`printf '\001-1\n' >&9`)
			}
		}
	}
	for _, e := range rest {
		t.Errorf("%s:%d: nothing runs this example:\n%s", d.name, e.line, strings.Join(e.lines, "\n"))
	}
	return s
}

// named checks that a file that takes examples from the document says which.
func (d document) named(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil || !strings.Contains(string(text), filepath.Base(d.name)) {
		t.Errorf("%s does not name %s, whose examples it is said to run: %v", file, d.name, err)
	}
}

// whole is the command that a line is a part of.
func whole(lines []string, at int) string {
	first, last := at, at
	for first > 0 && strings.HasSuffix(lines[first-1], `\`) {
		first--
	}
	for last < len(lines)-1 && (strings.HasSuffix(lines[last], `\`) || strings.HasPrefix(strings.TrimSpace(lines[last+1]), "# →")) {
		last++
	}
	return strings.Join(lines[first:last+1], "\n")
}

// patient is what a reader's second is to a supervisor on a busy machine.
var patient = regexp.MustCompile(`& sleep [0-9]+`)

// prologue has every command that fails told, with its line, before the next begins; those of functions, pipes and tests are not seen.
const prologue = `exec 9>&1 2>&1
patience() { for i in $(seq 300); do [ -S "$STOCKADE_SOCKET" ] && return; command sleep 0.1; done; return 1; }
trap 'trap - DEBUG; kill $(jobs -p) 2>/dev/null; wait' EXIT
set -m
at=0
trap 's=$?; [ $s -eq 0 ] || printf "\002%d %d\n" $at $s >&9; at=$LINENO' DEBUG
`

func (s script) run(t *testing.T, doc document, d *testbox.Daemon) {
	dir, err := os.MkdirTemp("", "document-") // a short name, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	clone, place := filepath.Join(dir, "clone"), filepath.Join(dir, "sk")
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{filepath.Join(clone, "build"), filepath.Join(dir, "run"), filepath.Join(dir, "etc")} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"build/bin": bin, "clients": filepath.Join(top, "clients"), "docs": filepath.Join(top, "docs")} {
		if err := os.Symlink(to, filepath.Join(clone, name)); err != nil {
			t.Fatal(err)
		}
	}
	places := strings.NewReplacer("/tmp/sk", place, "/var/lib/stockade", filepath.Join(place, "state"), "/etc/stockade", filepath.Join(dir, "etc"), "/run/", dir+"/run/", "/srv/", dir+"/srv/", "/usr/libexec/stockade", bin)
	before := strings.Count(prologue, "\n")
	text := prologue + places.Replace(strings.Join(s.text, "\n")) + "\n:\n"
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(dir, "script"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = clone, out, out
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "STOCKADE_SOCKET="+d.Socket, "STATE="+d.State, "PLACE="+place, "PYTHONDONTWRITEBYTECODE=1",
		"STOCKADE_SCOPE=")
	if !strings.Contains(text, "stockaded ") { // among others
		cmd.Env = append(cmd.Env, "STOCKADE_SCOPE=agent_id="+strings.NewReplacer("/", "-", ".md", "").Replace(doc.name))
	}
	cmd.Cancel = func() error { return interrupt(cmd.Process.Pid) }
	cmd.WaitDelay = 30 * time.Second
	begin := cmd.Start
	if doc.outside {
		outside, err := testbox.NewInternet(names)
		if err != nil {
			t.Fatal(err)
		}
		defer outside.Close()
		begin = func() error { return outside.Within(cmd.Start) }
	}
	failed := begin()
	if failed == nil {
		failed = cmd.Wait()
	}
	printed, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v\n%s", failed, printed)
		}
	})
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}

	// The lines of the script, and what was printed by which example.
	lineOf := s.numbered(before)
	by := make([][]string, len(s.examples))
	now := -1
	for line := range strings.Lines(string(printed)) {
		line = strings.TrimRight(line, " \t\r\n")
		if _, mark, ok := strings.Cut(line, "\x01"); ok {
			now, _ = strconv.Atoi(mark)
			continue
		}
		if text, mark, ok := strings.Cut(line, "\x02"); ok {
			var at, status int
			fmt.Sscan(mark, &at, &status)
			i, known := lineOf[at]
			if !known || !strings.Contains(s.shows[i], "$?") && !strings.Contains(s.shows[i], "→") && !strings.Contains(s.shows[i]+s.text[i], "||") {
				what := fmt.Sprint("line ", at)
				if known {
					what = s.from[i]
				}
				t.Errorf("%s\n\tends with status %d, which it does not show", what, status)
			}
			line = text
		}
		if now >= 0 && now < len(by) && line != "" {
			by[now] = append(by[now], line)
		}
	}
	for i, e := range s.examples {
		got := by[i]
		for j, line := range e.lines {
			_, wanted, ok := strings.Cut(line, "# → ")
			if !ok {
				continue
			}
			for want := range strings.SplitSeq(wanted, " → ") {
				want = places.Replace(strings.TrimSpace(want))
				k := slices.IndexFunc(got, func(line string) bool { return like(want, line) })
				if k < 0 {
					t.Errorf("%s:%d: no line %q after what came before it", doc.name, e.line+j, want)
					continue
				}
				got = got[k+1:]
			}
		}
	}

	left := testbox.Daemon{Bin: bin, Dir: place, State: filepath.Join(place, "state")}
	if err := os.RemoveAll(place); err != nil {
		t.Error(err)
	}
	lines, err := left.Left()
	for _, line := range lines {
		t.Errorf("left behind: %s", line)
	}
	if err != nil {
		t.Error(err)
	}
}

// interrupt ends what a shell waits for, and the shell, which ends the rest.
func interrupt(shell int) error {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	for _, child := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			syscall.Kill(-pid, syscall.SIGTERM) // a job has a group of its own
		}
	}
	return errors.Join(err, syscall.Kill(shell, syscall.SIGTERM))
}

// numbered is which line of the composed script each line of the file is.
func (s script) numbered(before int) map[int]int {
	all := map[int]int{}
	at := before
	for i, text := range s.text {
		for range strings.Count(text, "\n") + 1 {
			at++
			all[at] = i
		}
	}
	return all
}

// like says whether a line is as wanted, where … is anything.
func like(want, line string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(line)
}

// alone has a supervisor for the document, which `stockaded` starts: beside the reader, who would have another terminal for it.
const alone = `
mkdir -m 700 /tmp/sk && export STOCKADE_SOCKET=/tmp/sk/sock
stockaded() { command stockaded --state /tmp/sk/state "$@" & patience; }
`

// ours is a copy of the policy without its tests, which take their time, and are run where a document does so.
const ours = `
stockade policy init mine && find mine -name '*_test.rego' -delete
`

// documents are all that have examples.
var documents = []document{
	{name: "README.md", script: `
untested it is what runs the tests
untested ` + "`make test-install` installs what `make deb` has made" + `
make() { [ "$*" = build ]; }
examples 6`},
	{name: "clients/python/README.md", elsewhere: map[string]string{"python": guides, "text": guides}, script: `
untested it takes an index of packages
untested these are the tests`},
	{name: "clients/typescript/README.md", elsewhere: map[string]string{"ts": "integration/typescript_test.go"}, script: `
untested it takes an index of packages`},
	{name: "docs/agents.md", elsewhere: map[string]string{"python": guides, "text": guides, "ts": "integration/typescript_test.go"}},
	{name: "docs/api/routes.md", elsewhere: map[string]string{"http": "supervisor/server/docs_test.go"}, script: `
mkdir /run/stockade && ln -s "$STOCKADE_SOCKET" /run/stockade/stockade.sock
example`},
	{name: "docs/api/streams.md", elsewhere: map[string]string{"sh": "supervisor/server/curl_test.go"}},
	{name: "docs/approvals.md", script: alone + ours + `
mkdir tiny
for name in open signal blob read; do printf 'package stockade.%s\ndecision := {"allow": false, "deny": []}\n' $name > tiny/$name.rego; done
printf 'package stockade.exec\ndecision := data.answer\n' > tiny/exec.rego
example >answer.json
printf '{"stockade_contract": 1, "answer": %s}' "$(cat answer.json)" > tiny/data.json
echo '{"session_id": "s-1", "argv": ["git", "push"]}' > push.json && echo '{"principal": {"uid": 1000, "gid": 1000}, "grant": {}}' > session.json
stockade policy eval --policy tiny --op host.exec --session session.json --request push.json | grep 'it publishes'
example >mine/approval/data.json
stockade policy check mine
stockaded --policy mine
id=$(stockade open)
for n in 1 2; do stockade exec --detach "$id" -- git push; done
approval=$(stockade approvals ls | awk 'NR == 2 {print $1}') another=$(stockade approvals ls | awk 'NR == 3 {print $1}')
stockade() { case "$*" in *" -f"*) timeout --signal=INT 1 stockade "$@" || true ;; *) command stockade "$@" ;; esac; }
example`},
	{name: "docs/bundles.md", script: alone + ours + `
mv mine my-policy
example
untested it takes the program opa, whose package a test signs with
example >my-policy/log.rego
stockade policy check my-policy
stockade run -- echo twice-two
stockade policy decisions --state /tmp/sk/state --policy my-policy > decisions
grep '"erased": *\["/input/request/exec/argv"\]' decisions
grep '"masked": *\["/input/request/principal/uid"\]' decisions
! grep twice-two decisions`},
	{name: "docs/cgroups.md", script: `
untested it takes systemd, and ` + "`make test-v2` has it" + `
untested it takes a container of its own, and ` + "`make test-v2` has it" + `
`},
	{name: "docs/ci.md", script: `
examples 5
cd .. && mv gone state && rm -r out
stockaded --state /tmp/sk/state & patience
example >github.yml
sed -n 's/^ *- run: //p' github.yml > step && [ -s step ] && sh step && cmp first out/table && rm -r out
example >gitlab.yml
sed -n '/script:/,/artifacts:/s/^ *- //p' gitlab.yml > step && [ -s step ] && sh step && cmp first out/table`},
	{name: "docs/commands.md", outside: true, script: `
make() { [ "$*" = build ]; }
examples 10`},
	{name: "docs/files.md", script: `
mkdir -p repo/src && cd repo
{ printf 'package main\n\nfunc readError() {}\n'; seq 4 19; echo 'retries = 3'; seq 21 50; } > src/main.go
mkdir assets && echo asset > assets/a
printf '*** Begin Patch\n*** Update File: src/main.go\n@@\n-package main\n+package patched\n*** End Patch\n' > change.patch
echo 'package main' > new.go
example
grep -x 'retries = 5' src/main.go && grep 'package patched' src/main.go && grep src names
example >fs
stockade policy init ../mine
python3 - ../mine/profiles/workspace/data.json <<'END'
import json, sys
data = json.load(open(sys.argv[1]))
data.update(json.loads("{" + open("fs").read() + "}"))
json.dump(data, open(sys.argv[1], "w"))
END
stockade policy check ../mine`},
	{name: "docs/grpc.md", script: `
example
untested it takes grpcurl`},
	{name: "docs/install.md", script: `
untested a test installs in a directory by the same script
untested ` + "`make test-install` installs what `make deb` has made" + `
by integration/install/package
untested it takes systemd, and ` + "`make test-v2` has it" + `
by integration/install/package
by integration/install/package`},
	{name: "docs/isolation.md", script: `
example`},
	{name: "docs/network.md", outside: true, script: alone + `
stockaded
example
example >open.json
stockade policy init listed
python3 - <<'END'
import json
data = json.load(open("listed/profiles/workspace/data.json"))
data["egress"] = json.load(open("open.json"))["target"]["local"]["egress"]
json.dump(data, open("listed/profiles/workspace/data.json", "w"))
END
stockade policy eval --policy listed --request open.json
kill %1 && wait
example
example >mine/open/releases.rego
stockade policy check mine
for job in release other; do printf '{"target": {"local": {"network_mode": "egress", "egress": [{"name": "registry.example.org"}]}}, "labels": {"job": "%s"}}' $job > $job.json; done
stockade policy eval --policy mine --request other.json > other || grep registry other
stockade policy eval --policy mine --request release.json > release || ! grep 'only releases' release
id=$(stockade open --allow proxy.golang.org:443)
example
sed -i 's/"egress": \[/"egress": [{"name": "example.com", "ports": [80]}, /' mine/profiles/workspace/data.json
find mine -name '*_test.rego' -delete
stockade policy activate
id=$(stockade open --allow example.com:80)
stockade exec --json "$id" -- bash -c 'for i in 1 2 3; do (exec 3<>/dev/tcp/example.com/443; cat <&3); done' > refused.json || true
example >denial.json
python3 - <<'END'
import json
want = json.load(open("denial.json"))
got = json.load(open("refused.json"))
assert any(want.items() <= denial.items() for denial in got["payload"]["exec"]["denials"]), got
END`},
	{name: "docs/observability.md", script: alone + `
mkdir /run/stockaded
example
untested it takes systemd, and ` + "`make test-v2` has it" + `
`},
	{name: "docs/operations.md", script: alone + `
stockaded
stockade run -- echo kept
cp /tmp/sk/state/journal/key.pub .
example
mkdir -p /srv/copies
example`},
	{name: "docs/policy.md", script: ours + `
example >mine/exceptions/data.json
stockade policy check mine
echo '{"target": {"local": {"network_mode": "egress", "egress": [{"name": "api.example.org", "ports": [443]}]}}}' > open.json
stockade policy eval --policy mine --uid 1000 --now-ns 1790000000000000000 --request open.json
! stockade policy eval --policy mine --uid 1000 --now-ns 1810000000000000000 --request open.json`},
	{name: "docs/shells.md", outside: true, script: alone + `
stockaded
id=$(stockade open)
shell=$(curl -sS --unix-socket /tmp/sk/sock --json '{"session_id": "'$id'", "argv": ["/bin/bash", "--login"]}' http://stockade/v1/shells | grep -o '"exec_id":"[^"]*"' | cut -d '"' -f 4)
stockade() {
	case "$1 $2" in
	"shell export" | "shell play") command stockade "$@" ;;
	"shell --observe") { sleep 1; printf q; } | script -qec "stockade $*" /dev/null ;;
	"shell $shell") { sleep 1; printf 'echo error: 7\r'; sleep 1; printf '\020\021'; } | script -qec "stockade $*" /dev/null ;;
	shell*) { sleep 1; printf 'exit\r'; sleep 1; printf 'exit()\r'; } | script -qec "stockade $*" /dev/null ;;
	forward*) timeout --signal=INT 1 stockade "$@" || [ $? -eq 124 ] ;;
	*) command stockade "$@" ;;
	esac
}
example
stockade cancel "$shell"
examples 2`},
	{name: "docs/tools.md", script: `
examples 6
wait # for the supervisor that was told to end: its socket is there until then
stockaded --state /tmp/sk/state & patience
cd ws
example >mcp.json
python3 - <<'END'
import json, subprocess
server = json.load(open("mcp.json"))["mcpServers"]["sandbox"]
hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a reader", "version": "1"}}}
serving = subprocess.Popen([server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(json.dumps(hello), file=serving.stdin, flush=True)
answer = serving.stdout.readline() # a host ends its server when it has what it wants, and not before
serving.stdin.close()
assert json.loads(answer)["result"]["serverInfo"]["name"] == "stockade" and serving.wait(20) == 0, answer
END`},
	{name: "docs/tour.md", script: `
` + strings.Repeat("by integration/install/tour\n", 7)},
	{name: "docs/upgrade.md", script: `
mkdir -p /run/stockade/main && echo '{}' > /etc/stockade/ceiling.json
example
untested it takes systemd, and ` + "`make test-v2` has it" + `
`},
	{name: "docs/workspace.md", script: `
mkdir -p repo/src repo/docs && cd repo
printf 'generate:\n\techo 1 >src/made.go; echo 2 >docs/index.md; echo 3 >other\n' > Makefile
printf '#!/bin/sh\necho done >> report\n' > agent && chmod +x agent
examples 2
[ -e src/made.go ] && [ ! -e other ] && [ -e report ]`},
	{name: "policies/README.md", script: `
examples 6
by rego/workbench/compare_test.go
examples 3
cd mine
example >signal/servers.rego
stockade policy check .`},
}

// guides is the test of the client for Python that runs the examples of its documents.
const guides = "clients/python/tests/test_guides.py"

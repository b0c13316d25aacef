package seccomp

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write PROFILES.md and the census anew")

// The document is the rows: reviewed there, generated here. T043: so is the difference to
// the profile that most containers run under, and nothing in it is without a reason.
func TestProfilesDocument(t *testing.T) {
	golden(t, "PROFILES.md", preamble+profilesTable()+mobyPreamble+mobyTable(t))
}

// golden compares a generated file with what is kept of it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the rows say: go test ./sandbox/seccomp -update, and look at the difference", path)
	}
}

const preamble = `# Seccomp profiles

Generated from ` + "`profiles.go` (`go test ./sandbox/seccomp -update`)" + `. What no row names answers ENOSYS; i386 and x32 calls end the process. A dash is a row that the profile does not have: ENOSYS, unless another row of it names the call. The answer to every number is in ` + "`testdata/census.golden`" + `.

**default** is for programs of any kind. **build** is for compilers, package builds and their tests: what an input tree and a clean environment are enough for. It is default without what a build has no use for, and with the two personalities that make its output the same everywhere. It has no set-id bits either: fakeroot remembers the mode that it was asked for, and takes EPERM for an answer. **strict** is for programs that read, compute and write: no network families, no System V objects, no attributes.

Where a session reports refusals, those that a row names (but not ENOSYS) reach the supervisor before they are answered, and become denials of the receipt under the row's title. A refusal is the same with and without.

Set-id bits cannot be put on a file, and a write takes them off one that has them. A store to a shared mapping of it does not: in a set-id file that lies in a caller's writable directory before the session, the session can change the content under the bits if the file's mode or owner lets the caller write it. For root as the caller that is a set-id root program of the session's.

The kernel asks no filter about uretprobe and uprobe (numbers 335 and 336; from 6.14 and 6.18), which only the kernel's own probes can call: whoever else does is ended by SIGILL.

`

func profilesTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| about | calls | %s | when | why |\n|---|---|%s---|---|\n", strings.Join(Profiles, " | "), strings.Repeat("---|", len(Profiles)))
	for _, r := range rows {
		cells := []string{r.title, strings.Join(strings.Fields(r.calls), " ")}
		for _, profile := range Profiles {
			if r.in(profile) {
				cells = append(cells, r.said())
			} else {
				cells = append(cells, "–")
			}
		}
		cells = append(cells, escaped(r.args), r.why)
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// said is a row's answer in words.
func (r row) said() string {
	switch {
	case r.verdict == refused:
		return unix.ErrnoName(r.answer())
	case r.errno == unchanged:
		return "allowed, else without effect"
	case r.args != "":
		return "allowed, else " + unix.ErrnoName(r.answer())
	}
	return "allowed"
}

func escaped(s string) string { return strings.ReplaceAll(s, "*", `\*`) }

const mobyPreamble = `
## The difference to moby's default profile

Docker's and containerd's containers run under the profile of [moby/profiles](https://github.com/moby/profiles); ` + "`testdata/moby.txt`" + ` is what it allows on amd64 without extra capabilities. It answers EPERM to what it does not know, where ours answer ENOSYS. What is allowed by both or by neither is not listed.

`

// reasons are for differences in calls that no row of default names.
var reasons = map[string]string{
	"get_thread_area set_thread_area": "segments of 32-bit programs, which are killed",
	"epoll_ctl_old epoll_wait_old":    "numbers that no 64-bit kernel ever answered",
	"remap_file_pages":                "deprecated since 3.16; the kernel emulates it with mmap, and no program is known to need it",
	"uretprobe":                       "not a program's to call, and filtered by no kernel from 6.14",
}

// mobyTable lists the differences, and fails the test for one that has no reason, and for
// a reason that has no difference.
func mobyTable(t *testing.T) string {
	t.Helper()
	ours, theirs := make(map[string]row), mobyProfile(t)
	for _, r := range rows {
		if !r.in("default") {
			continue
		}
		for name := range strings.FieldsSeq(r.calls) {
			if n, err := number(name); err == nil && n >= 0 {
				ours[name] = r
			}
		}
	}
	names := slices.Sorted(maps.Keys(theirs))
	for name := range ours {
		if theirs[name] == "" {
			theirs[name] = "EPERM"
			names = append(names, name)
		}
	}
	slices.Sort(names)
	why := make(map[string]string)
	for group, reason := range reasons {
		for name := range strings.FieldsSeq(group) {
			why[name] = reason
		}
	}

	type difference struct{ ours, theirs, why string }
	calls := make(map[difference][]string)
	for _, name := range names {
		r, named := ours[name]
		d := difference{ours: "ENOSYS", theirs: theirs[name], why: r.why}
		switch {
		case named:
			d.ours = r.said()
			if r.args != "" {
				d.ours = "allowed: " + r.args
			}
		default:
			d.why = why[name]
			delete(why, name)
		}
		if d.ours == d.theirs || !strings.HasPrefix(d.ours, "allowed") && !strings.HasPrefix(d.theirs, "allowed") {
			continue
		}
		if d.why == "" {
			t.Errorf("%s: %s, and %s in moby's profile: no row names it, and no reason is given", name, d.ours, d.theirs)
		}
		calls[d] = append(calls[d], name)
	}
	for name := range why {
		t.Errorf("%s: a reason for what is no difference", name)
	}

	var b strings.Builder
	b.WriteString("| calls | default | moby's | why |\n|---|---|---|---|\n")
	order := slices.SortedFunc(maps.Keys(calls), func(a, b difference) int { return strings.Compare(calls[a][0], calls[b][0]) })
	for _, d := range order {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(calls[d], " "), escaped(d.ours), escaped(d.theirs), d.why)
	}
	return b.String()
}

// mobyProfile reads testdata/moby.txt: of each name "allowed", "allowed: when" or an errno.
func mobyProfile(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/moby.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		switch name, when, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case name == "#":
		case when == "":
			m[name] = "allowed"
		case when == "ENOSYS":
			m[name] = when
		default:
			m[name] = "allowed: " + when
		}
	}
	return m
}

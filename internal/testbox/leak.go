package testbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scope says what belongs to the instance under test.
type Scope struct {
	Instance string   // cgroups are called stockade-INSTANCE
	Dirs     []string // mounts and files below them are the instance's
	Grows    []string // directories below them whose files are meant to stay: journal, blobs
	Bin      string   // processes that run a program from here are the instance's
	PIDs     []int    // the daemon and the runner: their descriptors and mounts are looked at, they are not residue
}

// Residue is what an instance holds of the machine: a line for each kind of thing, and
// how many there are. Lines hold no numbers that change from one session to the next.
type Residue map[string]int

// caches are ends of lines that may grow up to a bound that the code states.
var caches = map[string]int{
	"descriptor of stockade-run: user:[N]": 256, // maxIDMaps of sandbox/runc
	"/journal/spare":                       1,   // the next segment, once it is made
}

func cached(line string) int {
	for end, n := range caches {
		if strings.HasSuffix(line, end) {
			return n
		}
	}
	return 0
}

// Beyond returns the lines of r that base has not, or has fewer of.
func (r Residue) Beyond(base Residue) []string {
	var out []string
	for _, line := range slices.Sorted(maps.Keys(r)) {
		if n := r[line] - max(base[line], cached(line)); n > 0 {
			out = append(out, fmt.Sprintf("%s ×%d", line, n))
		}
	}
	return out
}

// Settle takes residue until nothing is beyond base, and returns what still was when
// the time was over. Tear-down may end after the reply that announced it, never by more than a
// moment.
func (s Scope) Settle(base Residue, within time.Duration) ([]string, error) {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		now, err := s.Take()
		if err != nil {
			return nil, err
		}
		left := now.Beyond(base)
		if len(left) == 0 || time.Now().After(end) {
			return left, nil
		}
	}
}

// Take lists what the instance holds now: mounts, cgroups in every hierarchy, processes
// and their namespaces, descriptors, files.
func (s Scope) Take() (Residue, error) {
	r := Residue{}
	for _, step := range []struct {
		name string
		take func(Residue) error
	}{
		{"mounts", s.mounts},
		{"cgroups", s.cgroups},
		{"processes", s.processes},
		{"descriptors", s.descriptors},
		{"files", s.files},
	} {
		if err := step.take(r); err != nil {
			return nil, fmt.Errorf("leak check: %s: %w", step.name, err)
		}
	}
	return r, nil
}

// mounts lists the host's mounts below Dirs, and those that the daemon and the runner alone have when they live in
// a mount namespace of their own: what somebody else mounts on the host arrives there, too.
func (s Scope) mounts(r Residue) error {
	host, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	shared := map[string]bool{}
	if err := mountLines("/proc/self/mountinfo", func(line string) {
		shared[flagged(line)] = true
		if s.names(line) {
			r["mount on the host: "+line]++
		}
	}); err != nil {
		return err
	}
	for _, pid := range s.PIDs {
		own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || own == host {
			continue // gone, or counted above
		}
		err = mountLines(fmt.Sprintf("/proc/%d/mountinfo", pid), func(line string) {
			if !shared[flagged(line)] {
				r["mount of "+comm(pid)+": "+line]++
			}
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// flagged is a line of mountinfo without how the mount takes part in propagation, which a copy does otherwise.
func flagged(line string) string {
	own, rest, _ := strings.Cut(line, " - ")
	fields := strings.Fields(own)
	return strings.Join(fields[:min(3, len(fields))], " ") + " - " + rest
}

// names says whether a line names one of the directories.
func (s Scope) names(line string) bool {
	return slices.ContainsFunc(s.Dirs, func(dir string) bool { return strings.Contains(line, dir) })
}

// mountLines gives the lines of a mountinfo without mount ids and devices, which differ
// each time.
func mountLines(file string, each func(string)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 5 {
			each(strings.Join(fields[3:], " "))
		}
	}
	return nil
}

// cgroups lists the groups of the instance in every hierarchy that is mounted, on any
// layout, wherever below it they stand. They are numbered, and a runner keeps a few in
// stock: it is their number that must come back to what it was.
func (s Scope) cgroups(r Residue) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed while we looked
			case err != nil:
				return err
			case !d.IsDir():
				return nil
			case slices.ContainsFunc(strings.Split(path, "/"), s.ours):
				r["cgroup "+numbers.ReplaceAllString(path, "N")]++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ours says whether a path element is a group of the instance.
func (s Scope) ours(element string) bool { return element == "stockade-"+s.Instance }

func hierarchies() ([]string, error) {
	var out []string
	err := mountLines("/proc/self/mountinfo", func(line string) {
		target, rest, _ := strings.Cut(strings.SplitN(line, " ", 2)[1], " ")
		_, kind, _ := strings.Cut(rest, " - ")
		if name, _, _ := strings.Cut(kind, " "); name == "cgroup" || name == "cgroup2" {
			out = append(out, target)
		}
	})
	return out, err
}

// processes lists what runs in the instance's cgroups, from its binaries or as a
// descendant of its daemon and runner, zombies included, and the namespaces that these hold.
func (s Scope) processes(r Residue) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(s.PIDs, pid) || !s.owns(pid) {
			continue
		}
		name := "process " + comm(pid)
		if state(pid) == "Z" { // whether one of the others runs or sleeps at this moment says nothing
			name += ", a zombie"
		}
		r[name]++
		for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
			mine, err := os.Readlink("/proc/self/ns/" + kind)
			if err != nil {
				return err
			}
			if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); err == nil && theirs != mine {
				r["namespace "+kind+" of a process"]++
			}
		}
	}
	return nil
}

// Executing names the processes of an instance that were executed in its sessions, inits not included.
func Executing(instance string) (found []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []string{err.Error()}
	}
	group := regexp.MustCompile(`/stockade-` + instance + `/[^/\n]+/x/`)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && group.Match(groups) {
			found = append(found, fmt.Sprintf("process %d %s", pid, commandLine(pid)))
		}
	}
	return found
}

func (s Scope) owns(pid int) bool {
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && s.Bin != "" &&
		strings.HasPrefix(exe, s.Bin+"/stockade") && s.names(commandLine(pid)) {
		return true
	}
	// The runner runs from sealed memory, and is nobody's child once its daemon was killed.
	if comm(pid) == "stockade-run" && strings.Contains(commandLine(pid), "--instance "+s.Instance+" ") {
		return true
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	if slices.ContainsFunc(strings.FieldsFunc(string(groups), func(c rune) bool { return c == '/' || c == '\n' }), s.ours) {
		return true
	}
	for up := parent(pid); up > 1; up = parent(up) {
		if slices.Contains(s.PIDs, up) {
			return true
		}
	}
	return false
}

// descriptors lists what the daemon and the runner hold open, by kind.
func (s Scope) descriptors(r Residue) error {
	for _, pid := range s.PIDs {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
				r["descriptor of "+comm(pid)+": "+numbers.ReplaceAllString(target, "N")]++
			}
		}
	}
	return nil
}

// numbers are what differs from one session to the next: inodes, pids, ids.
var numbers = regexp.MustCompile(`[0-9]+`)

// files lists what lies below Dirs, but for what is meant to stay.
func (s Scope) files(r Residue) error {
	for _, dir := range s.Dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case slices.Contains(s.Grows, path):
				return fs.SkipDir
			case path != dir:
				r["file "+path]++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func comm(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "(gone)"
	}
	return strings.TrimSpace(string(b))
}

func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(b), "\x00", " ")
}

func state(pid int) string { return stat(pid, 0) }

func parent(pid int) int {
	n, err := strconv.Atoi(stat(pid, 1))
	if err != nil {
		return 0
	}
	return n
}

// stat returns a field of /proc/PID/stat, counted from after the name, which may itself
// hold spaces and parentheses.
func stat(pid, field int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if field >= len(fields) {
		return ""
	}
	return fields[field]
}

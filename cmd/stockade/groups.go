package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// groupLayout is what a machine's control groups have to do with Stockade: which hierarchies there are, where our programs stand in
// them, and the groups that they have built, with their ceilings. All of it is the kernel's text; nobody's else is in it.
type groupLayout struct {
	SeenFrom    string         `json:"seen_from"` // whose mounts: the runner's, or our own
	Hierarchies []hierarchy    `json:"hierarchies"`
	Programs    []standing     `json:"programs"`
	Groups      []boundedGroup `json:"groups"`
	More        bool           `json:"more,omitzero"` // there were more than are looked at
}

type hierarchy struct {
	Mount       string `json:"mount"`
	Kind        string `json:"kind"`                  // cgroup or cgroup2
	Controllers string `json:"controllers,omitempty"` // of cgroup2: those that its root hands down
	ReadOnly    bool   `json:"read_only,omitzero"`
}

type standing struct {
	Program string   `json:"program"`
	PID     int      `json:"pid"`
	In      []string `json:"in"` // /proc/PID/cgroup
}

type boundedGroup struct {
	Mount    string            `json:"mount"`
	Group    string            `json:"group"`
	Ceilings map[string]string `json:"ceilings,omitempty"`
}

// The files of a group that say how it is bounded, and that it is frozen.
var ceilingFiles = []string{
	"memory.max", "memory.high", "memory.swap.max", "memory.oom.group", "cpu.max", "cpu.weight", "pids.max", "io.max", "cgroup.freeze", "cgroup.subtree_control",
	"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us", "freezer.state",
}

var (
	instanceGroup = regexp.MustCompile(`^stockade-[A-Za-z0-9_-]+$`)
	wellKnown     = regexp.MustCompile(`^(system|user|machine)\.slice$|^init\.scope$|^(stockade-run|stockaded)\.service$|^(supervisor|docker|kubepods)$`)
	ceilingText   = regexp.MustCompile(`^[a-z0-9_.: =+-]{0,200}$`)
	ourPrograms   = []string{"stockaded", "stockade-run", "stockade-init", "stockade-relay"}
)

// Bounds of the walk: of a machine with thousands of groups that are not ours, and of ours.
const (
	groupsLooked = 20_000
	groupsTold   = 500
	groupDepth   = 8
)

// readGroups reads the layout below proc, which is /proc.
func readGroups(proc string) (any, error) {
	l := groupLayout{SeenFrom: "own", Programs: standings(proc)}
	root, info := "", filepath.Join(proc, "self", "mountinfo")
	for _, p := range l.Programs {
		// The runner may have mounted a hierarchy that nobody else sees.
		if at := filepath.Join(proc, strconv.Itoa(p.PID)); p.Program == "stockade-run" && readable(filepath.Join(at, "root")) {
			root, info, l.SeenFrom = filepath.Join(at, "root"), filepath.Join(at, "mountinfo"), "runner"
			break
		}
	}
	text, err := os.ReadFile(info)
	if err != nil {
		return nil, err
	}
	l.Hierarchies = hierarchies(string(text))
	looked := 0
	for i, h := range l.Hierarchies {
		top := filepath.Join(root, h.Mount)
		if h.Kind == "cgroup2" {
			l.Hierarchies[i].Controllers = groupFile(top, "cgroup.subtree_control")
		}
		l.walk(top, h.Mount, &looked)
	}
	return l, nil
}

func readable(dir string) bool {
	_, err := os.ReadDir(dir)
	return err == nil
}

// standings are our processes, and the groups that they are in.
func standings(proc string) []standing {
	found := []standing{}
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		name := strings.TrimSpace(string(comm))
		if err != nil || !slices.Contains(ourPrograms, name) {
			continue
		}
		in, err := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		if err != nil {
			continue // it has ended
		}
		s := standing{Program: name, PID: pid}
		for line := range strings.Lines(strings.TrimSpace(string(in))) {
			if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
				s.In = append(s.In, f[0]+":"+f[1]+":"+oursAlone(f[2]))
			}
		}
		found = append(found, s)
	}
	slices.SortFunc(found, func(a, b standing) int { return cmp.Compare(a.PID, b.PID) })
	return found
}

// oursAlone is the path of a group, in which what others have named is a star.
func oursAlone(group string) string {
	parts := strings.Split(group, "/")
	for i, p := range parts {
		if instanceGroup.MatchString(p) {
			break
		}
		if p != "" && !wellKnown.MatchString(p) {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// hierarchies are the mounts of control groups in a mountinfo, each hierarchy once.
func hierarchies(mountinfo string) []hierarchy {
	found, seen := []hierarchy{}, map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		mount, fs := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 6 || len(fs) < 3 || fs[0] != "cgroup" && fs[0] != "cgroup2" || seen[mount[2]] {
			continue
		}
		seen[mount[2]] = true
		h := hierarchy{Mount: mount[4], Kind: fs[0], ReadOnly: slices.Contains(strings.Split(mount[5], ","), "ro")}
		if h.Kind == "cgroup" {
			h.Controllers = fs[2]
		}
		found = append(found, h)
	}
	return found
}

// walk tells our groups below top, down to those in which single executions are.
func (l *groupLayout) walk(top, mount string, looked *int) {
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it has ended, or is not for us
		}
		rel, _ := filepath.Rel(top, path)
		parts := strings.Split(rel, string(filepath.Separator))
		ours := slices.IndexFunc(parts, instanceGroup.MatchString)
		if *looked++; *looked > groupsLooked || len(l.Groups) >= groupsTold {
			l.More = true
			return fs.SkipAll
		}
		if ours < 0 {
			if len(parts) > groupDepth {
				return fs.SkipDir
			}
			return nil
		}
		g := boundedGroup{Mount: mount, Group: oursAlone("/" + rel), Ceilings: map[string]string{}}
		for _, file := range ceilingFiles {
			if text := groupFile(path, file); text != "" {
				g.Ceilings[file] = text
			}
		}
		l.Groups = append(l.Groups, g)
		if len(parts)-ours > 4 { // instance, session, x, execution
			return fs.SkipDir
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.More = true
	}
}

// groupFile is what a file of a group says, if it is there and says what such files say.
func groupFile(group, name string) string {
	text, err := os.ReadFile(filepath.Join(group, name))
	said := strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; ")
	if err != nil || !ceilingText.MatchString(strings.ReplaceAll(said, ";", "")) {
		return ""
	}
	return said
}

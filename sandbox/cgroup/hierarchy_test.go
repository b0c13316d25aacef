package cgroup

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// Where the unified hierarchy of a host, of a container, and of a delegated unit is, and
// which group in it may be built upon.
func TestLocateUnified(t *testing.T) {
	mount := func(kind, root, at string) *mountinfo.Info {
		return &mountinfo.Info{FSType: kind, Root: root, Mountpoint: at, VFSOptions: "rw"}
	}
	whole := []*mountinfo.Info{mount("cgroup2", "/", "/sys/fs/cgroup")}
	for _, row := range []struct {
		name          string
		mounts        []*mountinfo.Info
		own, operator string
		mount, parent string // mount "" is a refusal
	}{
		{"at the root", whole, "/", "", "/sys/fs/cgroup", ""},
		{"in a unit", whole, "/system.slice/stockade.service", "", "/sys/fs/cgroup", "/system.slice/stockade.service"},
		{"moved by systemd's DelegateSubgroup, or by an earlier runner", whole, "/system.slice/stockade.service/supervisor", "", "/sys/fs/cgroup", "/system.slice/stockade.service"},
		{"the operator's word", whole, "/user.slice", "stockade.slice", "/sys/fs/cgroup", "/stockade.slice"},
		{"the operator cannot climb", whole, "/", "../../etc", "/sys/fs/cgroup", "/etc"},
		{"a container that shows its own part", []*mountinfo.Info{mount("cgroup2", "/docker/abc", "/sys/fs/cgroup")}, "/docker/abc", "", "/sys/fs/cgroup", ""},
		{"below that part", []*mountinfo.Info{mount("cgroup2", "/docker/abc", "/sys/fs/cgroup")}, "/docker/abc/x", "", "/sys/fs/cgroup", "/x"},
		{"a mount that shows another's part", []*mountinfo.Info{mount("cgroup2", "/docker/abcd", "/sys/fs/cgroup")}, "/docker/abc", "", "", ""},
		{"outside the cgroup namespace", whole, "/../other", "", "", ""},
		{"two mounts, one that shows us", []*mountinfo.Info{mount("cgroup2", "/elsewhere", "/a"), whole[0]}, "/g", "", "/sys/fs/cgroup", "/g"},
		{"v1 only", []*mountinfo.Info{mount("cgroup", "/", "/sys/fs/cgroup/memory")}, "/", "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h, err := locate(row.mounts, map[string]string{"": row.own}, "", Options{Parent: row.operator})
			if row.mount == "" {
				if !errors.Is(err, errNoHierarchy) {
					t.Errorf("got %+v, %v", h, err)
				}
				return
			}
			if err != nil || h.mount != row.mount || h.parent != row.parent {
				t.Errorf("got %q and %q, %v; want %q and %q", h.mount, h.parent, err, row.mount, row.parent)
			}
		})
	}
}

// A directory with a controller's name that is no cgroup file system is no controller.
func TestStrayDirectoryIsNoController(t *testing.T) {
	dir := t.TempDir()
	stray := &mountinfo.Info{FSType: "cgroup", Root: "/", Mountpoint: dir + "/memory", VFSOptions: "rw,memory"}
	if h, err := locate([]*mountinfo.Info{stray}, map[string]string{"memory": "/"}, "memory", Options{}); err == nil {
		t.Errorf("got %+v", h)
	}
}

// A file that the kernel cannot speak of is not one that there is not: the ceiling on swap was left out for one.
func TestExists(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dir: true, dir + "/loop": true, dir + "/loop/file": true, dir + "/file": false} {
		if exists(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// Which groups are built upon, whose processes may be moved for it, and what he is told who
// has to decide.
func TestSite(t *testing.T) {
	const scope = "systemd-run --scope --quiet -p Delegate=yes stockaded"
	missing, strangers := []string{"cpu", "pids"}, []int{7}
	for _, row := range []struct {
		name   string
		site   site
		remedy string // "" means that it is built upon
	}{
		{"nobody but the runner and its companions", site{systemd: true}, ""},
		{"a login shell's scope", site{systemd: true, strangers: strangers}, scope},
		{"a service that was not delegated", site{systemd: true, missing: missing, strangers: strangers}, scope},
		{"a unit of one's own", site{systemd: true, delegated: true, strangers: strangers}, ""},
		{"a unit that was delegated a part", site{systemd: true, delegated: true, missing: missing}, "cgroup.subtree_control"},
		{"a container that systemd delegated to its engine", site{delegated: true, top: true, strangers: strangers}, ""},
		{"a container's own group", site{top: true, strangers: strangers}, "--cgroup-parent /box, and they move to /box/supervisor"},
		{"a container's own group, by the operator's word", site{named: true, top: true, strangers: strangers}, ""},
		{"a container without the controllers", site{top: true, missing: missing, strangers: strangers}, "cgroup.subtree_control"},
		{"a container with systemd inside", site{systemd: true, top: true, strangers: strangers}, scope},
		{"another's group without systemd", site{strangers: strangers}, "a group of its own, or name one by --cgroup-parent"},
		{"another's group, by the operator's word", site{systemd: true, named: true, strangers: strangers}, ""},
		{"a named group that was handed nothing", site{systemd: true, named: true, missing: missing}, "cgroup.subtree_control"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.site.group = "/box"
			err := row.site.refusal()
			if row.remedy == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			why := "(such as 7)"
			if row.site.missing != nil {
				why = "no cpu, pids controller"
			}
			if err == nil || !strings.Contains(err.Error(), "cgroup /box ") || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), row.remedy) {
				t.Errorf("got %v, want %s and %s", err, why, row.remedy)
			}
		})
	}
}

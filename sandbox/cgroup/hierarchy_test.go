package cgroup

import (
	"errors"
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

// Whose processes may be moved, and what he is told who has to decide it.
func TestOccupied(t *testing.T) {
	for _, row := range []struct {
		name   string
		o      occupied
		remedy string // "" means that they move
	}{
		{"nobody but the runner and its companions", occupied{systemd: true}, ""},
		{"a login shell's scope", occupied{systemd: true, strangers: []int{7}}, "systemd-run --scope --quiet -p Delegate=yes stockaded"},
		{"a unit of one's own", occupied{systemd: true, delegated: true, strangers: []int{7}}, ""},
		{"a container that systemd delegated to its engine", occupied{delegated: true, top: true, strangers: []int{7}}, ""},
		{"a container's own group", occupied{top: true, strangers: []int{7}}, "--cgroup-parent /box, and they move to /box/supervisor"},
		{"a container's own group, by the operator's word", occupied{named: true, top: true, strangers: []int{7}}, ""},
		{"a container with systemd inside", occupied{systemd: true, top: true, strangers: []int{7}}, "systemd-run"},
		{"another's group without systemd", occupied{strangers: []int{7}}, "a group of its own, or name one by --cgroup-parent"},
		{"another's group, by the operator's word", occupied{systemd: true, named: true, strangers: []int{7}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.o.group = "/box"
			err := row.o.refusal()
			if row.remedy == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "/box") || !strings.Contains(err.Error(), "(such as 7)") || !strings.Contains(err.Error(), row.remedy) {
				t.Errorf("got %v, want %s", err, row.remedy)
			}
		})
	}
}

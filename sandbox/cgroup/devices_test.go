package cgroup_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

func init() { roles["devices"] = touchDevices }

// nodes are made on a file system that has devices, by root of the host's: nothing but the list of devices is in the way.
var nodes = []struct {
	kind         uint32
	major, minor uint32
	granted      bool
}{
	{unix.S_IFCHR, 1, 3, true},     // null
	{unix.S_IFCHR, 1, 1, false},    // mem
	{unix.S_IFCHR, 1, 11, false},   // kmsg
	{unix.S_IFBLK, 8, 0, false},    // the first disk
	{unix.S_IFCHR, 10, 229, false}, // fuse
}

// touchDevices opens each, and says how that ended.
func touchDevices() error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	for i := range nodes {
		fd, err := unix.Open(os.Getenv("CGROUP_TEST_DIR")+"/"+strconv.Itoa(i), unix.O_RDWR|unix.O_NONBLOCK, 0)
		fmt.Println(denied(err))
		if err == nil {
			unix.Close(fd)
		}
	}
	return nil
}

func denied(err error) string {
	if err == unix.EPERM {
		return "EPERM"
	}
	return "judged by the device" // opened, or there is none
}

var deviceList = []*devices.Rule{
	{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"},
	{Type: devices.CharDevice, Major: 1, Minor: 3, Permissions: "rw", Allow: true},
	{Type: devices.CharDevice, Major: 136, Minor: devices.Wildcard, Permissions: "rw", Allow: true},
}

// T023: a node that is there is not opened unless it is on the list, by either wall alone, which is each the other's
// control: without both, the device itself answers.
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	for i, n := range nodes {
		if err := unix.Mknod(dir+"/"+strconv.Itoa(i), n.kind|0o666, int(unix.Mkdev(n.major, n.minor))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CGROUP_TEST_DIR", dir)
	for _, row := range []struct {
		name string
		put  func(s *cgroup.Session, pid int) error
		held bool
	}{
		{"bpf alone", func(s *cgroup.Session, pid int) error { return put(s.Paths()[""]+"/x", pid) }, true},
		{"the v1 controller alone", func(s *cgroup.Session, pid int) error { return put(s.Paths()["devices"], pid) }, true},
		{"neither", func(*cgroup.Session, int) error { return nil }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			tree := open(t)
			s := create(t, tree, "devices", limits)
			how, err := s.Devices(deviceList)
			if err != nil {
				t.Fatal(err)
			}
			if _, legacy := s.Paths()["devices"]; (how == "bpf and devices") != legacy || !strings.HasPrefix(how, "bpf") {
				t.Errorf("held by %q", how)
			} else if !legacy && strings.Contains(row.name, "v1") {
				return // a host without that controller
			}
			cmd, told := start(t, "devices", nil)
			if err := row.put(s, cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			told.Close()
			for _, n := range nodes {
				want := denied(nil)
				if row.held && !n.granted {
					want = "EPERM"
				}
				if got := cmd.Stdout.(*lines).next(t); got != want {
					t.Errorf("%d:%d: %s, not %s", n.major, n.minor, got, want)
				}
			}
			cmd.Wait()
		})
	}
}

func put(dir string, pid int) error {
	return os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
}

// T023 R014: rules that cannot be put up, or do not read back, are an error.
func TestDevicesFail(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "devices", limits)
	for name, rules := range map[string][]*devices.Rule{
		"none":                nil,
		"nothing denied":      deviceList[1:],
		"all allowed":         {{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: true}},
		"a kind that is none": {deviceList[0], {Type: 'z', Major: 1, Minor: 3, Permissions: "rw", Allow: true}},
	} {
		if how, err := s.Devices(rules); err == nil {
			t.Errorf("%s: held by %q", name, how)
		}
	}
	if _, legacy := s.Paths()["devices"]; legacy {
		// A list that says the same twice is not what the kernel holds.
		if how, err := s.Devices(append(deviceList, deviceList[1])); err == nil {
			t.Errorf("held by %q, and reads back otherwise", how)
		}
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Devices(deviceList); err == nil {
		t.Error("held in groups that are gone")
	}
}

// T023 R014: only the program that was attached to the session is evidence; what is in force is another's where a group
// above has one, and the v1 controller, which still has the list, does not make up for it.
func TestDevicesOfAnother(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "devices", limits)
	if err := cgroups.DevicesSetV2(tree.Dir(), &cgroups.Resources{Devices: deviceList}); err != nil {
		t.Fatal(err)
	}
	unified := s.Paths()[""]
	for _, row := range []struct {
		name string
		do   func() error
	}{
		{"another in its place", func() error {
			return cgroups.DevicesSetV2(unified, &cgroups.Resources{Devices: []*devices.Rule{
				{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: true},
			}})
		}},
		{"none but of a group above", func() error { // the same groups again, without what was attached
			return errors.Join(os.Remove(unified+"/x"), os.Remove(unified+"/init"), os.Remove(unified),
				os.Mkdir(unified, 0o755), os.Mkdir(unified+"/init", 0o755), os.Mkdir(unified+"/x", 0o755))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if how, err := s.Devices(deviceList); err != nil || !strings.HasPrefix(how, "bpf") {
				t.Fatalf("the control: held by %q: %v", how, err)
			}
			if err := row.do(); err != nil {
				t.Fatal(err)
			}
			if how, err := s.DevicesHeld(deviceList); err == nil {
				t.Errorf("held by %q", how)
			}
		})
	}
}

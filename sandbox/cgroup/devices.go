package cgroup

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // compiles rules to BPF
	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"
)

// Devices holds the session to a list of devices: the first rule denies all, the others allow. It is a
// BPF program on S, which no group below can be without, and where the host has the v1 controller that one, too; how says
// which ("bpf", "bpf and devices"). Both are read back: the program at the groups that processes are in.
func (s *Session) Devices(rules []*devices.Rule) (how string, err error) {
	if len(rules) == 0 || rules[0].Allow || rules[0].Type != devices.WildcardDevice {
		return "", fmt.Errorf("bug: device rules that do not begin with the denial of all")
	}
	if err := cgroups.DevicesSetV2(s.unified.dir(), &cgroups.Resources{Devices: rules}); err != nil {
		return "", fmt.Errorf("device rules: %w", err)
	}
	if g := s.group("devices"); g.controller != "" {
		if err := g.allow(rules); err != nil {
			return "", err
		}
	}
	return s.DevicesHeld(rules)
}

// DevicesHeld reads back what holds the session to the list: at the groups that processes are in there is a program, and
// the v1 controller, where there is one, has these rules and no other.
func (s *Session) DevicesHeld(rules []*devices.Rule) (how string, err error) {
	for _, g := range []group{s.unified.child("init"), s.unified.child("x")} {
		if n, err := g.devicePrograms(); err != nil || n == 0 {
			return "", fmt.Errorf("device rules: %d programs are in force at cgroup %s: %v", n, g.dir(), err)
		}
	}
	g := s.group("devices")
	if g.controller == "" {
		return "bpf", nil
	}
	return "bpf and devices", g.allows(rules)
}

// devicePrograms is how many BPF programs judge the devices of a group, those above it included.
func (g group) devicePrograms() (int, error) {
	dir, err := open(g.dir(), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	// Kernels from 6.17 write all of it, whatever size they are told.
	var query struct { // of union bpf_attr, BPF_PROG_QUERY
		target, kind, flags, attached uint32
		ids                           uint64
		count, _                      uint32
		_                             [4]uint64
	}
	query.target, query.kind, query.flags = uint32(dir), unix.BPF_CGROUP_DEVICE, unix.BPF_F_QUERY_EFFECTIVE
	// Without room for them, it only counts.
	_, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	runtime.KeepAlive(&query)
	if e != 0 && e != unix.ENOSPC {
		return 0, os.NewSyscallError("bpf", e)
	}
	return int(query.count), nil
}

// allow writes the rules to a v1 group.
func (g group) allow(rules []*devices.Rule) error {
	if err := g.write("devices.deny", "a"); err != nil {
		return fmt.Errorf("device rules: %w", err)
	}
	for _, r := range rules[1:] {
		if !r.Allow {
			return fmt.Errorf("bug: device rule %s denies what is denied", r.CgroupString())
		}
		if err := g.write("devices.allow", r.CgroupString()); err != nil {
			return fmt.Errorf("device rules: %w", err)
		}
	}
	return nil
}

// allows compares what a v1 group holds with the rules.
func (g group) allows(rules []*devices.Rule) error {
	var want []string
	for _, r := range rules[1:] {
		want = append(want, r.CgroupString())
	}
	data, err := readFile(g.file("devices.list"))
	if err != nil {
		return fmt.Errorf("device rules: %w", err)
	}
	got := strings.FieldsFunc(data, func(r rune) bool { return r == '\n' })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("device rules: cgroup %s holds %q, not %q", g.dir(), got, want)
	}
	return nil
}

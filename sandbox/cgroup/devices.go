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
	attached, err := s.unified.devicePrograms(0)
	if err != nil || len(attached) != 1 {
		return "", fmt.Errorf("device rules: programs %d are attached to cgroup %s, and not one: %v", attached, s.unified.dir(), err)
	}
	s.program = attached[0]
	if g := s.group("devices"); g.controller != "" {
		if err := g.allow(rules); err != nil {
			return "", err
		}
	}
	return s.DevicesHeld(rules)
}

// DevicesHeld reads back what holds the session to the list: S has the program that [Session.Devices] has attached and no other,
// it is in force at the groups that processes are in, and the v1 controller, where there is one, has these rules and no other.
// That some program is in force would say nothing: groups above, such as a container's, have theirs.
func (s *Session) DevicesHeld(rules []*devices.Rule) (how string, err error) {
	if ids, err := s.unified.devicePrograms(0); err != nil || s.program == 0 || !slices.Equal(ids, []uint32{s.program}) {
		return "", fmt.Errorf("device rules: cgroup %s has programs %d, not %d: %v", s.unified.dir(), ids, s.program, err)
	}
	for _, g := range []group{s.unified.child("init"), s.unified.child("x")} {
		if ids, err := g.devicePrograms(unix.BPF_F_QUERY_EFFECTIVE); err != nil || !slices.Contains(ids, s.program) {
			return "", fmt.Errorf("device rules: programs %d are in force at cgroup %s, without %d: %v", ids, g.dir(), s.program, err)
		}
	}
	g := s.group("devices")
	if g.controller == "" {
		return "bpf", nil
	}
	return "bpf and devices", g.allows(rules)
}

// devicePrograms are the ids of the BPF programs for devices that are attached to a group, or with BPF_F_QUERY_EFFECTIVE of those
// that judge in it, those above it included.
func (g group) devicePrograms(flags uint32) ([]uint32, error) {
	dir, err := open(g.dir(), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var pins runtime.Pinner
	defer pins.Unpin()
	for room := uint32(64); ; {
		ids := make([]uint32, room)
		pins.Pin(&ids[0])
		// Kernels from 6.17 write all of it, whatever size they are told.
		var query struct { // of union bpf_attr, BPF_PROG_QUERY
			target, kind, flags, attached uint32
			ids                           uint64
			count, _                      uint32
			_                             [4]uint64
		}
		query.target, query.kind, query.flags = uint32(dir), unix.BPF_CGROUP_DEVICE, flags
		query.ids, query.count = uint64(uintptr(unsafe.Pointer(&ids[0]))), room
		_, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
		switch {
		case e == 0:
			return ids[:query.count], nil
		case e == unix.ENOSPC && query.count > room:
			room = query.count
		default:
			return nil, os.NewSyscallError("bpf", e)
		}
	}
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

// Package oci turns a [sandbox.Spec] into the OCI runtime configuration of the
// session's resident init. It is pure: no file is read, no system call is made,
// and golden files show all of its output.
//
// It promises a configuration in which no path of the caller occurs. The root file
// system, with everything of the caller's already attached, is a directory that
// the runner has staged; what is mounted by name on top of it are kernel file
// systems on directories that we have made ourselves.
//
// It carries neither the seccomp filter nor the resource limits: init puts both on
// itself, for executions to inherit, once it no longer needs what they refuse. Nor
// the ceilings of the cgroup, which sandbox/cgroup writes.
package oci

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/stockade-dev/stockade/sandbox"
)

// Place is what the runner has made for the session before init starts.
type Place struct {
	Rootfs   string   // the staged root, absolute, in the runner's staging namespace
	UserNS   string   // path of the session's user namespace
	CgroupNS string   // path of the session's cgroup namespace
	IDBase   uint32   // host id of inside id 0
	Args     []string // of init
	Clocks   *Clocks  // of the host; nil leaves the session without a time namespace
}

// Clocks are what the host's clocks show, in whole seconds. Those of the session start from zero:
// how long the host has been up is none of its business, and fine to tell hosts apart by.
type Clocks struct{ Monotonic, Boottime int64 }

// Compile returns the configuration of init for spec at place.
func Compile(spec sandbox.Spec, place Place) *specs.Spec {
	config := compile(spec, place)
	if c := place.Clocks; c != nil {
		config.Linux.Namespaces = append(config.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
		config.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{
			"monotonic": {Secs: -c.Monotonic},
			"boottime":  {Secs: -c.Boottime},
		}
	}
	return config
}

func compile(spec sandbox.Spec, place Place) *specs.Spec {
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: spec.Hostname,
		Root:     &specs.Root{Path: place.Rootfs}, // the staged mount is read-only already, and locked
		Mounts:   mounts,
		Process: &specs.Process{
			Args: place.Args,
			// Libcontainer would look it up otherwise, in a file of the root that may be the caller's (CVE-2019-14271).
			Env:             []string{"HOME=/"},
			Cwd:             "/",
			User:            specs.User{UID: sandbox.InitUID, GID: sandbox.InitUID},
			Capabilities:    capabilities(spec.Identity.Capabilities),
			NoNewPrivileges: true,
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace, Path: place.UserNS},
				{Type: specs.CgroupNamespace, Path: place.CgroupNS},
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace}, // empty; loopback is brought up
			},
			UIDMappings:   idMap(place.IDBase),
			GIDMappings:   idMap(place.IDBase),
			Resources:     &specs.LinuxResources{Devices: Devices},
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: readonlyPaths,
		},
	}
}

// initCapabilities are what init needs itself: to become the granted identity, to
// give up the bounding set, and to signal processes of another uid.
var initCapabilities = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}

// capabilities puts init's and the granted capabilities into every set: ambient,
// because init is executed as a uid other than 0 and would lose them otherwise.
func capabilities(granted []string) *specs.LinuxCapabilities {
	all := slices.Concat(initCapabilities, granted)
	slices.Sort(all)
	all = slices.Compact(all)
	return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all, Inheritable: all, Ambient: all}
}

func idMap(base uint32) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: sandbox.IDs}}
}

// mounts are the kernel's file systems. Each is a new instance that belongs to the
// session's namespaces; none is the host's. What bounds them is written as the kernel writes it, so that
// it can be compared.
var mounts = []specs.Mount{
	{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
	{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "ro", "mode=755", "size=64k", "nr_inodes=64"}},
	{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=666", "mode=0620", "gid=5", "max=64"}},
	{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", "size=65536k", "nr_inodes=4096"}},
	{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "nodev", "noexec"}},
	{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "nodev", "noexec", "ro"}},
}

// Devices is the device allow-list, for the session's group in the unified
// hierarchy: nothing but the memory devices, the controlling terminal and its own
// pseudo-terminals. It stands behind nodev and the user namespace, in which no
// device node can be made.
var Devices = []specs.LinuxDeviceCgroup{
	{Allow: false, Access: "rwm"},
	device(1, 3), // null
	device(1, 5), // zero
	device(1, 7), // full
	device(1, 8), // random
	device(1, 9), // urandom
	device(5, 0), // tty
	device(5, 2), // ptmx
	{Allow: true, Type: "c", Major: new(int64(136)), Access: "rw"}, // pts/*
}

func device(major, minor int64) specs.LinuxDeviceCgroup {
	return specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rw"}
}

// maskedPaths tell about the host, or reach it.
var maskedPaths = []string{
	"/proc/acpi",
	"/proc/asound",
	"/proc/interrupts",
	"/proc/kcore",
	"/proc/key-users",
	"/proc/keys",
	"/proc/kmsg",
	"/proc/kpagecgroup",
	"/proc/kpagecount",
	"/proc/kpageflags",
	"/proc/latency_stats",
	"/proc/sched_debug",
	"/proc/scsi",
	"/proc/slabinfo",
	"/proc/timer_list",
	"/proc/timer_stats",
	"/proc/vmallocinfo",
	"/sys/block",
	"/sys/dev",
	"/sys/devices/virtual/dmi",
	"/sys/devices/virtual/powercap",
	"/sys/firmware",
	"/sys/fs",
	"/sys/hypervisor",
	"/sys/kernel",
	"/sys/module",
	"/sys/power",
}

// readonlyPaths are read by ordinary programs and written by none of ours.
var readonlyPaths = []string{
	"/proc/bus",
	"/proc/fs",
	"/proc/irq",
	"/proc/sys",
	"/proc/sysrq-trigger",
}

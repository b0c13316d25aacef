package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// A ceiling is written as text into one file and read back as text from the same file.
// What is wanted is computed here for sessions and executions, for v1 and v2, and compared with
// what the kernel then holds; nothing is taken as armed because a write succeeded.

// setting is what one file of a controller has to hold.
type setting struct {
	file, value string
	spare       bool // missing where the kernel does not account swap: see [Session.swapFile]
}

// turns are a ceiling of processor time: so many microseconds of each period. The period is shorter than the
// kernel's own of 100 ms, because in each one the quota is used in one go, when whoever shares the processor waits, and
// so is the rest of it, when the command does. The kernel takes no quota below 1 ms.
func turns(l sandbox.Limits) (quota, period int64) {
	period = 20_000
	if l.CPUMillis*period < 1000*1000 {
		period = 100_000
	}
	return l.CPUMillis * period / 1000, period
}

// settings are the files of a controller that hold ceilings. Zero is no ceiling, and no file.
// The kernel has no swap beyond memory to give where the two together are bounded by the
// bound of the one, or swap by nothing.
var settings = map[string]map[string]func(sandbox.Limits) []setting{
	"v1": {
		"memory": func(l sandbox.Limits) []setting {
			return when(l.MemoryBytes,
				setting{file: "memory.limit_in_bytes", value: text(l.MemoryBytes)},
				setting{file: "memory.memsw.limit_in_bytes", value: text(l.MemoryBytes), spare: true})
		},
		"cpu": func(l sandbox.Limits) []setting {
			quota, period := turns(l)
			return append(when(l.CPUMillis,
				setting{file: "cpu.cfs_period_us", value: text(period)},
				setting{file: "cpu.cfs_quota_us", value: text(quota)}),
				when(l.CPUWeight, setting{file: "cpu.shares", value: text(shares(l.CPUWeight))})...)
		},
		"pids": func(l sandbox.Limits) []setting {
			return when(l.PIDs, setting{file: "pids.max", value: text(l.PIDs)})
		},
	},
	"v2": {
		"memory": func(l sandbox.Limits) []setting {
			return when(l.MemoryBytes,
				setting{file: "memory.max", value: text(l.MemoryBytes)},
				setting{file: "memory.swap.max", value: "0", spare: true})
		},
		"cpu": func(l sandbox.Limits) []setting {
			quota, period := turns(l)
			return append(when(l.CPUMillis, setting{file: "cpu.max", value: fmt.Sprintf("%d %d", quota, period)}),
				when(l.CPUWeight, setting{file: "cpu.weight", value: text(l.CPUWeight)})...)
		},
		"pids": func(l sandbox.Limits) []setting {
			return when(l.PIDs, setting{file: "pids.max", value: text(l.PIDs)})
		},
	},
}

func when(n int64, s ...setting) []setting {
	if n == 0 {
		return nil
	}
	return s
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// shares is what the scheduler itself makes of a cpu.weight, so that a weight is the same share of
// a processor on both versions: the defaults, 100 and 1024, are each other's.
func shares(weight int64) int64 { return (weight*1024 + 50) / 100 }

// pages cuts memory as the kernel would.
func pages(n int64) int64 { return n - n%int64(os.Getpagesize()) }

// Files reads every ceiling of the session back from the kernel, in every hierarchy, and compares it
// with what was asked for. A difference is an error, and so is a ceiling that does not stand yet: [Session.JoinInit]
// raises the last.
func (s *Session) Files() ([]sandbox.CgroupFile, error) {
	if s.limits.MemoryBytes == 0 || s.limits.CPUMillis == 0 || s.limits.PIDs == 0 {
		return nil, fmt.Errorf("cgroup %s: has no ceilings", s.unified.rel)
	}
	own, executions := s.limits, sandbox.Limits{PIDs: s.forks()}
	own.PIDs += sandbox.InitPIDs
	var files []sandbox.CgroupFile
	for _, c := range controllers {
		some, err := s.group(c).files("", c, own, s.tree.host)
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	some, err := s.group("pids").child("x").files("x/", "pids", executions, s.tree.host)
	if err != nil {
		return nil, err
	}
	files = append(files, some...)
	for _, disk := range s.disks {
		value, err := s.unified.throttle(disk)
		if err != nil {
			return nil, err
		}
		if want := bandwidth(s.limits.IOBytesPerSecond); !strings.HasPrefix(value, want) {
			return nil, fmt.Errorf("cgroup %s: io.max of %s holds %q, not %q", s.unified.rel, disk, value, want)
		}
		files = append(files, sandbox.CgroupFile{Controller: "io", File: "io.max", Value: disk + " " + value})
	}
	if s.limits.IOBytesPerSecond != 0 && !s.throttled {
		return nil, fmt.Errorf("cgroup %s: has no io ceiling", s.unified.rel)
	}
	return files, nil
}

// forks is what the group of all executions may hold. On v1 init's spawning thread is in it:
// see [Session.JoinSpawner].
func (s *Session) forks() int64 {
	if s.tree.host.Version["pids"] == "v1" {
		return s.limits.PIDs + 1
	}
	return s.limits.PIDs
}

// files reads what a group has to hold of a controller, and compares.
func (g group) files(prefix, controller string, l sandbox.Limits, h Hierarchies) ([]sandbox.CgroupFile, error) {
	var files []sandbox.CgroupFile
	for _, want := range settings[h.Version[controller]][controller](l) {
		data, err := readFile(g.file(want.file))
		if want.spare && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read back %s of cgroup %s: %w", controller, g.rel, err)
		}
		got := strings.TrimSpace(data)
		if got != want.value {
			return nil, fmt.Errorf("cgroup %s: %s holds %q, not %q", g.dir(), want.file, got, want.value)
		}
		files = append(files, sandbox.CgroupFile{Controller: controller, File: prefix + want.file, Value: got})
	}
	return files, nil
}

// Limits reads the ceilings back from the kernel, and swap beyond memory. What is not as it
// was asked for is an error. Files and CPUTime are no group's matter and stay 0.
func (s *Session) Limits() (limits sandbox.Limits, swap int64, err error) {
	if _, err := s.Files(); err != nil {
		return sandbox.Limits{}, 0, err
	}
	if _, err := s.swapFile(); err != nil { // swap may have been turned on
		return sandbox.Limits{}, 0, err
	}
	limits = s.limits
	limits.Files, limits.CPUTime = 0, 0
	return limits, 0, nil
}

// raise writes a controller's ceilings of a group.
func (g group) raise(controller string, l sandbox.Limits, h Hierarchies) error {
	for _, want := range settings[h.Version[controller]][controller](l) {
		err := g.write(want.file, want.value)
		if want.spare && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cgroup ceiling: %w", err)
		}
	}
	return nil
}

// BoundIO bounds what the session reads from and writes to the disks that lie under the given devices
// (st_dev of what is mounted), each by bps bytes per second. File systems that are in memory
// only are left out by the caller; one that lies on no disk, or on disks that it does not tell,
// such as btrfs, cannot be bounded.
//
// Only the io controller of v2 can. That of v1 sees reads and direct writes; what is written
// through the page cache, which is nearly everything, passes it as the kernel's own.
func (s *Session) BoundIO(devices []uint64, bps int64) error {
	if bps <= 0 || bps != s.limits.IOBytesPerSecond {
		return fmt.Errorf("bug: io ceiling of %d, not of %d", bps, s.limits.IOBytesPerSecond)
	}
	if err := s.tree.host.IO(); err != nil {
		return sandbox.Errorf(sandbox.CodeUnsupported, "io ceiling: %v", err)
	}
	for _, device := range devices {
		disk, err := wholeDisk(device)
		if err != nil {
			return sandbox.Errorf(sandbox.CodeUnsupported, "io ceiling: %v", err)
		}
		if slices.Contains(s.disks, disk) {
			continue
		}
		if err := s.unified.write("io.max", disk+" "+bandwidth(bps)); err != nil {
			return sandbox.Errorf(sandbox.CodeUnsupported, "io ceiling of disk %s: %v", disk, err)
		}
		s.disks = append(s.disks, disk)
	}
	s.throttled = true
	return nil
}

func bandwidth(bps int64) string { return fmt.Sprintf("rbps=%d wbps=%d", bps, bps) }

// throttle is what io.max says of a disk, without its number.
func (g group) throttle(disk string) (string, error) {
	data, err := readFile(g.file("io.max"))
	if err != nil {
		return "", fmt.Errorf("read back io of cgroup %s: %w", g.rel, err)
	}
	for line := range strings.Lines(data) {
		if number, rest, _ := strings.Cut(strings.TrimSpace(line), " "); number == disk {
			return rest, nil
		}
	}
	return "", fmt.Errorf("cgroup %s: io.max says nothing of %s", g.rel, disk)
}

// wholeDisk is the number ("8:0") of the disk that a device is, or is a part of: io.max takes no
// partitions.
func wholeDisk(device uint64) (string, error) {
	number := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	dir, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return "", fmt.Errorf("device %s is no disk: %w", number, err)
	}
	if exists(dir + "/partition") {
		dir = filepath.Dir(dir)
	}
	data, err := os.ReadFile(dir + "/dev")
	if err != nil {
		return "", fmt.Errorf("device %s: %w", number, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// IO says why there are no io ceilings here, if there are none.
func (h Hierarchies) IO() error {
	if h.io {
		return nil
	}
	return errors.New("the unified cgroup hierarchy has no io controller here, and that of v1 does not see what is written through the page cache")
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ripgrep stands in for the rg that an operator provides: it leaves what it is in the directory that it is to search, and names as found
// what is not there to be found.
func ripgrep(args []string) (string, error) {
	if slices.Contains(args, "--version") {
		return "ripgrep 15.0.0", nil
	}
	var b strings.Builder
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains([]string{"Uid", "Gid", "Groups", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}, name) {
			b.WriteString(line)
		}
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(groups)) {
		if at := strings.Index(line, "/x/"); at >= 0 {
			line = line[:at+3] + "\n"
		}
		b.WriteString(line)
	}
	b.WriteString("descriptors")
	for fd := range 256 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 { // what is closed at an exec is our runtime's own
			fmt.Fprintf(&b, " %d", fd)
		}
	}
	fmt.Fprintf(&b, "\nenvironment %d\n", len(os.Environ()))
	_, err = unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{Flags: unix.O_PATH})
	fmt.Fprintf(&b, "openat2 %s\n", verdict("", err))
	_, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	fmt.Fprintf(&b, "socket %s\n", verdict("", err))
	if err := os.WriteFile("what", []byte(b.String()), 0o644); err != nil {
		return "", err
	}
	fmt.Print("./f\x00../canary\x00./up/canary\x00/work/canary\x00./../canary\x00")
	os.Exit(0)
	return "", nil
}

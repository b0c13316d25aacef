package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Lack is one thing that a container around us withholds from the runner, and the flag of docker run or podman run that grants it.
type Lack struct {
	What  string `json:"what"`
	Found string `json:"found"`
	Flag  string `json:"flag"`
}

// surroundings are the facts that lacks rests on.
type surroundings struct {
	uid       int
	effective uint64
	filtered  bool   // a seccomp filter is on us
	apparmor  string // the profile that we are under; "" for none
	born      error  // of a child in a user namespace, which takes no capability
	mounted   error  // of a tmpfs in a mount namespace of our own
	proc      error  // of a fresh /proc in a session's namespaces
	groups    []string
	readOnly  []string // of groups: where they are mounted read-only
}

// Lacks says what a container withholds from the runner, each with what grants it. proc mounts a fresh /proc in new user, mount and pid
// namespaces, for which it takes a process of its own. Nothing of it stays.
func Lacks(proc func() error) ([]Lack, error) {
	s := surroundings{uid: os.Geteuid()}
	var err error
	if s.effective, err = effective(); err != nil {
		return nil, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	s.filtered = strings.Contains(string(status), "\nSeccomp:\t2")
	if profile, err := os.ReadFile("/proc/self/attr/current"); err == nil {
		if name := strings.TrimSpace(strings.TrimRight(string(profile), "\x00")); strings.HasSuffix(name, "(enforce)") {
			s.apparmor = name
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 5 && strings.HasPrefix(after, "cgroup") {
			s.groups = append(s.groups, f[4])
			if slices.Contains(strings.Split(f[5], ","), "ro") {
				s.readOnly = append(s.readOnly, f[4])
			}
		}
	}
	_, s.born = born(0, 0)
	s.mounted = mountedApart()
	s.proc = proc()
	return s.lacks(), nil
}

// mountedApart mounts a tmpfs in a mount namespace that goes with its thread, by mount(2), as libcontainer does.
func mountedApart() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			done <- fmt.Errorf("mount: %w", err)
			return
		}
		if err := unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""); err != nil {
			done <- fmt.Errorf("mount: %w", err)
			return
		}
		done <- nil
	}()
	return <-done
}

// withheld are the answers of those who do not let.
func withheld(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS)
}

// lacks judges the facts. What a missing capability explains is not blamed on anything else.
func (s surroundings) lacks() []Lack {
	out := []Lack{}
	if s.uid != 0 {
		out = append(out, Lack{"root", fmt.Sprintf("uid %d", s.uid), "--user 0"})
	}
	for _, c := range needed {
		if s.effective&(1<<c.bit) == 0 {
			out = append(out, Lack{c.name, "not among the effective capabilities", "--cap-add " + strings.TrimPrefix(c.name, "CAP_")})
		}
	}
	able := s.effective&(1<<unix.CAP_SYS_ADMIN) != 0
	switch {
	case s.filtered && withheld(s.born):
		out = append(out, Lack{"namespaces", "a seccomp filter refuses them: " + s.born.Error(), "--security-opt seccomp=unconfined"})
	case able && s.filtered && withheld(s.mounted) && (s.apparmor == "" || !errors.Is(s.mounted, unix.EACCES)):
		out = append(out, Lack{"mounts", "a seccomp filter refuses them: " + s.mounted.Error(), "--security-opt seccomp=unconfined"})
	}
	if able && s.apparmor != "" && errors.Is(s.mounted, unix.EACCES) {
		out = append(out, Lack{"mounts", "the AppArmor profile " + s.apparmor + " refuses them", "--security-opt apparmor=unconfined"})
	}
	if able && s.born == nil && s.mounted == nil && s.proc != nil {
		out = append(out, Lack{"a fresh /proc in a session", "what is mounted over parts of /proc here forbids it: " + s.proc.Error(),
			"docker: --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL"})
	}
	const groups = "docker: -v /sys/fs/cgroup:/sys/fs/cgroup:rw --cgroupns=host; podman: --security-opt unmask=/sys/fs/cgroup"
	switch {
	case len(s.groups) == 0:
		out = append(out, Lack{"control groups", "none is mounted", groups})
	case len(s.readOnly) > 0:
		out = append(out, Lack{"writable control groups", "read-only: " + strings.Join(s.readOnly, " "), groups})
	}
	return out
}

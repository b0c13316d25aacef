package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// T035: with the holder's word, nobody makes a user namespace below this one, by any door.
func TestHold(t *testing.T) {
	needRoot(t)
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}}
	cmd := exec.Command(filepath.Join(bin, "stockade-init"), "hold")
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                ids,
		GidMappings:                ids,
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: 0, Gid: 0},
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	h, err := NewHolder(ours)
	if err != nil {
		t.Fatal(err)
	}
	if below, err := h.User(t.Context()); below != 0 || err != nil {
		t.Fatal(below, err)
	}
	pid := cmd.Process.Pid
	before := cgroupNamespace(t, pid)
	if err := h.Cgroup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := cgroupNamespace(t, pid); after == before {
		t.Errorf("the cgroup namespace is still %s", after)
	}
	inside := func(script string) string {
		out, _ := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-U", "sh", "-c", script).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	if got := inside("cat /proc/sys/user/max_user_namespaces"); got != "0" {
		t.Errorf("max_user_namespaces: %s", got)
	}
	if got := inside("unshare -U true && echo made one"); !strings.Contains(got, "No space left") {
		t.Errorf("unshare: %s", got)
	}
	h.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &stderr)
	}
}

func cgroupNamespace(t *testing.T, pid int) string {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

package cgroup_test

import (
	"syscall"
	"testing"
)

// R070: leaves that are ready when every execution is killed are killed with them, and the
// kernel may kill what is born there later: the next execution gets another.
func TestStockAfterKill(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	s.Restock()
	if err := s.KillExecutions(); err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	cmd, in := start(t, "wait", &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(leaf.FD().Fd())})
	if !member(t, s.Paths()[""]+"/x/3", cmd.Process.Pid) {
		t.Error("not born in a leaf that was made after the kill")
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
}

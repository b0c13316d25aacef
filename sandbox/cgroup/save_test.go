package cgroup_test

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// What one program built, the next one measures, kills and removes: by names and numbers.
func TestReopen(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	if err := s.Chown(0, 0); err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	s.Restock()
	cmd, _ := start(t, "wait", &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(leaf.FD().Fd())})
	pid := cmd.Process.Pid
	if err := s.JoinV1(pid); err != nil {
		t.Fatal(err)
	}

	saved, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var state cgroup.SessionState
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	again, err := tree.Reopen(state)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := again.Limits(); err != nil || got.MemoryBytes != limits.MemoryBytes {
		t.Errorf("ceilings %+v, %v", got, err)
	}
	if again.Name() != s.Name() {
		t.Errorf("name %s, not %s", again.Name(), s.Name())
	}
	if u, err := again.Stats(); err != nil || u.CPU <= 0 {
		t.Errorf("usage %+v, %v", u, err)
	}

	old, err := again.Reopen(leaf.Name())
	if err != nil {
		t.Fatal(err)
	}
	if empty, err := old.Empty(); empty || err != nil {
		t.Errorf("with a process in: empty %v, %v", empty, err)
	}
	next, err := again.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	if next.Name() == leaf.Name() || next.FD() == nil {
		t.Errorf("leaf %s a second time", next.Name())
	}
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := old.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := old.Remove(); err != nil {
		t.Fatal(err)
	}
	if old, err = again.Reopen(leaf.Name()); err != nil {
		t.Fatal(err)
	}
	if empty, err := old.Empty(); !empty || err != nil {
		t.Errorf("gone: empty %v, %v", empty, err)
	}
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove(); err != nil { // the next leaf with it
		t.Fatal(err)
	}
	if _, err := tree.Reopen(state); err == nil {
		t.Error("reopened a session that is gone")
	}
}

// A name out of a state is one component, whatever the state says.
func TestReopenNames(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	for _, name := range []string{"", ".", "..", "../s1", "x/1"} {
		if _, err := tree.Reopen(cgroup.SessionState{Name: name}); err == nil {
			t.Errorf("session %q was reopened", name)
		}
		if _, err := s.Reopen(name); err == nil {
			t.Errorf("leaf %q was reopened", name)
		}
	}
}

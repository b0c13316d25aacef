package oci

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var place = Place{
	Rootfs:   "/mnt",
	UserNS:   "/proc/100/fd/7",
	CgroupNS: "/proc/100/fd/8",
	IDBase:   0x7000_0000,
	Args:     []string{"/proc/self/fd/4"},
}

// TestCompile shows all that libcontainer is asked for (R025, R029–R033).
func TestCompile(t *testing.T) {
	plain := sandbox.Spec{
		Session:  "s1",
		Root:     sandbox.Root{Kind: sandbox.RootHost},
		Identity: sandbox.Identity{UID: 1000, GID: 1000},
		Hostname: "sandbox",
		Workdir:  "/work",
		Network:  sandbox.Network{Mode: "none"},
		Seccomp:  "default",
		Limits:   sandbox.Limits{MemoryBytes: 512 << 20, CPUMillis: 1000, PIDs: 128, Files: 1024},
	}
	granted := plain
	granted.Identity.Capabilities = []string{"CAP_NET_BIND_SERVICE", "CAP_KILL"}
	clocked := place
	clocked.Clocks = &Clocks{Monotonic: 86400, Boottime: 90000}
	for name, c := range map[string]struct {
		spec  sandbox.Spec
		place Place
	}{"plain": {plain, clocked}, "granted": {granted, clocked}, "without a time namespace": {plain, place}} {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(Compile(c.spec, c.place), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".json")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("-%s +got\n%s", golden, diff)
			}
		})
	}
}

// TestNoCallerPaths plants a mark in every path of the caller's: none may reach a
// configuration that is resolved by name (T007, T008).
func TestNoCallerPaths(t *testing.T) {
	const mark = "/caller-controlled"
	src := sandbox.Source{Path: mark, Resolved: mark, Kind: "dir"}
	spec := sandbox.Spec{
		Root:    sandbox.Root{Kind: sandbox.RootDir, Dir: &src, Paths: []sandbox.Source{src}},
		Mounts:  []sandbox.Mount{{Source: src, Target: mark}},
		Scratch: []sandbox.Scratch{{Target: mark}},
		Workdir: mark,
	}
	got, err := json.Marshal(Compile(spec, place))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got), mark) {
		t.Errorf("a path of the caller's is in %s", got)
	}
}

// TestHardened compares with what a container needs at least (R029, R030, T017, T019).
func TestHardened(t *testing.T) {
	c := Compile(sandbox.Spec{}, place)
	if !c.Process.NoNewPrivileges || c.Process.Capabilities == nil || c.Linux.Seccomp != nil {
		t.Errorf("process %+v", c.Process)
	}
	for _, m := range c.Mounts {
		for _, o := range []string{"nosuid", "noexec"} {
			if !slices.Contains(m.Options, o) {
				t.Errorf("%s lacks %s", m.Destination, o)
			}
		}
		if m.Type == "bind" {
			t.Errorf("%s is bound by name", m.Destination)
		}
	}
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware", "/sys/fs"} {
		if !slices.Contains(c.Linux.MaskedPaths, p) {
			t.Errorf("%s is not masked", p)
		}
	}
	for _, p := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
		if !slices.Contains(c.Linux.ReadonlyPaths, p) {
			t.Errorf("%s is not read-only", p)
		}
	}
}

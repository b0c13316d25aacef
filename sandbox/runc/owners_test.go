package runc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

// TestGroupLines is the arithmetic: every group of the caller's has one number inside, no group of nobody's has one, and no execution is in a
// group by a number that is another one's outside (R012).
func TestGroupLines(t *testing.T) {
	const base = 1 << 20
	many := make([]uint32, 300)
	for i := range many {
		many[i] = uint32(5000 + i)
	}
	for _, c := range []struct {
		name          string
		groups, named []uint32 // of the caller, of the identity
		first         uint32
		want          string // from:inside, the caller's own left out
	}{
		{name: "none", want: ""},
		{name: "own number", groups: []uint32{4002, 4001, 4001}, want: "4001:4001 4002:4002"},
		{name: "his own group again", groups: []uint32{1001, 4001}, want: "4001:4001"},
		{name: "only the identity's", groups: []uint32{4001}, named: []uint32{4002}, want: "4001:4001"},
		{name: "the identity's own number", groups: []uint32{1000}, want: "1000:65533"},
		{name: "spare ones are nobody's", groups: []uint32{1000, 65533, 70000, 80000}, named: []uint32{65532}, want: "1000:65531 65533:65533 70000:65530 80000:65529"},
		{name: "what means none to the kernel", groups: []uint32{65534, 65535}, want: "65534:65533 65535:65532"},
		{name: "the directory's, then the identity's", groups: []uint32{7, 8, 9}, named: []uint32{8}, first: 9, want: "9:9 8:8 7:7"},
		{name: "not his", groups: []uint32{4001}, first: 4003, want: "4001:4001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := groupLines(sandbox.Caller{UID: 1001, GID: 1001, Groups: c.groups}, sandbox.Identity{UID: 1000, GID: 1000, Groups: c.named}, base, c.first)
			want := mapping(1001, base+1000, 1)
			for _, one := range strings.Fields(c.want) {
				var from, inside uint32
				if _, err := fmt.Sscanf(one, "%d:%d", &from, &inside); err != nil {
					t.Fatal(err)
				}
				want += mapping(from, base+inside, 1)
			}
			if got != want {
				t.Errorf("lines\n%swant\n%s", got, want)
			}
		})
	}
	t.Run("more than there is room for", func(t *testing.T) {
		got := groupLines(sandbox.Caller{UID: 1001, GID: 1001, Groups: many}, sandbox.Identity{UID: 1000, GID: 1000}, sandbox.LastHostID-sandbox.IDs, 5299)
		if n := strings.Count(got, "\n"); n != maxGroups+1 || len(got) >= os.Getpagesize() || !strings.Contains(got, "\n5299 ") {
			t.Errorf("%d lines, %d bytes", n, len(got))
		}
	})
}

// TestGroups shares directories of a team's. What a session may do there is what its caller may, at the most: groups that he is in exist
// inside, of those that the grant names executions are members, and a group that he is not in stays unmapped, even named by the grant (R012, R091).
func TestGroups(t *testing.T) {
	const (
		team, named, stranger = 4001, 4002, 4003
		huge                  = 3_000_000_000
	)
	r := newRunner(t)
	caller := sandbox.Caller{UID: 1001, GID: 1001, Groups: []uint32{team, named, huge}}
	before := residueOf(t, r)
	own := func(path string, mode os.FileMode, uid, gid int) string {
		t.Helper()
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	top := sharedDir(t)
	dir := own(mkdir(t, filepath.Join(top, "project"), 0o755, 1001), os.ModeSetgid|0o775, 1001, team)
	own(mkdir(t, filepath.Join(dir, "foreign"), 0o755, 1001), 0o777, 1001, stranger)
	for name, gid := range map[string]int{"team": team, "named": named, "stranger": stranger} {
		write(t, filepath.Join(dir, name), name+"'s\n", 0o600, 4242)
		own(filepath.Join(dir, name), 0o640, 4242, gid) // somebody else's, readable for the group
	}
	write(t, filepath.Join(dir, "unmapped"), "", 0o600, 1001)
	own(filepath.Join(dir, "unmapped"), 0o666, 1001, stranger)

	spec := hostSpec("team")
	spec.Caller, spec.Workdir = caller, "/work"
	spec.Identity.Groups = []uint32{named, stranger}
	spec.Mounts = []sandbox.Mount{
		{Source: source(t, r, caller, dir), Target: "/work", Protected: []string{".git/config"}},
		{Source: source(t, r, caller, own(mkdir(t, filepath.Join(top, "huge"), 0o755, 1001), 0o770, 1001, huge)), Target: "/huge"},
	}
	open(t, r, spec)
	o := shell(t, r, "team", `cd /work; stat -c "%u:%g %n" . foreign team unmapped /huge; id -G
		echo new > file; mkdir sub; echo x > sub/x; echo x > /huge/x
		cat team; cat named; cat stranger
		echo x > foreign/x; echo x >> unmapped; echo x >> named
		chgrp 4002 file && echo changed; chgrp 4001 sub/x; chgrp 4003 sub/x; chmod 2755 file; echo x > .git/config`)
	contains(t, "stdout", o.stdout, "1000:4001 .\n", "1000:65534 foreign", "65534:4001 team", "1000:65534 unmapped", "1000:65533 /huge", "1000 4002 4003\n", "named's\n", "changed\n")
	contains(t, "stderr", o.stderr, "team: Permission denied", "stranger: Permission denied", "foreign/x: Permission denied", "unmapped: Permission denied",
		"named: Permission denied", "of 'file': Operation not permitted", ".git/config: Read-only file system")
	for _, leak := range []string{"team's\n", "stranger's\n"} {
		if strings.Contains(o.stdout, leak) {
			t.Errorf("read %q", leak)
		}
	}
	for path, want := range map[string]uint32{"project/file": named, "project/sub": team, "project/sub/x": team, "huge/x": 1001} {
		var st unixStat
		if err := st.of(filepath.Join(top, path)); err != nil {
			t.Error(err)
		} else if st.Uid != 1001 || st.Gid != want {
			t.Errorf("%s outside is %d:%d, want 1001:%d", path, st.Uid, st.Gid, want)
		}
	}
	closeSession(t, r, "team")
	if _, err := os.Lstat(filepath.Join(dir, ".git")); !os.IsNotExist(err) {
		t.Errorf(".git: %v, after the end of what reserved it", err)
	}

	for _, c := range []struct {
		name     string
		uid, gid int
		overlay  bool
		want     string
	}{
		{"a group that he is not in", 1001, stranger, false, "group 4003"},
		{"somebody else's, for a group of his", 4242, team, false, "uid 4242"},
		{"with an overlay", 1001, stranger, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := hostSpec("refused")
			spec.Caller = caller
			spec.Identity.Groups = []uint32{stranger}
			m := sandbox.Mount{Source: source(t, r, caller, own(mkdir(t, filepath.Join(top, "other"), 0o755, 1001), 0o777, c.uid, c.gid)), Target: "/other"}
			if c.overlay {
				m.Overlay = &sandbox.Overlay{Bytes: 1 << 20, Inodes: 100}
			}
			spec.Mounts = []sandbox.Mount{m}
			_, err := r.Open(context.Background(), spec)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				closeSession(t, r, "refused")
			} else if codeOf(err) != sandbox.CodeMountSource || !strings.Contains(err.Error(), c.want) {
				t.Errorf("open: %v", err)
			}
		})
	}
	before.mustLeaveNothing(t, r)
}

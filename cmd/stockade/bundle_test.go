package main

import "testing"

func TestWithoutPath(t *testing.T) {
	for _, row := range []struct{ detail, want string }{
		{"", ""},
		{"6.1.0, ABI 2", "6.1.0, ABI 2"},
		{"lacks CAP_SYS_ADMIN, CAP_KILL", "lacks CAP_SYS_ADMIN, CAP_KILL"},
		{"mkdir /sys/fs/cgroup/payroll.slice/s1: permission denied", "permission denied"},
		{`own cgroup: line "0::/payroll.slice"`, ""},
		{"group /payroll.slice is outside", ""},
	} {
		if got := withoutPath(row.detail); got != row.want {
			t.Errorf("%q: %q, want %q", row.detail, got, row.want)
		}
	}
}

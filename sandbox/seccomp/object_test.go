package seccomp

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What was refused is named from the arguments that decided, and from nothing that they point to.
func TestObjects(t *testing.T) {
	for _, tt := range []struct {
		profile, call string
		args          [6]uint64
		want          string
	}{
		{"default", "socket", [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}, "AF_PACKET"},
		{"default", "socket", [6]uint64{unix.AF_VSOCK | 1<<32}, "AF_VSOCK"}, // an int
		{"default", "socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, "AF_NETLINK NETLINK_AUDIT"},
		{"default", "socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, 31}, "AF_NETLINK 31"},
		{"default", "socket", [6]uint64{4000}, "4000"},
		{"strict", "socket", [6]uint64{unix.AF_INET6}, "AF_INET6"},
		{"default", "socket", [6]uint64{unix.AF_INET}, ""},
		{"default", "socketpair", [6]uint64{unix.AF_TIPC}, "AF_TIPC"},
		{"default", "clone", [6]uint64{unix.CLONE_VM | unix.CLONE_NEWUSER | unix.CLONE_NEWNS | 17}, "CLONE_NEWNS|CLONE_NEWUSER"},
		{"default", "unshare", [6]uint64{unix.CLONE_FS | unix.CLONE_NEWNET}, "CLONE_NEWNET"},
		{"default", "unshare", [6]uint64{unix.CLONE_NEWTIME | 1<<40}, "CLONE_NEWTIME|0x10000000000"},
		{"default", "ioctl", [6]uint64{0, unix.TIOCSTI | 1<<32}, "TIOCSTI"},
		{"default", "ioctl", [6]uint64{0, unix.TIOCSCTTY, 1}, "TIOCSCTTY"},
		{"default", "ioctl", [6]uint64{0, 0x4b45}, "0x4b45"},
		{"default", "ioctl", [6]uint64{0, unix.TCGETS}, ""},
		{"default", "personality", [6]uint64{0x0440008}, "ADDR_NO_RANDOMIZE|READ_IMPLIES_EXEC|0x8"},
		{"default", "fchmod", [6]uint64{3, unix.S_IFREG | 0o4755}, "04755"},
		{"default", "openat", [6]uint64{0, 0xdead, unix.O_CREAT, 0o2644}, "02644"},
		{"strict", "mknodat", [6]uint64{0, 0, unix.S_IFIFO | 0o644}, ""}, // whatever its arguments
		{"default", "mount", [6]uint64{1, 2, 3}, ""},
	} {
		call, err := number(tt.call)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := Lookup(tt.profile, int(call), tt.args); v.Object != tt.want {
			t.Errorf("%s: %s(%#x): %q, want %q", tt.profile, tt.call, tt.args, v.Object, tt.want)
		}
	}
	// None is forgotten.
	for _, r := range rows {
		if !r.tells() || r.only == nil && r.unless == nil {
			continue
		}
		for call := range strings.FieldsSeq(r.calls) {
			if objects[call] == nil {
				t.Errorf("%s is refused by an argument, and not said by which", call)
			}
		}
	}
}

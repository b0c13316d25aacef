package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// object is what a refused call asked for, where a row decides by its arguments: from the registers alone, because what they point
// to is the caller's to change. "" where the arguments decide nothing.
func (r row) object(call string, args [6]uint64) string {
	asked := objects[call]
	if asked == nil || r.only == nil && r.unless == nil {
		return ""
	}
	return asked(args)
}

// objects are by call. Every call has one that a row refuses by an argument, and tells of.
var objects = map[string]func(args [6]uint64) string{
	"socket": family, "socketpair": family,
	"clone":       func(args [6]uint64) string { return bits(args[0]&cloneNew, cloneFlags) },
	"unshare":     func(args [6]uint64) string { return bits(args[0]&^uint64(unshareHarmless), cloneFlags) },
	"ioctl":       func(args [6]uint64) string { return named(args[1]&low, requests) },
	"personality": func(args [6]uint64) string { return bits(args[0]&low, personalities) },
	"chmod":       mode(1), "fchmod": mode(1), "mkdir": mode(1), "creat": mode(1), "mknod": mode(1),
	"fchmodat": mode(2), "fchmodat2": mode(2), "mkdirat": mode(2), "mknodat": mode(2),
	"open": mode(2), "openat": mode(3),
}

// constant is what the kernel's headers call a value.
type constant struct {
	value uint64
	name  string
}

var cloneFlags = []constant{
	{unix.CLONE_NEWNS, "CLONE_NEWNS"}, {unix.CLONE_NEWCGROUP, "CLONE_NEWCGROUP"}, {unix.CLONE_NEWUTS, "CLONE_NEWUTS"}, {unix.CLONE_NEWIPC, "CLONE_NEWIPC"},
	{unix.CLONE_NEWUSER, "CLONE_NEWUSER"}, {unix.CLONE_NEWPID, "CLONE_NEWPID"}, {unix.CLONE_NEWNET, "CLONE_NEWNET"}, {unix.CLONE_NEWTIME, "CLONE_NEWTIME"},
	{unix.CLONE_VM, "CLONE_VM"}, {unix.CLONE_SIGHAND, "CLONE_SIGHAND"}, {unix.CLONE_THREAD, "CLONE_THREAD"},
}

var requests = []constant{
	{unix.TIOCSTI, "TIOCSTI"}, {tioclinux, "TIOCLINUX"}, {unix.TIOCSETD, "TIOCSETD"}, {unix.TIOCCONS, "TIOCCONS"},
	{unix.TIOCVHANGUP, "TIOCVHANGUP"}, {unix.TIOCSCTTY, "TIOCSCTTY"},
}

var personalities = []constant{{addrNoRandomize, "ADDR_NO_RANDOMIZE"}, {0x0400000, "READ_IMPLIES_EXEC"}}

// By their numbers.
var (
	socketFamilies = strings.Fields(`UNSPEC UNIX INET AX25 IPX APPLETALK NETROM BRIDGE ATMPVC X25 INET6 ROSE DECnet NETBEUI SECURITY KEY NETLINK PACKET ASH ECONET
		ATMSVC RDS SNA IRDA PPPOX WANPIPE LLC IB MPLS CAN TIPC BLUETOOTH IUCV RXRPC ISDN PHONET IEEE802154 CAIF ALG NFC VSOCK KCM QIPCRTR SMC XDP MCTP`)
	netlinkProtocols = strings.Fields(`ROUTE UNUSED USERSOCK FIREWALL SOCK_DIAG NFLOG XFRM SELINUX ISCSI AUDIT FIB_LOOKUP CONNECTOR NETFILTER IP6_FW DNRTMSG
		KOBJECT_UEVENT GENERIC`)
)

// family is that of a socket. Of AF_NETLINK the protocol decides.
func family(args [6]uint64) string {
	f := numbered("AF_", socketFamilies, args[0]&low)
	if args[0]&low == unix.AF_NETLINK {
		f += " " + numbered("NETLINK_", netlinkProtocols, args[2]&low)
	}
	return f
}

// mode is the one that a file was to have.
func mode(arg int) func(args [6]uint64) string {
	return func(args [6]uint64) string { return fmt.Sprintf("%#o", args[arg]&0o7777) }
}

// numbered is the name of a number, or the number.
func numbered(prefix string, names []string, n uint64) string {
	if n < uint64(len(names)) {
		return prefix + names[n]
	}
	return fmt.Sprint(n)
}

// named is the name of a value, or the value.
func named(value uint64, names []constant) string {
	for _, n := range names {
		if n.value == value {
			return n.name
		}
	}
	return fmt.Sprintf("%#x", value)
}

// bits are the names of those that are set, and the value of the others.
func bits(set uint64, names []constant) string {
	var words []string
	for _, n := range names {
		if set&n.value != 0 {
			words = append(words, n.name)
			set &^= n.value
		}
	}
	if set != 0 || words == nil {
		words = append(words, fmt.Sprintf("%#x", set))
	}
	return strings.Join(words, "|")
}

package guest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Canary is one thing that is tried from inside, and how it must end.
type Canary struct {
	Name string // what is tried, and with which object: "write /usr"
	Want string // an errno's name, "ok", "empty", or "left out: " and why
	Got  string // the same, once it has been tried; of one that is left out as Want
}

// leftOut begins the Want of a canary that is not tried, because the session does not refuse it or it would show nothing.
const leftOut = "left out: "

func (c Canary) tried() bool { return !strings.HasPrefix(c.Want, leftOut) }

// Inside is what canaries need to know of a session.
type Inside struct {
	Profile      string   // of seccomp; "" is no filter
	Network      string   // "none", "egress" or "full"
	Landlock     bool     // with ProofDir
	ReadOnly     []string // directories and files that are mounted read-only, and that the identity can reach
	Masked       []string // paths that show nothing, whether they exist or not
	PIDs         uint64   // of executions
	Memory       int64    // bytes; 0 is as much as the host has
	Capabilities uint64   // granted
}

// has says whether a capability is granted.
func (in Inside) has(capability uint) bool { return in.Capabilities>>capability&1 == 1 }

// probe is one kind of canary.
type probe struct {
	name    string
	objects []string              // one canary for each; nil is one without an object
	of      func(Inside) []string // more objects
	want    func(Inside) string   // leftOut and a reason has it not tried
	try     func(object string) error
}

// probes are what is tried, in this order. A row is here because a layer stands or falls with
// it; the tests of that layer have more.
var probes = []probe{
	// Mounts, devices, and Landlock over them.
	{name: "write", of: func(in Inside) []string { return in.ReadOnly }, want: ends(unix.EROFS), try: tryWrite},
	{name: "read", of: func(in Inside) []string { return in.Masked }, want: nothing, try: tryRead},
	{name: "open", objects: []string{"/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/sys/fs/cgroup/cgroup.procs"},
		want: ends(unix.ENOENT), try: tryOpen},
	{name: "make a file in", objects: []string{ProofDir}, want: byLandlock, try: makeFile},
	{name: "make a device node in", objects: []string{"/dev/shm"}, want: byMknod, try: tryMknod},

	// Seccomp: each of these the kernel would do for anybody, or fail with another errno.
	{name: "keyctl", want: byFilter(unix.EPERM), try: tryKeyctl},
	{name: "io_uring_setup", want: byFilter(unix.ENOSYS), try: tryIOUring},
	{name: "fchmod with a set-id bit", want: byFilter(unix.EPERM), try: trySetID},
	{name: "socket of AF_VSOCK", want: byFilter(unix.EAFNOSUPPORT), try: tryVsock},
	{name: "bpf", want: byFilter(unix.EPERM), try: tryBPF},

	// Namespaces and capabilities.
	{name: "mount", want: ends(unix.EPERM), try: tryMount},
	{name: "unshare a user namespace", want: byFilter(unix.EPERM), try: tryUnshare},
	{name: "clone3 into a user namespace", want: ends(unix.ENOSPC), try: tryClone3},
	{name: "capset", want: ends(unix.EPERM), try: tryCapset},
	{name: "raise a limit", want: ends(unix.EPERM), try: tryRaise},

	// Init.
	{name: "signal", objects: []string{"1"}, want: unless(unix.CAP_KILL, unix.EPERM), try: tryKill},
	{name: "trace", objects: []string{"1"}, want: ends(unix.EPERM), try: tryTrace},

	// The network, and the ceiling on processes.
	{name: "see an interface beyond the loopback", want: nothing, try: tryInterfaces},
	{name: "connect to 192.0.2.1:80", want: byNetwork, try: tryConnect},
	{name: "fork past the ceiling", of: forks, want: byCeiling, try: tryFork},
}

// The ways to say what a probe must end with.

func ends(e syscall.Errno) func(Inside) string {
	return func(Inside) string { return unix.ErrnoName(e) }
}

func nothing(Inside) string { return "empty" }

// byFilter is a refusal of seccomp's.
func byFilter(e syscall.Errno) func(Inside) string {
	return func(in Inside) string {
		if in.Profile == "" {
			return leftOut + "there is no filter"
		}
		return unix.ErrnoName(e)
	}
}

// byLandlock is a refusal of nobody but Landlock.
func byLandlock(in Inside) string {
	if in.Landlock {
		return "EACCES"
	}
	return leftOut + "there is no Landlock"
}

// byMknod is who comes first: the filter, Landlock, or the kernel, which has a device made by nobody
// but the host.
func byMknod(in Inside) string {
	if in.Landlock && in.Profile != "strict" {
		return "EACCES"
	}
	return "EPERM"
}

// unless is a refusal of those who lack a capability.
func unless(capability uint, e syscall.Errno) func(Inside) string {
	return func(in Inside) string {
		if in.has(capability) {
			return "ok"
		}
		return unix.ErrnoName(e)
	}
}

// byNetwork is how a connection to nowhere ends. TEST-NET-1 is in nobody's grant.
func byNetwork(in Inside) string {
	switch {
	case in.Profile == "strict":
		return "EAFNOSUPPORT"
	case in.Network == "none":
		return "ENETUNREACH"
	case in.Network == "egress":
		return "ECONNREFUSED"
	}
	return leftOut + "the network is granted whole"
}

// forkBytes is at least what one fork of the prober costs the session's memory.
const forkBytes = 256 << 10

// byCeiling is the refusal of one process more.
func byCeiling(in Inside) string {
	if in.Memory != 0 && int64(in.PIDs) > in.Memory/2/forkBytes {
		return leftOut + "the ceiling of memory is nearer"
	}
	return "EAGAIN"
}

func forks(in Inside) []string { return []string{strconv.FormatUint(in.PIDs, 10)} }

// Canaries are the things that must fail in such a session, each with how, and those that cannot be tried in it, with why. A
// Command whose Canary holds their Names tries them.
func Canaries(in Inside) []Canary {
	var all []Canary
	for _, p := range probes {
		want := p.want(in)
		objects := p.objects
		if p.of != nil {
			objects = p.of(in)
		} else if objects == nil {
			all = append(all, Canary{Name: p.name, Want: want})
		}
		for _, o := range objects {
			all = append(all, Canary{Name: p.name + " " + o, Want: want})
		}
	}
	return all
}

// Names are what Command.Canary takes: of those that are to be tried.
func Names(canaries []Canary) []string {
	names := make([]string, 0, len(canaries))
	for _, c := range canaries {
		if c.tried() {
			names = append(names, c.Name)
		}
	}
	return names
}

// tryAll tries what canaries name, writes a line for each to stdout, name and outcome as Go
// strings, and returns an exit status.
func tryAll(names []string) int {
	for _, name := range names {
		line := strconv.AppendQuote(nil, name)
		line = strconv.AppendQuote(append(line, ' '), tryOne(name))
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			return 1
		}
	}
	return 0
}

// tryOne returns how it ended.
func tryOne(name string) string {
	for _, p := range probes {
		object, with := strings.CutPrefix(name, p.name+" ")
		if !with && name != p.name {
			continue
		}
		switch err := p.try(object); {
		case err == nil:
			return "ok"
		case err == errEmpty:
			return "empty"
		default:
			return unix.ErrnoName(errno(err))
		}
	}
	return "unknown"
}

// Judge returns the canaries with what output says of each: it is that of a Command that tried
// them. It is an error that one did not end as it must, or is not there; the first is named.
func Judge(canaries []Canary, output []byte) (judged []Canary, err error) {
	got := map[string]string{}
	for line := range strings.Lines(string(output)) {
		name, rest, err := unquote(line)
		if err != nil {
			return nil, err
		}
		if got[name], _, err = unquote(strings.TrimPrefix(rest, " ")); err != nil {
			return nil, err
		}
	}
	for _, c := range canaries {
		if c.Got = got[c.Name]; !c.tried() {
			c.Got = c.Want
		}
		if c.Got != c.Want && err == nil {
			err = fmt.Errorf("canary %s: ended with %q, and not with %s", c.Name, c.Got, c.Want)
		}
		judged = append(judged, c)
	}
	return judged, err
}

// unquote returns the Go string that s begins with, and what follows.
func unquote(s string) (value, rest string, err error) {
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", fmt.Errorf("canary: output %q: %w", s, err)
	}
	value, err = strconv.Unquote(quoted)
	return value, s[len(quoted):], err
}

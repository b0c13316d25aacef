package guest

import (
	"encoding/binary"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asProfile is a filter that refuses what the rows of the canaries ask seccomp for.
func asProfile() []byte {
	var b []byte
	add := func(code uint16, jt, jf uint8, k uint32) {
		b = binary.NativeEndian.AppendUint16(b, code)
		b = append(b, jt, jf)
		b = binary.NativeEndian.AppendUint32(b, k)
	}
	const equal, ret, load = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	refuse := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	add(load, 0, 0, 0)
	for call, e := range map[uint32]unix.Errno{
		unix.SYS_KEYCTL: unix.EPERM, unix.SYS_IO_URING_SETUP: unix.ENOSYS, unix.SYS_BPF: unix.EPERM,
		unix.SYS_MOUNT: unix.EPERM, unix.SYS_UNSHARE: unix.EPERM, unix.SYS_PTRACE: unix.EPERM,
	} {
		add(equal, 0, 1, call)
		add(ret, 0, 0, refuse(e))
	}
	// By an argument: of socket its family, of fchmod a bit of its mode.
	add(equal, 0, 4, unix.SYS_SOCKET)
	add(load, 0, 0, 16)
	add(equal, 0, 1, unix.AF_VSOCK)
	add(ret, 0, 0, refuse(unix.EAFNOSUPPORT))
	add(ret, 0, 0, unix.SECCOMP_RET_ALLOW)
	add(equal, 0, 3, unix.SYS_FCHMOD)
	add(load, 0, 0, 24)
	add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, unix.S_ISUID)
	add(ret, 0, 0, refuse(unix.EPERM))
	add(ret, 0, 0, unix.SECCOMP_RET_ALLOW)
	return b
}

// here are the canaries that this package's boxes, which have the host's files, can hold: those of
// the mounts are tried on places of the test's own.
func here(in Inside) []Canary {
	var all []Canary
	for _, c := range Canaries(in) {
		if strings.HasPrefix(c.Name, "open ") || strings.HasSuffix(c.Name, ProofDir) {
			continue
		}
		all = append(all, c)
	}
	return all
}

// T059, T038: every canary ends as it must where every layer is on.
func TestCanaries(t *testing.T) {
	s, g := walled(t)
	s.Filter = asProfile()
	s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 200, 200}, {unix.RLIMIT_NPROC, 40, 40}}
	empty := g.dir + "/empty"
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	in := Inside{Profile: "default", Network: "none", Landlock: true, Masked: []string{empty, os.DevNull, "/nowhere"}, PIDs: 40}
	b := startRaw(t)
	b.closeUserNamespaces()
	if _, err := b.Setup(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	canaries := here(in)
	out, e := b.output(Command{Canary: Names(canaries)})
	judged, err := Judge(canaries, []byte(out))
	if err != nil || e.Status != 0 || len(judged) != len(canaries) || len(judged) < 15 {
		t.Errorf("%v, %#x\n%s", err, e.Status, out)
	}
	waitAlone(t, b)
	if names, err := os.ReadDir(g.dir); err != nil || len(names) != 3 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// The negative control of every row: where its layer is off, it is found out, and nothing else is.
func TestCanariesFindGaps(t *testing.T) {
	full := Inside{Profile: "default", Network: "none", Landlock: true, ReadOnly: nil, PIDs: 40, Capabilities: 0}
	for _, tt := range []struct {
		name   string
		change func(*Setup, ground)
		inside func(*Inside, ground)
		before func(b *box)
		found  string // names, in order
	}{
		{"no filter", func(s *Setup, _ ground) { s.Filter = nil }, nil, nil,
			"keyctl,io_uring_setup,fchmod with a set-id bit,socket of AF_VSOCK,bpf,unshare a user namespace"},
		{"no Landlock", func(s *Setup, g ground) { s.Landlock = nil }, nil, nil, "make a device node in /dev/shm"},
		{"user namespaces", nil, nil, func(b *box) { b.openUserNamespaces() }, "clone3 into a user namespace"},
		{"ceiling too high", func(s *Setup, _ ground) { s.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 200, 200}} }, nil, nil, "fork past the ceiling 40"},
		{"writable", nil, func(in *Inside, g ground) { in.ReadOnly = []string{g.work, g.work + "/file"} }, nil, "write WORK,write WORK/file"},
		{"not masked", nil, func(in *Inside, g ground) { in.Masked = []string{g.dir, g.file} }, nil, "read DIR,read DIR/file"},
		{"a relay that does not refuse", nil, func(in *Inside, _ ground) { in.Network = "egress" }, nil, "connect to 192.0.2.1:80"},
		{"a capability", nil, func(in *Inside, _ ground) { in.Capabilities = 1 << unix.CAP_KILL }, nil, "signal 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, g := walled(t)
			s.Filter = asProfile()
			s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 200, 200}, {unix.RLIMIT_NPROC, 40, 40}}
			if err := os.WriteFile(g.work+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(g.work+"/file", firstID+1000, -1); err != nil {
				t.Fatal(err)
			}
			in := full
			if tt.change != nil {
				tt.change(&s, g)
			}
			if tt.inside != nil {
				tt.inside(&in, g)
			}
			b := startRaw(t)
			if tt.before == nil {
				tt.before = (*box).closeUserNamespaces
			}
			tt.before(b)
			if _, err := b.Setup(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			canaries := here(in)
			out, _ := b.output(Command{Canary: Names(canaries)})
			judged, err := Judge(canaries, []byte(out))
			var found []string
			for _, c := range judged {
				if c.Got != c.Want {
					found = append(found, strings.NewReplacer(g.dir+"/work", "WORK", g.dir, "DIR").Replace(c.Name))
				}
			}
			if got := strings.Join(found, ","); got != tt.found || err == nil {
				t.Errorf("found %q, want %q: %v\n%s", got, tt.found, err, out)
			}
		})
	}
}

// The negative control of the row that no box here can fail: the host's own namespace. There a connection to nowhere may
// end as it must, refused or without a route, whoever's the namespace is.
func TestCanaryOfInterfaces(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	want := "empty"
	for _, i := range all {
		if i.Name != "lo" && i.Flags&net.FlagUp != 0 {
			want = "ok"
		}
	}
	t.Logf("this machine: %s", want)
	if got := tryOne("see an interface beyond the loopback"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestJudge(t *testing.T) {
	canaries := []Canary{{Name: "a \"b\"\n", Want: "EPERM"}, {Name: "c", Want: "ok"}}
	if out := (Canary{Name: "d", Want: leftOut + "for a reason"}); !slices.Equal(Names(append(canaries, out)), Names(canaries)) {
		t.Error("one that is left out is to be tried")
	} else if judged, err := Judge([]Canary{out}, nil); err != nil || judged[0].Got != out.Want {
		t.Errorf("%+v, %v", judged, err)
	}
	for _, tt := range []struct {
		output string
		got    []string
		ok     bool
	}{
		{`"a \"b\"\n" "EPERM"` + "\n" + `"c" "ok"` + "\n", []string{"EPERM", "ok"}, true},
		{`"c" "ok"` + "\n", []string{"", "ok"}, false},
		{`"a \"b\"\n" "EPERM"` + "\n" + `"c" "EACCES"` + "\n", []string{"EPERM", "EACCES"}, false},
		{"panic: \n", nil, false},
		{`"c"` + "\n", nil, false},
		{"", []string{"", ""}, false},
	} {
		judged, err := Judge(canaries, []byte(tt.output))
		var got []string
		for _, c := range judged {
			got = append(got, c.Got)
		}
		if strings.Join(got, ",") != strings.Join(tt.got, ",") || (err == nil) != tt.ok {
			t.Errorf("%q: %v, %v", tt.output, got, err)
		}
	}
}

// What is left out, and what a grant changes.
func TestCanariesHeed(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   Inside
		want map[string]string
	}{
		{"nothing", Inside{}, map[string]string{"keyctl": "left out: there is no filter", "make a file in " + ProofDir: "left out: there is no Landlock", "make a device node in /dev/shm": "EPERM",
			"connect to 192.0.2.1:80": "left out: the network is granted whole", "signal 1": "EPERM"}},
		{"everything", Inside{Profile: "default", Network: "none", Landlock: true, PIDs: 5, Memory: 1 << 30},
			map[string]string{"keyctl": "EPERM", "make a file in " + ProofDir: "EACCES", "make a device node in /dev/shm": "EACCES", "connect to 192.0.2.1:80": "ENETUNREACH", "fork past the ceiling 5": "EAGAIN"}},
		{"strict", Inside{Profile: "strict", Network: "egress", Landlock: true},
			map[string]string{"make a device node in /dev/shm": "EPERM", "connect to 192.0.2.1:80": "EAFNOSUPPORT"}},
		{"egress", Inside{Profile: "build", Network: "egress"}, map[string]string{"connect to 192.0.2.1:80": "ECONNREFUSED"}},
		{"full", Inside{Profile: "build", Network: "full"}, map[string]string{"connect to 192.0.2.1:80": "left out: the network is granted whole"}},
		{"more processes than memory", Inside{PIDs: 5000, Memory: 64 << 20}, map[string]string{"fork past the ceiling 5000": "left out: the ceiling of memory is nearer"}},
		{"a capability", Inside{Capabilities: 1 << unix.CAP_KILL}, map[string]string{"signal 1": "ok"}},
	} {
		got := map[string]string{}
		for _, c := range Canaries(tt.in) {
			got[c.Name] = c.Want
		}
		for name, want := range tt.want {
			if got[name] != want {
				t.Errorf("%s: %s: got %q, want %q", tt.name, name, got[name], want)
			}
		}
	}
}

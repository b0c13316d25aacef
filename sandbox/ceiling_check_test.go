package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
)

// R054 R082–R086 R095 R096 T113 (CVE-2025-53110) T176: one row per way in which a Spec exceeds the
// operator's ceiling, each a forged Spec that the daemon would not have sent.
func TestCeilingCheck(t *testing.T) {
	ceiling := func() sandbox.Ceiling {
		c := sandbox.DefaultCeiling()
		c.MountRoots = []string{"/home", "/srv/in"}
		c.MountDenied = append(c.MountDenied, "/home/u/secret")
		c.ReadWrite = []string{"/home"}
		c.Capabilities = []string{"CAP_CHOWN"}
		return c
	}
	if s, c := validSpec(), ceiling(); c.Check(s) != nil {
		t.Fatalf("the valid Spec: %v", c.Check(s))
	}
	for _, row := range []struct {
		name, want string // want "" is a Spec that is allowed
		ceiling    func(*sandbox.Ceiling)
		spec       func(*sandbox.Spec)
	}{
		{"zero uids mean 1 to 65534", "id 0", func(c *sandbox.Ceiling) { c.UIDs = [2]uint32{} }, func(s *sandbox.Spec) { s.Identity.UID = 0 }},
		{"uid 0 where the operator allows it", "", func(c *sandbox.Ceiling) { c.UIDs = [2]uint32{0, 65534} }, func(s *sandbox.Spec) { s.Identity.UID = 0 }},
		{"uid 0", "id 0", nil, func(s *sandbox.Spec) { s.Identity.UID = 0 }},
		{"group outside", "id 7", func(c *sandbox.Ceiling) { c.UIDs = [2]uint32{8, 2000} }, func(s *sandbox.Spec) { s.Identity.Groups = []uint32{7} }},
		{"root kind", "root host", func(c *sandbox.Ceiling) { c.Roots = []sandbox.RootKind{sandbox.RootDir} }, nil},
		{"no root kind at all", "root host", func(c *sandbox.Ceiling) { c.Roots = []sandbox.RootKind{} }, nil},
		{"unconstrained root kinds", "", func(c *sandbox.Ceiling) { c.Roots = nil }, nil},
		{"seccomp", "seccomp", func(c *sandbox.Ceiling) { c.Seccomp = []string{"strict"} }, nil},
		{"network", "network", func(c *sandbox.Ceiling) { c.Networks = []string{} }, nil},
		{"capability allowed", "", nil, func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_CHOWN"} }},
		{"capability", "CAP_KILL", nil, func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_KILL"} }},
		{"twin of a mount root", "/homes", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/homes"; s.Mounts[0].ReadOnly = true }},
		{"twin of a deeper mount root", "/srv/inner", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/srv/inner"; s.Mounts[0].ReadOnly = true }},
		{"asked inside, resolved outside", "/etc", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/etc"; s.Mounts[0].ReadOnly = true }},
		{"the mount root itself", "", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/srv/in"; s.Mounts[0].ReadOnly = true }},
		{"rw where only ro", "mounted rw", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/srv/in/x" }},
		{"below a denied directory", "never mounted", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/home/u/secret/key" }},
		{"above a denied directory", "never mounted", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/home/u" }},
		{"twin of a denied directory", "", nil, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/home/u/secrets" }},
		{"/run in spite of mount root /", "never mounted", func(c *sandbox.Ceiling) { c.MountRoots, c.ReadWrite = []string{"/"}, nil }, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/run/docker.sock" }},
		{"the whole host", "never mounted", func(c *sandbox.Ceiling) { c.MountRoots, c.ReadWrite = nil, nil }, func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "/" }},
		{"root dir outside", "not below", nil, func(s *sandbox.Spec) {
			s.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &sandbox.Source{Resolved: "/opt/root"}}
		}},
		{"root path outside", "not below", nil, func(s *sandbox.Spec) {
			s.Root = sandbox.Root{Kind: sandbox.RootPaths, Paths: []sandbox.Source{{Resolved: "/usr"}}}
		}},
		{"memory", "memory", func(c *sandbox.Ceiling) { c.MemoryBytes = 64<<20 - 1 }, nil},
		{"memory, exactly", "", func(c *sandbox.Ceiling) { c.MemoryBytes = 64 << 20 }, nil},
		{"memory unconstrained", "", func(c *sandbox.Ceiling) { c.MemoryBytes = 0 }, func(s *sandbox.Spec) { s.Limits.MemoryBytes = 1 << 40 }},
		{"cpu", "cpu", func(c *sandbox.Ceiling) { c.CPUMillis = 499 }, nil},
		{"pids", "pids", func(c *sandbox.Ceiling) { c.PIDs = 31 }, nil},
		{"files", "files", func(c *sandbox.Ceiling) { c.Files = 1023 }, nil},
		{"scratch is a sum", "scratch", func(c *sandbox.Ceiling) { c.ScratchBytes = 1 << 20 }, func(s *sandbox.Spec) {
			s.Scratch = append(s.Scratch, sandbox.Scratch{Target: "/var/tmp", Bytes: 1, Inodes: 1})
		}},
		{"a sum that overflows", "scratch", nil, func(s *sandbox.Spec) {
			s.Scratch = []sandbox.Scratch{{Bytes: 1<<63 - 1}, {Bytes: 1<<63 - 1}}
		}},
		{"scratch and overlays are one sum", "scratch", func(c *sandbox.Ceiling) { c.ScratchBytes = 1 << 20 }, func(s *sandbox.Spec) {
			s.Mounts[0].Overlay = &sandbox.Overlay{Bytes: 1, Inodes: 1}
		}},
		{"an overlay where only ro", "mounted rw", nil, func(s *sandbox.Spec) {
			s.Mounts[0].Source.Resolved, s.Mounts[0].Overlay = "/srv/in/x", &sandbox.Overlay{Bytes: 1, Inodes: 1}
		}},
		{"cpu time", "cpu time", func(c *sandbox.Ceiling) { c.CPUTimeNS = 1 }, func(s *sandbox.Spec) { s.Limits.CPUTime = 2 }},
		{"a network that is allowed", "", nil, func(s *sandbox.Spec) { s.Network = egress("192.0.2.0/24") }},
		{"the host's loopback", "never reached", nil, func(s *sandbox.Spec) { s.Network = egress("127.0.0.1/32") }},
		{"the provider's metadata", "never reached", nil, func(s *sandbox.Spec) { s.Network = egress("169.254.169.254/32") }},
		{"link-local addresses of IPv6", "never reached", nil, func(s *sandbox.Spec) { s.Network = egress("fe80::/64") }},
		{"a twin of the loopback", "", nil, func(s *sandbox.Spec) { s.Network = egress("128.0.0.0/8") }},
		{"all addresses, of which the relay leaves out what is denied", "", nil, func(s *sandbox.Spec) { s.Network = egress("0.0.0.0/0") }},
		{"nothing denied", "", func(c *sandbox.Ceiling) { c.NetworkDenied = nil }, func(s *sandbox.Spec) { s.Network = egress("127.0.0.0/8") }},
		{"mounts", "mounts", func(c *sandbox.Ceiling) { c.Mounts = 1 }, func(s *sandbox.Spec) { s.Mounts = append(s.Mounts, s.Mounts[0]) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, s := ceiling(), validSpec()
			if row.ceiling != nil {
				row.ceiling(&c)
			}
			if row.spec != nil {
				row.spec(&s)
			}
			err := c.Check(s)
			if row.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			expectRefusal(t, err, sandbox.CodeCeiling, row.want)
		})
	}
}

func egress(cidr string) sandbox.Network {
	return sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{CIDR: cidr}}}
}

// C19: a member that is left out keeps its default, 0 and null lift a bound, [] allows
// nothing; whatever the operator cannot have meant is refused.
func TestDecodeCeiling(t *testing.T) {
	got, err := sandbox.DecodeCeiling(strings.NewReader(`{"memory_bytes": 0, "mount_roots": ["/home"], "read_write": [], "seccomp": null}`))
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.DefaultCeiling()
	want.MemoryBytes, want.MountRoots, want.ReadWrite, want.Seccomp = 0, []string{"/home"}, []string{}, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	for _, bad := range []string{
		``, `[]`, `{} {}`, `{"unknown": 1}`, `{"memory_bytes": 1, "memory_bytes": 2}`, `{"Memory_Bytes": 1}`, `{"memory_bytes": "1"}`,
		`{"memory_bytes": 1.5}`, `{"memory_bytes": -1}`, `{"idle_ns": -1}`, `{"executions_per_principal": -1}`, `{"mount_roots": ["home"]}`, `{"mount_denied": ["/a/"]}`, `{"read_write": ["/a/../b"]}`,
		`{"roots": ["image"]}`, `{"capabilities": ["CAP_SYS_ADMIN"]}`, `{"capabilities": ["NET_RAW"]}`, `{"uids": [5, 4]}`, `{"uids": [1, 65535]}`, `{"uids": [1]}`,
		`{"network_denied": ["10.0.0.1/8"]}`, `{"network_denied": ["example.org"]}`, `{"cpu_time_ns": -1}`,
	} {
		if _, err := sandbox.DecodeCeiling(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestLoadCeiling(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ceiling.json")
	if err := os.WriteFile(file, []byte(`{"pids": 7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := sandbox.LoadCeiling(file); err != nil || c.PIDs != 7 {
		t.Errorf("got %d pids, %v", c.PIDs, err)
	}
	if _, err := sandbox.LoadCeiling(file + ".missing"); err == nil {
		t.Error("a named file that is missing must not mean the default")
	}
	if c, err := sandbox.LoadCeiling(""); err != nil || !cmp.Equal(c, sandbox.DefaultCeiling()) {
		t.Errorf("no file: %v", err)
	}
}

func TestCapabilityMask(t *testing.T) {
	id := sandbox.Identity{Capabilities: []string{"CAP_CHOWN", "CAP_NET_BIND_SERVICE", "CAP_SYS_ADMIN", "nonsense"}}
	if got := id.CapabilityMask(); got != 1<<0|1<<10 {
		t.Errorf("got %#x", got)
	}
}

package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// unproved opens a session that must be refused because what is in force is not what was asked for,
// with a word that says what, and nothing left.
func unproved(t *testing.T, r *Runner, spec sandbox.Spec, word string) {
	t.Helper()
	before := residueOf(t, r)
	_, err := r.Open(context.Background(), spec)
	if err == nil {
		t.Error("opened")
		closeSession(t, r, spec.Session)
	} else if codeOf(err) != sandbox.CodeNotEnforced || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want %q", err, word)
	}
	before.mustLeaveNothing(t, r)
}

// proofSpec has something of every layer.
func proofSpec(t *testing.T, r *Runner) sandbox.Spec {
	spec := hostSpec("proof")
	r.options.Ceiling.Capabilities = []string{"CAP_NET_BIND_SERVICE"}
	r.options.Ceiling.Networks = []string{"egress"}
	spec.Network.Mode = "egress"
	spec.Identity.Groups = []uint32{2001, 2000}
	spec.Identity.Capabilities = []string{"CAP_NET_BIND_SERVICE"}
	dir := mkdir(t, filepath.Join(sharedDir(t), "a place"), 0o755, 0)
	mkdir(t, filepath.Join(dir, "sub"), 0o755, 0)
	below := mkdir(t, filepath.Join(sharedDir(t), "below"), 0o755, 0)
	spec.Mounts = []sandbox.Mount{
		{Source: source(t, r, spec.Caller, dir), Target: "/work"},
		{Source: source(t, r, spec.Caller, below), Target: "/over", Overlay: &sandbox.Overlay{Bytes: 1 << 20, Inodes: 100}},
	}
	spec.Workdir = "/work/sub"
	return spec
}

// TestForged lets each thing that the evidence reads say something else, one at a time: every one of them
// is compared (R019, R259).
func TestForged(t *testing.T) {
	r := newRunner(t)
	spec := proofSpec(t, r)
	e := open(t, r, spec)
	closeSession(t, r, spec.Session)
	if len(e.Mounts) < 30 || len(e.Rlimits) != 7 || e.Capabilities != 1<<unix.CAP_NET_BIND_SERVICE || len(e.Namespaces) != 8 {
		t.Errorf("evidence %+v", e)
	}
	type forgery struct{ file, from, to, word string } // a regular expression, and what takes its place
	var all []forgery
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, forgery{"ns/" + kind, ".*", ours, "the " + kind + " namespace is the runner's"})
	}
	for _, field := range strings.Fields("Umask Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters") {
		all = append(all, forgery{"status", `(?m)^(` + field + `:[^\n]*)`, "${1}1", field + " of thread"})
	}
	all = append(all, []forgery{
		{"hostname", ".*", "other", `hostname: it is "other"`},
		{"timens_offsets", "monotonic +-", "monotonic ", "timens_offsets"},
		{"timens_offsets", "boottime +-", "boottime ", "timens_offsets"},
		{"uid_map", "65536", "65537", "uid_map"},
		{"gid_map", "0 +", "1 ", "gid_map"},
		{"setgroups", "allow", "deny", "setgroups"},
		{"owner", ".*", "0", "uid 0 owns the user namespace"},
		{"below", "0", "1", "max_user_namespaces is 1"},
		{"limits", "(core file size +)1", "${1}0", "core file size"},
		{"limits", "(Max locked memory +)[0-9]+", "${1}unlimited", "locked memory"},
		{"limits", "(Max open files +[0-9]+ +)256", "${1}257", "open files"},
		{"limits", "(Max processes +[0-9]+ +)112", "${1}113", "processes"},
		{"mountinfo", "(?m)^.* /tmp .*\n", "", "/tmp is not mounted"},
		{"mountinfo", "(?m)^(.* /tmp .*\n)", "$1$1", "/tmp is mounted twice"},
		{"mountinfo", "$", "900 1 8:1 / /extra rw,nosuid,nodev - ext4 /dev/sda1 rw\n", "/extra is not one"},
		{"mountinfo", "$", "900 1 8:1 / /proc/extra rw,nosuid,nodev - ext4 /dev/sda1 rw\n", "/proc/extra is not one"},
		{"mountinfo", " /tmp rw,nosuid,nodev", " /tmp rw,nosuid", "mount /tmp is rw,nosuid,relatime"},
		{"mountinfo", "( /tmp .*) - ", "$1 shared:7 - ", "/tmp is not private"},
		{"mountinfo", "( /tmp .*) - ", "$1 master:7 - ", "/tmp is not private"},
		{"mountinfo", " /usr ro,", " /usr rw,", "mount /usr is rw"},
		{"mountinfo", ",idmapped", "", "mount /work is"},
		{"mountinfo", " / ro,", " / rw,", "mount / is rw"},
		{"mountinfo", " / / ro,", " /x / ro,", "mount / shows /x"},
		{"mountinfo", "(?m)^.* /proc/keys .*\n", "", "/proc/keys is not mounted"},
		{"mountinfo", "(?m)^.* /sys/firmware .*\n", "", "/sys/firmware is not mounted"},
		{"mountinfo", " /sys/kernel ro,", " /sys/kernel rw,", "mount /sys/kernel is rw"},
		{"mountinfo", " /proc/sys ro,", " /proc/sys rw,", "mount /proc/sys is rw"},
		{"mountinfo", " /sys /proc/sys ", " /fs /proc/sys ", "mount /proc/sys shows /fs"},
		{"mountinfo", "( /sys ro.* - )sysfs ", "${1}tmpfs ", "mount /sys is a tmpfs"},
		{"mountinfo", "( /dev/pts .*),max=64", "$1", "file system /dev/pts"},
		{"mountinfo", "( /dev/shm .*)size=65536k", "${1}size=1k", "file system /dev/shm"},
		{"mountinfo", "(?m)^.* /dev/null .*\n", "", "/dev/null is not mounted"},
	}...)
	defer func() { r.forge = nil }()
	for _, c := range all {
		t.Run(c.file+" "+c.word, func(t *testing.T) {
			changed := false
			from := regexp.MustCompile(c.from)
			r.forge = func(file, content string) string {
				if file != c.file && !strings.HasSuffix(file, "/"+c.file) {
					return content
				}
				forged := from.ReplaceAllString(content, c.to)
				changed = changed || forged != content
				return forged
			}
			unproved(t, r, spec, c.word)
			if !changed {
				t.Error("nothing was forged")
			}
		})
	}
}

// TestMeddled changes what is being built behind the back of Open, one thing at a time: the kernel's
// word is what counts (R018, R019).
func TestMeddled(t *testing.T) {
	r := newRunner(t)
	plain := func() sandbox.Spec { return proofSpec(t, r) }
	inside := func(o *opening, f func() error) error {
		return apart(func() error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", o.session.box.pid))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			return f()
		})
	}
	// overlay has the one of /over made with another size, and sub is where the workdir is outside.
	overlay := func(o *opening, bytes, inodes int64) error {
		o.spec.Mounts = slices.Clone(o.spec.Mounts)
		o.spec.Mounts[1].Overlay = &sandbox.Overlay{Bytes: bytes, Inodes: inodes}
		return nil
	}
	sub := func(o *opening) string { return filepath.Join(o.spec.Mounts[0].Source.Path, "sub") }
	type meddling struct {
		name   string
		step   string // after this
		word   string
		meddle func(o *opening) error
	}
	all := []meddling{
		{"another mount", "release", "is not one of the session's mounts", func(o *opening) error {
			return inside(o, func() error { return unix.Mount("x", "/run", "tmpfs", 0, "") })
		}},
		{"something over a mount", "release", "/usr is mounted twice", func(o *opening) error {
			return inside(o, func() error { return unix.Mount("x", "/usr", "tmpfs", unix.MS_RDONLY, "") })
		}},
		{"a mask that is gone", "release", "/proc/keys is not mounted", func(o *opening) error {
			return inside(o, func() error { return unix.Unmount("/proc/keys", unix.MNT_DETACH) })
		}},
		{"another device in a mask's place", "release", "not the device 1:3", func(o *opening) error {
			return inside(o, func() error {
				if err := unix.Unmount("/proc/keys", unix.MNT_DETACH); err != nil {
					return err
				}
				return unix.Mount("/dev/zero", "/proc/keys", "", unix.MS_BIND, "")
			})
		}},
		{"another directory in a mount's place", "start", "/work is not what was to be mounted", func(o *opening) error {
			for i, a := range o.files.attach {
				if a.target != "/work" {
					continue
				}
				other, err := workspace.Tmpfs("other", 4096, 2, "0755", 0)
				if err != nil {
					return err
				}
				if err := unix.Mkdirat(int(other.Fd()), "sub", 0o755); err != nil { // which init enters
					return err
				}
				a.tree.Close()
				o.files.attach[i].tree = other
			}
			return nil
		}},
		{"a scratch that takes more", "release", "/tmp takes", func(o *opening) error {
			return inside(o, func() error {
				return unix.Mount("", "/tmp", "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=64m")
			})
		}},
		{"an overlay that takes more", "slot", "/over takes", func(o *opening) error { return overlay(o, 2<<20, 100) }},
		{"an overlay with more files", "slot", "/over takes", func(o *opening) error { return overlay(o, 1<<20, 101) }},
		{"a workdir that is gone", "setup", "workdir /work/sub: no such file", func(o *opening) error {
			return os.Remove(sub(o))
		}},
		{"a workdir that is a file", "setup", "workdir /work/sub: not a directory", func(o *opening) error {
			return errors.Join(os.Remove(sub(o)), os.WriteFile(sub(o), nil, 0o644))
		}},
		{"a workdir that only the host has", "setup", "workdir /work/sub: no such file", func(o *opening) error {
			return errors.Join(os.Remove(sub(o)), os.Symlink(filepath.Dir(sub(o)), sub(o)))
		}},
		{"shared propagation", "release", "is not private", func(o *opening) error {
			return inside(o, func() error { return unix.Mount("", "/tmp", "", unix.MS_SHARED, "") })
		}},
		{"another memory ceiling", "setup", "groups", func(o *opening) error {
			g, file := o.session.groups.Paths()["memory"], "/memory.limit_in_bytes"
			if g == "" {
				g, file = o.session.groups.Paths()[""], "/memory.max"
			}
			if file == "/memory.limit_in_bytes" { // memory and swap first: it must not be below
				if err := os.WriteFile(g+"/memory.memsw.limit_in_bytes", []byte("268435456"), 0); err != nil && !os.IsNotExist(err) {
					return err
				}
			}
			return os.WriteFile(g+file, []byte("268435456"), 0)
		}},
		{"another ceiling of processes", "setup", "groups", func(o *opening) error {
			g := o.session.groups.Paths()["pids"]
			if g == "" {
				g = o.session.groups.Paths()[""]
			}
			return os.WriteFile(g+"/pids.max", []byte("max"), 0)
		}},
		{"init in another group", "setup", "init is not in", func(o *opening) error {
			leaf, err := o.session.groups.Leaf() // on v2, x holds no processes of its own
			if err != nil {
				return err
			}
			o.undo.Add(func() { leaf.FD().Close() })
			return os.WriteFile(o.session.groups.Paths()[""]+"/x/"+leaf.Name()+"/cgroup.procs", []byte(fmt.Sprint(o.session.box.pid)), 0)
		}},
		{"a lower limit", "setup", "open files", func(o *opening) error {
			// The owner of the user namespace may; root without CAP_SYS_RESOURCE may not.
			return thread.Owning(o.session.base, func() error {
				return unix.Prlimit(o.session.box.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: 100}, nil)
			})
		}},
		{"no filter", "release", "of thread", func(o *opening) error {
			o.filter = nil
			return nil
		}},
		{"other capabilities", "files", "of thread", func(o *opening) error {
			o.spec.Identity.Capabilities = []string{"CAP_NET_BIND_SERVICE", "CAP_NET_RAW"}
			return nil
		}},
		{"other groups", "release", "Groups of thread", func(o *opening) error {
			o.spec.Identity.Groups = []uint32{2000}
			return nil
		}},
		{"another user", "release", "Uid of thread", func(o *opening) error {
			o.spec.Identity.UID = 1001
			return nil
		}},
		{"another host name", "files", "hostname", func(o *opening) error {
			o.spec.Hostname = "other"
			return nil
		}},
		{"a host name that was changed", "release", "hostname", func(o *opening) error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/uts", o.session.box.pid))
			if err != nil {
				return err
			}
			defer ns.Close()
			return thread.Within(ns, unix.CLONE_NEWUTS, func() error { return unix.Sethostname([]byte("other")) })
		}},
		{"another identity", "release", "Gid of thread", func(o *opening) error {
			o.spec.Identity.GID = 1001
			return nil
		}},
		{"another id range", "setup", "uid_map", func(o *opening) error {
			o.session.base += sandbox.IDs
			o.undo.Add(func() { o.session.base -= sandbox.IDs })
			return nil
		}},
		{"no relay", "network", "network", func(o *opening) error {
			return killRelay(o.session)
		}},
	}
	if _, err := os.Stat("/sys/fs/cgroup/devices/devices.list"); err == nil {
		all = append(all, meddling{"another device, by v1", "join", "devices", func(o *opening) error {
			return os.WriteFile(o.session.groups.Paths()["devices"]+"/devices.allow", []byte("c 1:1 r"), 0)
		}})
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			done := false
			r.meddle = func(step string, o *opening) error {
				if step != c.step {
					return nil
				}
				done = true
				return c.meddle(o)
			}
			defer func() { r.meddle = nil }()
			unproved(t, r, plain(), c.word)
			if !done {
				t.Error("nothing was changed")
			}
		})
	}
}

// A masked path that the kernel does not speak of is proved as little as one that shows something else.
func TestMaskUnseen(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("proc", filepath.Join(dir, "proc")); err != nil { // where no lookup ends
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p := &proof{session: &session{}, config: &specs.Spec{Linux: &specs.Linux{MaskedPaths: []string{"/proc/keys"}}}}
	if err := p.objects(view{root}); err == nil || !strings.Contains(err.Error(), "/proc/keys") {
		t.Errorf("proved: %v", err)
	}
}

// Uid 0 of a session may have capabilities that the kernel takes out of the effective set with the fsuid 0: init's spawner shows it,
// with them, and executions have them.
func TestEvidenceOfUIDZero(t *testing.T) {
	r := newRunner(t)
	r.options.Ceiling.UIDs, r.options.Ceiling.Capabilities = [2]uint32{0, 65534}, []string{"CAP_CHOWN"}
	spec := hostSpec("zero")
	spec.Identity = sandbox.Identity{Capabilities: []string{"CAP_CHOWN"}}
	e := open(t, r, spec)
	defer closeSession(t, r, spec.Session)
	if e.Capabilities != 1<<unix.CAP_CHOWN {
		t.Errorf("capabilities %#x", e.Capabilities)
	}
	for range 2 {
		if o := shell(t, r, spec.Session, "touch /tmp/x; chown 5:5 /tmp/x; stat -c %u /tmp/x; id -u"); o.stdout != "5\n0\n" {
			t.Errorf("%q %q", o.stdout, o.stderr)
		}
	}
}

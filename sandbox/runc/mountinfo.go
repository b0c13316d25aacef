package runc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/openat2"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// mountLine is a line of mountinfo, as far as it says what somebody inside can do.
type mountLine struct {
	root    string // of the mount within its file system; "" is not compared
	kind    string // of the file system; "" is not compared
	options string // of the mount, all of them, in the kernel's order
	super   []string
}

// mounts are those that were attached, and the kernel's own with what masks them, each with exactly the
// flags that were decided, and once. There is no other, and none is shared with anybody (T016).
func (p *proof) mounts() error {
	content, err := p.read("mountinfo")
	if err != nil {
		return err
	}
	root, err := p.session.root()
	if err != nil {
		return err
	}
	defer root.Close()
	inside := view{root}
	want, err := p.expected(inside)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(content) {
		target, got, err := parseMount(line)
		if err != nil {
			return err
		}
		p.e.Mounts = append(p.e.Mounts, target+" "+got.kind+" "+got.options)
		w, known := want[target]
		switch {
		case !known:
			return fmt.Errorf("%s is not one of the session's mounts", target)
		case seen[target]:
			return fmt.Errorf("%s is mounted twice", target)
		case w.options != got.options:
			return fmt.Errorf("mount %s is %s, not %s", target, got.options, w.options)
		case w.kind != "" && w.kind != got.kind:
			return fmt.Errorf("mount %s is a %s, not a %s", target, got.kind, w.kind)
		case w.root != "" && w.root != got.root:
			return fmt.Errorf("mount %s shows %s, not %s", target, got.root, w.root)
		}
		for _, o := range w.super {
			if !slices.Contains(got.super, o) {
				return fmt.Errorf("file system %s is %s, without %s", target, strings.Join(got.super, ","), o)
			}
		}
		seen[target] = true
	}
	slices.Sort(p.e.Mounts)
	for target := range want {
		if !seen[target] {
			return fmt.Errorf("%s is not mounted", target)
		}
	}
	return p.objects(inside)
}

// parseMount takes a line apart. A mount that is shared with another namespace, or receives from one,
// says so in optional fields, of which there must be none.
func parseMount(line string) (target string, m mountLine, err error) {
	f := strings.Fields(line)
	dash := slices.Index(f, "-")
	if dash < 6 || len(f) < dash+4 {
		return "", m, fmt.Errorf("mountinfo line %q", line)
	}
	target = unescape(f[4])
	if dash > 6 {
		return "", m, fmt.Errorf("mount %s is not private: %s", target, strings.Join(f[6:dash], " "))
	}
	return target, mountLine{unescape(f[3]), f[dash+1], f[5], strings.Split(f[dash+3], ",")}, nil
}

// unescape undoes the octal escapes of mountinfo: space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// expected are the mounts by their places.
func (p *proof) expected(inside view) (map[string]mountLine, error) {
	want := map[string]mountLine{"/": {root: "/", kind: "tmpfs", options: "ro,nosuid,nodev,relatime"}}
	for _, a := range p.attached {
		options, err := a.options()
		if err != nil {
			return nil, err
		}
		want[a.target] = mountLine{options: options}
	}
	for _, m := range p.config.Mounts {
		want[m.Destination] = mountLine{root: "/", kind: m.Type, options: kernelOptions(m.Options), super: superOptions(m.Type, m.Options)}
	}
	var null mountLine // where the host has its devices is the host's matter
	for _, dev := range nodes {
		flags, err := mountFlags(unix.AT_FDCWD, dev.path)
		if err != nil {
			return nil, err
		}
		want[dev.path] = mountLine{options: "rw" + flags}
		if dev.path == "/dev/null" {
			null = want[dev.path]
		}
	}
	for _, path := range p.config.Linux.ReadonlyPaths {
		if exists, err := inside.has(path); err != nil {
			return nil, err
		} else if exists {
			fs, below := kernelMount(path)
			want[path] = mountLine{root: below, kind: fs, options: "ro,nosuid,nodev,noexec,relatime"}
		}
	}
	files, dirs, err := p.masked(inside)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		want[path] = null
	}
	for _, path := range dirs {
		want[path] = mountLine{root: "/", kind: "tmpfs", options: "ro,relatime", super: []string{"nr_inodes=1"}} // itself: nothing can be in it
	}
	return want, nil
}

// masked are those of the masked paths that this kernel has.
func (p *proof) masked(inside view) (files, dirs []string, err error) {
	for _, path := range p.config.Linux.MaskedPaths {
		st, err := inside.stat(path)
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			dirs = append(dirs, path)
		default:
			files = append(files, path)
		}
	}
	return files, dirs, nil
}

// kernelMount says of a path in one of the kernel's file systems which that is, and what it is called there.
func kernelMount(path string) (kind, below string) {
	if rest, ok := strings.CutPrefix(path, "/proc"); ok {
		return "proc", rest
	}
	return "sysfs", strings.TrimPrefix(path, "/sys")
}

// nodes are the devices that libcontainer binds from the host.
var nodes = []struct {
	path         string
	major, minor uint32
}{
	{"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},
}

// objects are what is to be found at the places inside, whatever the lines say: of an attachment the very
// object that was judged, of a device that device, and in the place of a masked file the null device
// (CVE-2025-31133, T005).
func (p *proof) objects(inside view) error {
	for _, a := range p.attached {
		var want unix.Stat_t
		if err := unix.Fstat(int(a.tree.Fd()), &want); err != nil {
			return fmt.Errorf("%s: %w", a.origin, err)
		}
		got, err := inside.stat(a.target)
		if err != nil {
			return fmt.Errorf("%s: %w", a.target, err)
		}
		if got.Dev != want.Dev || got.Ino != want.Ino {
			return fmt.Errorf("%s is not what was to be mounted there", a.target)
		}
	}
	masked, _, err := p.masked(inside)
	if err != nil {
		return err
	}
	there := slices.Clone(nodes)
	for _, path := range masked {
		null := nodes[0]
		null.path = path
		there = append(there, null)
	}
	for _, n := range there {
		st, err := inside.stat(n.path)
		if err != nil {
			return fmt.Errorf("%s: %w", n.path, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(n.major, n.minor) {
			return fmt.Errorf("%s is not the device %d:%d", n.path, n.major, n.minor)
		}
	}
	for _, s := range p.session.spec.Scratch {
		if err := inside.holds(s.Target, s.Bytes, s.Inodes); err != nil {
			return err
		}
	}
	for _, m := range p.session.spec.Mounts {
		if m.Overlay == nil {
			continue
		}
		// An overlay answers for the file system that it writes to.
		if err := inside.holds(m.Target, m.Overlay.Bytes, m.Overlay.Inodes+workspace.OwnInodes); err != nil {
			return err
		}
	}
	if err := inside.directory(p.session.spec.Workdir); err != nil {
		return fmt.Errorf("workdir %s: %w", p.session.spec.Workdir, err)
	}
	return nil
}

// view is a session's file system as init sees it.
type view struct{ root *os.File }

// open opens the place, not what is there: no device and no file of the session's is touched.
func (v view) open(at string) (int, error) {
	return openat2.Open(int(v.root.Fd()), "."+at, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// directory says whether a place is a directory. Links lead on, but not out.
func (v view) directory(at string) error {
	fd, err := openat2.Open(int(v.root.Fd()), "."+at, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func (v view) stat(at string) (st unix.Stat_t, err error) {
	fd, err := v.open(at)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

func (v view) has(at string) (bool, error) {
	_, err := v.stat(at)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// holds compares how much a private file system takes.
func (v view) holds(at string, bytes, inodes int64) error {
	fd, err := v.open(at)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	page := int64(st.Bsize)
	if blocks := (bytes + page - 1) / page; int64(st.Blocks) != blocks || int64(st.Files) != inodes {
		return fmt.Errorf("%s takes %d bytes and %d inodes, not %d and %d", at, int64(st.Blocks)*page, st.Files, blocks*page, inodes)
	}
	return nil
}

// options are what the line of an attachment has to say: what was decided, and what the mount that it is a
// clone of brought along.
func (a attachment) options() (string, error) {
	flags, err := mountFlags(int(a.tree.Fd()), "")
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.origin, err)
	}
	if !strings.HasPrefix(flags, ",nosuid,nodev") {
		return "", fmt.Errorf("%s was to be attached nosuid and nodev, and is %q", a.origin, flags)
	}
	options := "rw"
	if a.readOnly {
		options = "ro"
	}
	if options += flags; a.idmapped {
		options += ",idmapped"
	}
	return options, nil
}

// mountFlags are the flags of the mount that a descriptor or a path leads to, beyond ro and rw, as
// mountinfo has them.
func mountFlags(at int, path string) (string, error) {
	var st unix.Statfs_t
	var err error
	if path == "" {
		err = unix.Fstatfs(at, &st)
	} else {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, f := range []struct {
		bit  int64
		name string
	}{
		{unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"}, {unix.ST_NOATIME, "noatime"},
		{unix.ST_NODIRATIME, "nodiratime"}, {unix.ST_RELATIME, "relatime"}, {0x2000, "nosymfollow"}, // ST_NOSYMFOLLOW, which x/sys lacks
	} {
		if int64(st.Flags)&f.bit != 0 {
			out.WriteString("," + f.name)
		}
	}
	return out.String(), nil
}

// kernelOptions are the flags of one of the kernel's file systems, in the order of mountinfo.
func kernelOptions(given []string) string {
	options := []string{"rw"}
	if slices.Contains(given, "ro") {
		options[0] = "ro"
	}
	for _, flag := range []string{"nosuid", "nodev", "noexec"} {
		if slices.Contains(given, flag) {
			options = append(options, flag)
		}
	}
	return strings.Join(append(options, "relatime"), ",")
}

// superOptions are those of the file system itself that bound it: package oci writes them as mountinfo does.
func superOptions(kind string, given []string) (out []string) {
	for _, o := range given {
		switch name, _, _ := strings.Cut(o, "="); {
		case kind == "tmpfs" && (name == "size" || name == "nr_inodes"), kind == "devpts" && (name == "max" || name == "ptmxmode"):
			out = append(out, o)
		}
	}
	return out
}

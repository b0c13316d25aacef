package runc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/openat2"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// ours are the top-level directories that are always made by us: mount points of the
// kernel's file systems and places that programs take for granted. What an unpacked
// root has by these names is not used.
var ours = []string{"/dev", "/proc", "/run", "/sys", "/tmp"}

// gather collects what the session's file system consists of, as detached mounts.
// Host paths are looked at here and nowhere else: the caller's under the caller's
// identity, the system directories of root "host" under our own. The layout owns
// the mounts; close releases those that were not attached. Overlays are the receiver's, and so are the placeholders of
// the session in callers' directories.
func (r *Runner) gather(spec sandbox.Spec, base uint32) (_ layout, err error) {
	l := layout{owner: base, dirs: slices.Clone(ours), links: map[string]string{}, files: map[string]string{}, spaces: map[string]*workspace.Space{}}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { _ = r.placeholders.Release(spec.Session) }) // what cannot be removed now, cannot be later
	undo.Add(l.abandon)

	mounts := spec.Mounts
	switch spec.Root.Kind {
	case sandbox.RootHost:
		l.etc(spec)
		l.dirs = append(l.dirs, "/var/tmp")
		err = l.host()
	case sandbox.RootDir:
		err = l.unpacked(r, spec, base)
	case sandbox.RootPaths:
		l.etc(spec)
		mounts = nil
		for _, src := range spec.Root.Paths {
			mounts = append(mounts, sandbox.Mount{Source: src, Target: src.Path, ReadOnly: true})
		}
		mounts = append(mounts, spec.Mounts...)
	}
	if err == nil && len(mounts) > 0 {
		err = l.mounts(r, spec, base, mounts)
	}
	if err != nil {
		return layout{}, err
	}
	for _, s := range spec.Scratch {
		tree, err := workspace.Tmpfs(s.Target, s.Bytes, s.Inodes, "1777", base)
		if err != nil {
			return layout{}, err
		}
		l.attach = append(l.attach, attachment{target: s.Target, tree: tree, dir: true, origin: "scratch"})
	}
	undo.Release()
	return l, nil
}

// abandon releases what is the session's, too, when there is none.
func (l *layout) abandon() {
	l.close()
	for _, space := range l.spaces {
		space.Close()
	}
}

func (l *layout) close() {
	for _, a := range l.attach {
		a.tree.Close()
	}
	l.attach = nil
}

// mounts adds host paths of the caller's.
func (l *layout) mounts(r *Runner, spec sandbox.Spec, base uint32, mounts []sandbox.Mount) error {
	for _, m := range mounts {
		if err := l.mount(r, spec, base, m); err != nil {
			return err
		}
	}
	return nil
}

// mount adds one. What an overlay is over is read-only like any other, and need not be writable for the caller before
// something is committed.
func (l *layout) mount(r *Runner, spec sandbox.Spec, base uint32, m sandbox.Mount) error {
	shared := !m.ReadOnly && m.Overlay == nil
	var f *os.File
	var st unix.Stat_t
	err := as(spec.Caller, func() (err error) {
		if f, err = reopen(m.Source, shared); err != nil {
			return err
		}
		if err = unix.Fstat(int(f.Fd()), &st); err != nil {
			f.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	l.devices = append(l.devices, st.Dev)
	if shared {
		if err := writableInside(m.Source.Path, spec.Caller, st.Uid, st.Gid); err != nil {
			return err
		}
	}
	idmap, err := r.idmaps.get(ownersFor(spec, base, st.Gid))
	if err != nil {
		return err
	}
	defer idmap.Close()
	tree, err := cloneMount(f, !shared, idmap)
	if err != nil {
		return err
	}
	owner := workspace.Owner{UID: base + spec.Identity.UID, GID: base + spec.Identity.GID}
	var guards workspace.Guards
	switch {
	case m.Overlay != nil:
		space, mounted, err := workspace.Overlay(tree, workspace.Options{
			Target: m.Target, Size: *m.Overlay, Owner: owner, Protected: m.Protected, Place: r.place,
		})
		if err != nil {
			return err
		}
		l.spaces[m.Target] = space
		tree, guards = mounted.Tree, mounted.Guards
	case len(m.Protected) > 0:
		guarded, g, err := workspace.Protect(tree, r.protection(spec, base, m))
		if err != nil {
			tree.Close()
			return err
		}
		tree, guards = guarded, g
	}
	l.attach = append(l.attach, attachment{
		target: m.Target, tree: tree, dir: m.Source.Kind == "dir", readOnly: m.ReadOnly, idmapped: m.Overlay == nil, origin: m.Source.Path,
	})
	for _, g := range guards {
		l.attach = append(l.attach, attachment{
			target: path.Join(m.Target, g.Path), tree: g.Mount, dir: g.Dir, readOnly: g.ReadOnly, idmapped: m.Overlay == nil, part: true, origin: m.Source.Path,
		})
	}
	return nil
}

// protection is what is protected in a directory that the session shares with its caller.
func (r *Runner) protection(spec sandbox.Spec, base uint32, m sandbox.Mount) workspace.Protection {
	return workspace.Protection{
		Paths: m.Protected, Owner: workspace.Owner{UID: base + spec.Identity.UID, GID: base + spec.Identity.GID}, Place: r.place,
		Reserve: &workspace.Reservation{Placeholders: r.placeholders, Session: spec.Session, Caller: spec.Caller, Source: m.Source},
	}
}

// unpacked adds the top-level entries of a root tree, whose owner is root inside.
// Each is reached from the directory's descriptor, and a symbolic link is made again
// rather than followed.
func (l *layout) unpacked(r *Runner, spec sandbox.Spec, base uint32) error {
	idmap, err := r.idmaps.get(owners{mapping(spec.Caller.UID, base, 1), mapping(spec.Caller.GID, base, 1)})
	if err != nil {
		return err
	}
	defer idmap.Close()
	return as(spec.Caller, func() error {
		path := spec.Root.Dir.Path
		at, err := reopen(*spec.Root.Dir, false)
		if err != nil {
			return err
		}
		defer at.Close()
		fd, err := unix.Openat(int(at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return sandbox.Errorf(sandbox.CodeMountSource, "%s: %s", path, resolveCode(err))
		}
		dir := os.NewFile(uintptr(fd), path)
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		if err != nil {
			return sandbox.Errorf(sandbox.CodeMountSource, "%s: %v", path, err)
		}
		for _, name := range names {
			if slices.Contains(ours, "/"+name) {
				continue
			}
			if err := l.entry(dir, name, "/"+name, idmap); err != nil {
				return err
			}
		}
		return nil
	})
}

// host adds the host's system directories and chosen files of its /etc. They are not
// idmapped: their owners do not exist inside, so that even inside uid 0 reads only
// what the whole world may read.
func (l *layout) host() error {
	root, err := os.Open("/")
	if err != nil {
		return fmt.Errorf("root host: %w", err)
	}
	defer root.Close()
	for _, path := range hostPaths {
		if err := l.entry(root, strings.TrimPrefix(path, "/"), path, nil); err != nil {
			return err
		}
	}
	return nil
}

// entry adds at/name as target: a directory or regular file is attached, read-only,
// a symbolic link is made again. What does not exist, or is anything else, is left out.
func (l *layout) entry(at *os.File, name, target string, idmap *os.File) error {
	fd, err := openat2.Open(int(at.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return sandbox.Errorf(sandbox.CodeMountSource, "%s: %s", target, resolveCode(err))
	}
	f := os.NewFile(uintptr(fd), target)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %s: %w", target, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			return fmt.Errorf("readlink %s: %w", target, err)
		}
		l.links[target] = string(buf[:n])
	case unix.S_IFDIR, unix.S_IFREG:
		l.devices = append(l.devices, st.Dev)
		tree, err := cloneMount(f, true, idmap)
		if err != nil {
			return err
		}
		l.attach = append(l.attach, attachment{target: target, tree: tree, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, readOnly: true, idmapped: idmap != nil, origin: target})
	}
	return nil
}

// hostPaths is root "host": programs and their libraries, and of /etc what they need
// to run, no more. Nothing here holds a secret on a host that is kept well; what is
// not readable for the whole world is not readable inside.
var hostPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",

	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", // the loader
	"/etc/alternatives", // what half of /usr/bin leads through
	"/etc/ca-certificates", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies",
	"/etc/localtime", "/etc/timezone", "/etc/locale.alias",
	"/etc/protocols", "/etc/rpc", "/etc/services", "/etc/mime.types", "/etc/magic",
	"/etc/debian_version", "/etc/os-release", "/etc/redhat-release", "/etc/alpine-release",
	"/etc/bash.bashrc", "/etc/inputrc", "/etc/profile", "/etc/terminfo",
	"/etc/fonts", "/etc/perl", "/etc/python3",
}

// etc writes the files by which programs find out who and where they are. The names
// are the same on every host.
func (l *layout) etc(spec sandbox.Spec) {
	id := spec.Identity
	var passwd, group strings.Builder
	passwd.WriteString("root:x:0:0:root:/:/bin/sh\n")
	group.WriteString("root:x:0:\ntty:x:5:\n")
	if id.UID != 0 {
		fmt.Fprintf(&passwd, "user:x:%d:%d:user:%s:/bin/sh\n", id.UID, id.GID, spec.Workdir)
	}
	if id.GID != 0 && id.GID != 5 {
		fmt.Fprintf(&group, "user:x:%d:\n", id.GID)
	}
	if id.UID != nobody {
		fmt.Fprintf(&passwd, "nobody:x:%d:%d:nobody:/:/bin/false\n", nobody, nobody)
	}
	if id.GID != nobody {
		fmt.Fprintf(&group, "nogroup:x:%d:\n", nobody)
	}
	l.files["/etc/passwd"] = passwd.String()
	l.files["/etc/group"] = group.String()
	hosts, resolv := "files", ""
	if spec.Network.Mode != "none" {
		hosts = "files dns"
		resolv = "nameserver 127.0.0.1\n" // the relay's: every question goes there, whomever it is for
	}
	l.files["/etc/nsswitch.conf"] = "passwd: files\ngroup: files\nshadow: files\nhosts: " + hosts + "\nnetworks: files\nprotocols: files\nservices: files\n"
	l.files["/etc/hosts"] = "127.0.0.1 localhost " + spec.Hostname + "\n::1 localhost\n"
	l.files["/etc/hostname"] = spec.Hostname + "\n"
	l.files["/etc/resolv.conf"] = resolv
}

// nobody is the id that the kernel shows for owners that do not exist inside.
const nobody = 65534

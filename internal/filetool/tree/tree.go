// Package tree finds what a path of a session leads to, and hands it out by descriptor: a directory and a name in it,
// never a path to be looked up again. It decides where a lookup may go, so everything that opens a file for a caller goes
// through it.
//
// A path is walked here, one component at a time, each opened with O_NOFOLLOW in the directory before it: links are read and
// followed in this process, ".." is a step back on a stack of descriptors, and an absolute link begins at the tree's root. So the kernel is
// never asked to follow anything, the resolved path is known component by component, and openat2 is not needed (the
// seccomp profiles of sessions refuse it: its mode is out of a filter's sight). Whoever renames what is walked
// over changes what is found, never what is allowed: the rules hold for the path that the walk took.
package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// Tree is what file tools see: everything below one directory, with rules.
type Tree struct {
	root    int
	workdir string
	caps    *file.Caps
}

// Open makes a tree of a directory; it keeps a descriptor of its own until Close. workdir is an absolute path inside.
func Open(root *os.File, workdir string, caps *file.Caps) (*Tree, error) {
	if !strings.HasPrefix(workdir, "/") || path.Clean(workdir) != workdir {
		return nil, fmt.Errorf("workdir %q: not an absolute, clean path", workdir)
	}
	if code, msg := caps.Fault(); msg != "" {
		return nil, fmt.Errorf("capabilities: %s: %s", code, msg)
	}
	fd, err := unix.Openat(int(root.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root of the tree: %w", err)
	}
	return &Tree{root: fd, workdir: workdir, caps: caps}, nil
}

// Close gives the descriptor back.
func (t *Tree) Close() error { return unix.Close(t.root) }

// Caps are the rules of the tree.
func (t *Tree) Caps() *file.Caps { return t.caps }

// Workdir is where relative paths begin.
func (t *Tree) Workdir() string { return t.workdir }

// Place is where a path leads: a name in an open directory. What is at the name is no symbolic link, unless the path was looked up
// without following its last component. Close it.
type Place struct {
	Path    string // resolved, absolute in the tree
	Dir     int    // O_PATH descriptor of the directory
	Name    string // in Dir; "." is the root of the tree
	Exists  bool
	Stat    unix.Stat_t // when it exists: that of the moment of the lookup
	Missing []string    // directories between Dir and the last component that do not exist; Name is then the first of them
	Last    string      // the last component; Name, unless something is missing
	dirOnly bool
}

// Close gives the directory back.
func (p *Place) Close() {
	if p != nil && p.Dir >= 0 {
		unix.Close(p.Dir)
		p.Dir = -1
	}
}

// Kind is the type of what is there.
func (p *Place) Kind() string { return Kind(p.Stat.Mode) }

// Kind names a type of file.
func Kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	default:
		return "device"
	}
}

// Options say how a path is looked up.
type Options struct {
	NoFollow bool // the last component is not followed when it is a link
	Change   bool // what is there is going to be changed: write_roots and protected paths count
	Whole    bool // … with everything below it
	Missing  bool // directories on the way may be missing
}

// Find looks a path up. "" is the working directory. That the last component does not exist is no error.
func (t *Tree) Find(name string, o Options) (*Place, *file.Fault) {
	if msg := file.NameFault(name, false); msg != "" {
		return nil, &file.Fault{Status: file.Error, Code: file.CodeInvalidPath, Message: msg}
	}
	asked := name
	if !strings.HasPrefix(name, "/") {
		asked = t.workdir + "/" + name
	}
	p, fault := t.walk(asked, o)
	if fault != nil {
		return nil, fault
	}
	if fault := t.judge(p, o); fault != nil {
		p.Close()
		return nil, fault
	}
	return p, nil
}

// judge applies the rules to the place that was found.
func (t *Tree) judge(p *Place, o Options) *file.Fault {
	if !t.caps.Admits(p.Path) {
		return notAllowed(p.Path)
	}
	if p.dirOnly && p.Exists && p.Kind() != "dir" {
		return &file.Fault{Status: file.Error, Code: file.CodeNotDirectory, Message: file.Quote(p.Path) + " is no directory"}
	}
	if !o.Change {
		return nil
	}
	if !t.caps.AdmitsChange(p.Path) {
		return &file.Fault{Status: file.Forbidden, Code: file.CodePathNotAllowed, Message: file.Quote(p.Path) + " lies where nothing may be changed"}
	}
	if guarded := t.caps.Protects(p.Path, o.Whole); guarded != "" {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeProtected, Message: file.Quote(guarded) + " is protected"}
	}
	return nil
}

func notAllowed(p string) *file.Fault {
	return &file.Fault{Status: file.Forbidden, Code: file.CodePathNotAllowed, Message: file.Quote(p) + " lies outside of the allowed roots"}
}

// maxLinks is how many links one lookup follows, the kernel's MAXSYMLINKS.
const maxLinks = 40

// walker is one lookup, component by component.
type walker struct {
	t     *Tree
	stack []frame // from the root; the root's own frame is not in it
	todo  []string
	links int
	slash bool // the path ends with one
}

type frame struct {
	fd   int
	name string
}

func (w *walker) top() int {
	if len(w.stack) == 0 {
		return w.t.root
	}
	return w.stack[len(w.stack)-1].fd
}

func (w *walker) path(more ...string) string {
	var b strings.Builder
	for _, f := range w.stack {
		b.WriteString("/" + f.name)
	}
	for _, m := range more {
		b.WriteString("/" + m)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

func (w *walker) pop() {
	unix.Close(w.stack[len(w.stack)-1].fd)
	w.stack = w.stack[:len(w.stack)-1]
}

func (w *walker) close() {
	for len(w.stack) > 0 {
		w.pop()
	}
}

// parts cuts a path into components, in reverse, so that the next one is the last.
func parts(p string) (out []string) {
	for part := range strings.SplitSeq(p, "/") {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// ending reports whether a path names a directory by its form.
func ending(p string) bool { return strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") }

func (t *Tree) walk(asked string, o Options) (*Place, *file.Fault) {
	w := &walker{t: t, todo: parts(asked), slash: ending(asked)}
	defer w.close()
	for len(w.todo) > 0 {
		name := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if name == ".." {
			if len(w.stack) > 0 { // the root's parent is the root, as in every session
				w.pop()
			}
			continue
		}
		last := len(w.todo) == 0
		fd, err := unix.Openat(w.top(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			if errors.Is(err, unix.ENOENT) && (last || o.Missing && !slices.Contains(w.todo, "..")) {
				return w.missing(name)
			}
			return nil, t.lookupFault(w.path(name), err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return nil, t.lookupFault(w.path(name), err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			w.stack = append(w.stack, frame{fd, name})
		case unix.S_IFLNK:
			if last && o.NoFollow && !w.slash {
				unix.Close(fd)
				return w.place(name, st)
			}
			fault := w.follow(fd, name)
			unix.Close(fd)
			if fault != nil {
				return nil, fault
			}
		default:
			unix.Close(fd)
			if !last {
				return nil, t.lookupFault(w.path(name), unix.ENOTDIR)
			}
			return w.place(name, st)
		}
	}
	return w.directory()
}

// follow puts the components of a link before those that are left.
func (w *walker) follow(fd int, name string) *file.Fault {
	at := w.path(name)
	refused := func(why string) *file.Fault {
		return &file.Fault{Status: file.Forbidden, Code: file.CodeLinkNotAllowed, Message: file.Quote(at) + " is a symbolic link" + why}
	}
	switch w.t.caps.FollowSymlinks {
	case file.FollowDeny:
		return refused("")
	case file.FollowAllow:
	default:
		if !w.t.caps.Admits(at) {
			return refused(" outside of the allowed roots")
		}
	}
	if w.links++; w.links > maxLinks {
		return &file.Fault{Status: file.Error, Code: file.CodeInvalidPath, Message: file.Quote(at) + ": too many symbolic links"}
	}
	// Links of procfs lead to objects, not to paths: what they say is not where they go.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type == unix.PROC_SUPER_MAGIC {
		return refused(" of a process")
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return w.t.lookupFault(at, err)
	}
	target := string(buf[:n])
	if strings.HasPrefix(target, "/") {
		w.close()
	}
	if len(w.todo) == 0 && ending(target) {
		w.slash = true
	}
	w.todo = append(w.todo, parts(target)...)
	if len(w.todo) > unix.PathMax {
		return &file.Fault{Status: file.Error, Code: file.CodeInvalidPath, Message: file.Quote(at) + ": the path becomes too long"}
	}
	return nil
}

// place makes a Place of a name in the directory that the walk has come to.
func (w *walker) place(name string, st unix.Stat_t) (*Place, *file.Fault) {
	fd, err := dup(w.top())
	if err != nil {
		return nil, w.t.lookupFault(w.path(), err)
	}
	return &Place{Path: w.path(name), Dir: fd, Name: name, Last: name, Exists: true, Stat: st, dirOnly: w.slash}, nil
}

// directory makes a Place of the directory that the walk has come to.
func (w *walker) directory() (*Place, *file.Fault) {
	var st unix.Stat_t
	if err := unix.Fstat(w.top(), &st); err != nil {
		return nil, w.t.lookupFault(w.path(), err)
	}
	if len(w.stack) == 0 {
		fd, err := dup(w.t.root)
		if err != nil {
			return nil, w.t.lookupFault("/", err)
		}
		return &Place{Path: "/", Dir: fd, Name: ".", Last: ".", Exists: true, Stat: st}, nil
	}
	name := w.stack[len(w.stack)-1].name
	w.pop()
	return w.place(name, st)
}

// missing makes a Place of a name that is not there, with the directories that are not there either.
func (w *walker) missing(name string) (*Place, *file.Fault) {
	fd, err := dup(w.top())
	if err != nil {
		return nil, w.t.lookupFault(w.path(), err)
	}
	all := []string{name}
	for i := len(w.todo) - 1; i >= 0; i-- {
		all = append(all, w.todo[i])
	}
	p := &Place{Path: w.path(all...), Dir: fd, Name: name, Last: all[len(all)-1], dirOnly: w.slash}
	if len(all) > 1 {
		p.Missing = all[:len(all)-1]
	}
	return p, nil
}

func dup(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}

// lookupFault is what a failed lookup at a path says. What lies outside of the roots says nothing else
// than that it does.
func (t *Tree) lookupFault(at string, err error) *file.Fault {
	if !t.caps.Admits(at) {
		return notAllowed(at)
	}
	return Fault(at, err)
}

// Fault is what an error number at a path says.
func Fault(at string, err error) *file.Fault {
	if known, ok := errors.AsType[*file.Fault](err); ok {
		return known
	}
	f := &file.Fault{Status: file.Error, Code: file.CodeIOError, Message: file.Quote(at) + ": " + err.Error()}
	for _, row := range []struct {
		errno  unix.Errno
		status file.Status
		code   file.Code
	}{
		{unix.ENOENT, file.NotFound, file.CodePathNotFound},
		{unix.ENOTDIR, file.NotFound, file.CodePathNotFound},
		{unix.EACCES, file.Forbidden, file.CodeForbidden},
		{unix.EPERM, file.Forbidden, file.CodeForbidden},
		{unix.EROFS, file.Forbidden, file.CodeReadOnly},
		{unix.ELOOP, file.Conflict, file.CodeChanged}, // a link where there was none: we follow none by the kernel
		{unix.ENOSPC, file.Error, file.CodeNoSpace},
		{unix.EDQUOT, file.Error, file.CodeNoSpace},
		{unix.ENAMETOOLONG, file.Error, file.CodeInvalidPath},
		{unix.EXDEV, file.Error, file.CodeCrossDevice},
		{unix.ENOTEMPTY, file.Conflict, file.CodeNotEmpty},
		{unix.EEXIST, file.Conflict, file.CodeFileExists},
		{unix.EISDIR, file.IsDirectory, file.CodeIsDirectory},
	} {
		if errors.Is(err, row.errno) {
			f.Status, f.Code = row.status, row.code
			break
		}
	}
	return f
}

// Open opens the regular file at the place, and says what it is by the descriptor that is used. Anything else is
// answered without being opened, or closed again at once: nothing here waits for a writer of a FIFO.
func (p *Place) Open(flags int) (*os.File, unix.Stat_t, *file.Fault) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.Dir, p.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, st, Fault(p.Path, err)
	}
	if f := regular(p.Path, st.Mode); f != nil {
		return nil, st, f
	}
	fd, err := unix.Openat(p.Dir, p.Name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, st, Fault(p.Path, err)
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, st, Fault(p.Path, err)
	}
	if f := regular(p.Path, st.Mode); f != nil {
		unix.Close(fd)
		return nil, st, f
	}
	return os.NewFile(uintptr(fd), p.Name), st, nil
}

func regular(at string, mode uint32) *file.Fault {
	switch kind := Kind(mode); kind {
	case "file":
		return nil
	case "dir":
		return &file.Fault{Status: file.IsDirectory, Code: file.CodeIsDirectory, Message: file.Quote(at) + " is a directory"}
	case "symlink":
		return &file.Fault{Status: file.Conflict, Code: file.CodeChanged, Message: file.Quote(at) + " became a symbolic link"}
	default:
		return &file.Fault{Status: file.Error, Code: file.CodeNotRegular, Message: file.Quote(at) + " is a " + kind}
	}
}

// OpenDir opens the directory at the place for reading.
func (p *Place) OpenDir() (int, *file.Fault) {
	fd, err := unix.Openat(p.Dir, p.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return -1, &file.Fault{Status: file.Error, Code: file.CodeNotDirectory, Message: file.Quote(p.Path) + " is no directory"}
	case err != nil:
		return -1, Fault(p.Path, err)
	}
	return fd, nil
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Mode uint32 // type bits only; 0 where the directory does not say
}

// ReadDir reads the names in an open directory, in its own order, without "." and "..".
func ReadDir(fd int) ([]Entry, error) {
	var out []Entry
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return out, err
		}
		if n == 0 {
			return out, nil
		}
		for rest := buf[:n]; len(rest) >= 19; {
			size := int(binary.NativeEndian.Uint16(rest[16:]))
			if size < 19 || size > len(rest) {
				return out, unix.EIO
			}
			name := rest[19:size]
			if i := strings.IndexByte(string(name), 0); i >= 0 {
				name = name[:i]
			}
			if s := string(name); s != "." && s != ".." {
				out = append(out, Entry{s, uint32(rest[18]) << 12})
			}
			rest = rest[size:]
		}
	}
}

// FindAny looks up a resolved path for our own use: above the roots, where the caller's rules
// do not reach, and without following anything.
func (t *Tree) FindAny(resolved string) (*Place, *file.Fault) {
	own := &Tree{root: t.root, workdir: "/", caps: &file.Caps{FollowSymlinks: file.FollowDeny}}
	return own.Find(resolved, Options{NoFollow: true})
}

// Under is the same tree under other rules. It lives as long as t, and is not closed.
func (t *Tree) Under(caps *file.Caps) *Tree {
	return &Tree{root: t.root, workdir: t.workdir, caps: caps}
}

// Root is the descriptor of the tree's root, for lookups that only ask whether something exists.
func (t *Tree) Root() int { return t.root }

// IsDirForm reports whether the path was written as a directory's.
func (p *Place) IsDirForm() bool { return p.dirOnly }

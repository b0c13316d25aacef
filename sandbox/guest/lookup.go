package guest

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultPath is where a command is looked for when its environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// asIdentity runs a look-up with the file system identity of executions: init's uid could
// see other files than they do. Groups and fsgid are theirs already.
func (g *guestInit) asIdentity(look func() syscall.Errno) syscall.Errno {
	if err := setfsuid(g.setup.UID); err != nil {
		return errno(err)
	}
	e := look()
	if err := setfsuid(uint32(unix.Getuid())); err != nil {
		return errno(err)
	}
	return e
}

// enter says whether executions can enter a directory.
func (g *guestInit) enter(path string) *Error {
	e := g.asIdentity(func() syscall.Errno {
		// The dot is looked up in the directory: it has to be one, and to be searchable.
		return access(path + "/.")
	})
	if !strings.HasPrefix(path, "/") {
		e = syscall.EINVAL
	}
	if e != 0 {
		return &Error{StageWorkdir, "enter " + path, e}
	}
	return nil
}

// lookup returns what argv[0] names, as execvp would, without executing to find out: in
// the PATH of the command's own environment, relative to its own directory. The calling thread
// has the identity that the command will have.
func lookup(c *Command) (string, *Error) {
	name := c.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	found, e := "", syscall.ENOENT
	if name != "" {
		found, e = search(name, pathOf(c.Env), c.Cwd)
	}
	if e != 0 {
		return "", &Error{StageProgram, "look up " + name + " in PATH", e}
	}
	return found, nil
}

func pathOf(env []string) string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return path
		}
	}
	return defaultPath
}

// search returns the first executable file, or EACCES if there are only others, or ENOENT.
func search(name, path, cwd string) (string, syscall.Errno) {
	e := syscall.ENOENT
	for dir := range strings.SplitSeq(path, ":") {
		candidate := within(cwd, dir) + "/" + name
		switch executable(candidate) {
		case 0:
			return candidate, 0
		case syscall.EACCES:
			e = syscall.EACCES
		}
	}
	return "", e
}

// within returns path as seen from cwd.
func within(cwd, path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return cwd + "/" + path
}

// executable says whether the calling thread may execute a file, which a directory is not.
func executable(path string) syscall.Errno {
	if e := access(path); e != 0 {
		return e
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return errno(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return syscall.EACCES
	}
	return 0
}

// access says whether the calling thread may execute a file or search a directory.
func access(path string) syscall.Errno {
	if err := unix.Faccessat2(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return errno(err)
	}
	return 0
}

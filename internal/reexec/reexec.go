// Package reexec lets a program replace itself by another in the same process, which goes
// on with its children, its descriptors and what it remembers. It promises that the new
// program gets exactly the descriptors that it was meant to get, that each is close-on-exec
// again before anybody can start a process, and that a program that could not be executed
// leaves the old one as it was.
//
// What state and files mean is their users' matter. So is what must not happen in between:
// threads end, goroutines with them, and nobody is told.
package reexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable names, in the environment, the descriptor of what was handed over.
const variable = "STOCKADE_REEXEC"

// Exec executes exe, which is open and close-on-exec, with state and files. It returns
// only if that fails, and then nothing has changed.
func Exec(exe *os.File, args, env []string, state []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		var err error
		if fds[i], err = descriptor(f); err != nil {
			return fmt.Errorf("hand over %s: %w", f.Name(), err)
		}
	}
	program, err := descriptor(exe)
	if err != nil {
		return fmt.Errorf("execute %s: %w", exe.Name(), err)
	}
	bundle, err := pack(state, fds)
	if err != nil {
		return fmt.Errorf("hand over state: %w", err)
	}
	defer bundle.Close()
	carrier, err := descriptor(bundle)
	if err != nil {
		return fmt.Errorf("hand over state: %w", err)
	}

	// As long as they are inherited by whatever is executed, nobody may start a process.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	inherit := append([]int{carrier}, fds...)
	for i, fd := range inherit {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			err = fmt.Errorf("hand over descriptor %d: %w", fd, err)
			inherit = inherit[:i]
			break
		}
	}
	if err == nil {
		err = unix.Exec("/proc/self/fd/"+strconv.Itoa(program), args, append(without(env), variable+"="+strconv.Itoa(carrier)))
		err = fmt.Errorf("execute %s: %w", exe.Name(), err)
	}
	for _, fd := range inherit {
		unix.CloseOnExec(fd)
	}
	runtime.KeepAlive(files)
	runtime.KeepAlive(exe)
	return err
}

// Inherited returns what the program before handed over, once; ok is false in a program
// that replaces none. It is called before anything that could start a process. Files that can be
// polled are in the mode in which they were. An error comes with the files that there are.
func Inherited() (state []byte, files []*os.File, ok bool, err error) {
	value, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil, false, nil
	}
	if err := os.Unsetenv(variable); err != nil {
		return nil, nil, true, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, nil, true, fmt.Errorf("%s=%s: no descriptor", variable, value)
	}
	unix.CloseOnExec(fd)
	bundle := os.NewFile(uintptr(fd), "state")
	defer bundle.Close()
	state, fds, err := unpack(bundle)
	if err != nil {
		return nil, nil, true, fmt.Errorf("state of the program before: %w", err)
	}
	var errs []error
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			errs = append(errs, fmt.Errorf("inherited descriptor %d: %w", fd, err))
			continue
		}
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	return state, files, true, errors.Join(errs...)
}

// descriptor returns a file's number, and leaves its mode alone, as Fd does not.
func descriptor(f *os.File) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// without is the environment but for our own variable.
func without(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, variable+"=") })
}

// pack puts everything into a memfd: the number of descriptors, the descriptors, each as
// a u32, little-endian; then the state.
func pack(state []byte, fds []int) (*os.File, error) {
	fd, err := unix.MemfdCreate("stockade-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "state")
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(fds)))
	for _, fd := range fds {
		b = binary.LittleEndian.AppendUint32(b, uint32(fd))
	}
	if _, err := f.WriteAt(append(b, state...), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func unpack(f *os.File) (state []byte, fds []int, err error) {
	b, err := io.ReadAll(f) // which nobody has read from yet
	if err != nil {
		return nil, nil, err
	}
	errShort := errors.New("shorter than it says")
	if len(b) < 4 {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n)*4 > uint64(len(b)) {
		return nil, nil, errShort
	}
	for range n {
		fds = append(fds, int(binary.LittleEndian.Uint32(b)))
		b = b[4:]
	}
	return b, fds, nil
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// raw makes a system call that libraries do not offer.
func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall6(nr, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// content reads a file: what is masked opens, and is empty.
func content(args []string) (string, error) {
	f, err := os.Open(args[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	n, _ := f.Read(make([]byte, 16))
	if n <= 0 {
		return "empty", nil
	}
	return "", nil
}

func readlink(args []string) (string, error) { return os.Readlink(args[0]) }

// mknod makes the node that the arguments name: PATH b|c MAJOR MINOR.
func mknod(args []string) (string, error) {
	kind := map[string]uint32{"b": unix.S_IFBLK, "c": unix.S_IFCHR}[args[1]]
	dev := unix.Mkdev(uint32(number(args[2])), uint32(number(args[3])))
	return "", made(args[0], unix.Mknod(args[0], kind|0o600, int(dev)))
}

// made takes away what a successful attempt left.
func made(path string, err error) error {
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// replaceAll puts links in the place of what is in a directory, and prints the names that were: DIR TARGET TIMES.
func replaceAll(args []string) (string, error) {
	link := filepath.Join(args[0], ".link")
	for range number(args[2]) {
		entries, err := os.ReadDir(args[0])
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			name := filepath.Join(args[0], e.Name())
			if os.Symlink(args[1], link) == nil && os.Rename(link, name) == nil ||
				os.Rename(name, filepath.Join(args[0], ".away")) == nil || os.Remove(name) == nil {
				fmt.Println(e.Name())
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
	return "", nil
}

// chmod makes a file and gives it the mode.
func chmod(path string, mode uint32) error {
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		return err
	}
	err := unix.Chmod(path, mode)
	os.Remove(path)
	return err
}

func fchmodSuid(args []string) (string, error) {
	f, err := os.Create(args[0])
	if err != nil {
		return "", err
	}
	defer os.Remove(args[0])
	defer f.Close()
	return "", unix.Fchmod(int(f.Fd()), unix.S_ISUID|0o755)
}

func fchmodatSuid(args []string) (string, error) {
	if err := os.WriteFile(args[0], nil, 0o755); err != nil {
		return "", err
	}
	defer os.Remove(args[0])
	path, err := unix.BytePtrFromString(args[0])
	if err != nil {
		return "", err
	}
	at := unix.AT_FDCWD
	return "", raw(unix.SYS_FCHMODAT, uintptr(at), uintptr(unsafe.Pointer(path)), unix.S_ISUID|0o755)
}

func fchmodat2Suid(args []string) (string, error) {
	if err := os.WriteFile(args[0], nil, 0o755); err != nil {
		return "", err
	}
	defer os.Remove(args[0])
	path, err := unix.BytePtrFromString(args[0])
	if err != nil {
		return "", err
	}
	at := unix.AT_FDCWD
	return "", raw(unix.SYS_FCHMODAT2, uintptr(at), uintptr(unsafe.Pointer(path)), unix.S_ISUID|0o755)
}

func openSuid(args []string) (string, error) {
	fd, err := unix.Open(args[0], unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL|unix.O_CLOEXEC, unix.S_ISUID|0o755)
	if err != nil {
		return "", err
	}
	return "", made(args[0], unix.Close(fd))
}

func openat2Suid(args []string) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, args[0], &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY | unix.O_CLOEXEC, Mode: unix.S_ISUID | 0o755})
	if err != nil {
		return "", err
	}
	return "", made(args[0], unix.Close(fd))
}

func creatSuid(args []string) (string, error) {
	fd, err := unix.Creat(args[0], unix.S_ISUID|0o755)
	if err != nil {
		return "", err
	}
	return "", made(args[0], unix.Close(fd))
}

// tmpfileSuid makes a file that has no name yet.
func tmpfileSuid(args []string) (string, error) {
	fd, err := unix.Open(args[0], unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, unix.S_ISUID|0o755)
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

// capSetuid is security.capability for cap_setuid+ep: struct vfs_cap_data, revision 2.
var capSetuid = []byte{1, 0, 0, 2, 1 << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func fileCapability(args []string) (string, error) {
	if err := os.WriteFile(args[0], nil, 0o755); err != nil {
		return "", err
	}
	err := unix.Setxattr(args[0], "security.capability", capSetuid, 0)
	os.Remove(args[0])
	return "", err
}

// status gives lines of /proc/self/status: what the kernel says that we are.
func status(args []string) (string, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	var out []string
	for _, want := range args {
		for line := range strings.Lines(string(b)) {
			if name, value, _ := strings.Cut(line, ":"); name == want {
				out = append(out, strings.TrimSpace(value))
			}
		}
	}
	return strings.Join(out, " "), nil
}

// Package openat2 opens paths that may not lead out of a directory. It repeats what the kernel could not decide, and
// adds nothing else to openat2(2).
package openat2

import "golang.org/x/sys/unix"

// attempts bounds the repetition: who renames in a loop must not have us open in one.
const attempts = 1000

// Open is openat2(2). Beneath a directory (RESOLVE_BENEATH, RESOLVE_IN_ROOT) the kernel answers EAGAIN for a path with ".." when
// something was renamed or mounted meanwhile, anywhere on the machine, and leaves it to the caller to ask again.
func Open(dir int, path string, how *unix.OpenHow) (fd int, err error) {
	for range attempts {
		fd, err = unix.Openat2(dir, path, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return fd, err
}

package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// empty removes everything in a directory that nobody else uses, open for reading, however deep it is: what is in a directory is moved up
// before that one is removed, so that depth costs neither stack nor descriptors.
func empty(ctx context.Context, top *os.File) error {
	moved := 0
	for {
		found, err := each(ctx, top, func(name string, dir bool) error {
			if !dir {
				return remove(top, name, false)
			}
			_ = below{root: top}.chmod(name, "dir", 0o700) // or it can be neither read nor emptied; who may not, will be told
			sub, err := below{root: top}.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				return err
			}
			defer sub.Close()
			for {
				found, err := each(ctx, sub, func(inner string, dir bool) error {
					if !dir {
						return remove(sub, inner, false)
					}
					if remove(sub, inner, true) == nil {
						return nil
					}
					_ = below{root: sub}.chmod(inner, "dir", 0o700) // a directory that moves is written to: its ..
					for {
						moved++
						err := unix.Renameat2(int(sub.Fd()), inner, int(top.Fd()), ".moved-"+strconv.Itoa(moved), unix.RENAME_NOREPLACE)
						if !errors.Is(err, unix.EEXIST) { // it has been begun before
							return err
						}
						if err := ctx.Err(); err != nil {
							return err
						}
					}
				})
				if err != nil {
					return err
				}
				if !found {
					return remove(top, name, true)
				}
			}
		})
		if err != nil || !found {
			return err
		}
	}
}

// each calls fn for some names of a directory, from its beginning, and reports whether there were any.
func each(ctx context.Context, dir *os.File, fn func(name string, dir bool) error) (found bool, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	entries, err := dir.ReadDir(1024)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := fn(e.Name(), e.IsDir()); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("remove %q: %w", e.Name(), err)
		}
	}
	return len(entries) > 0, nil
}

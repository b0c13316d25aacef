package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// T112, T114, T115, R096, R097: a path leads where the kernel says that it leads in a root of its own (openat2 with RESOLVE_IN_ROOT), or nowhere where
// that says nowhere, in trees of directories, files, FIFOs and links of every form. Where no link is followed, as the kernel
// follows none; where links are followed in one root only, nothing that is found lies outside of it.
func TestLeadsWhereTheKernelLeads(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "c", "..", ".", ""})
	written := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(part, 1, 5).Draw(t, "parts")
		p := strings.Join(parts, "/")
		if rapid.Bool().Draw(t, "absolute") {
			p = "/" + p
		}
		return p
	})
	found := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "tree-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		dirs := []string{dir}
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			at := filepath.Join(rapid.SampledFrom(dirs).Draw(t, "in"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"))
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				if os.Mkdir(at, 0o755) == nil {
					dirs = append(dirs, at)
				}
			case 2:
				if f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL, 0o644); err == nil {
					f.Close()
				}
			case 3:
				_ = unix.Mkfifo(at, 0o644)
			default:
				if target := written.Draw(t, "target"); target != "" {
					_ = os.Symlink(target, at)
				}
			}
		}
		root, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		asked := "/" + strings.TrimPrefix(written.Draw(t, "asked"), "/")
		for _, policy := range []string{file.FollowAllow, file.FollowDeny, file.FollowWithin} {
			for _, nofollow := range []bool{false, true} {
				caps := &file.Caps{FollowSymlinks: policy}
				if policy == file.FollowWithin {
					caps.Roots = []string{"/a"}
				}
				tr, err := Open(root, "/", caps)
				if err != nil {
					t.Fatal(err)
				}
				p, fault := tr.Find(asked, Options{NoFollow: nofollow})
				want, ino, errno := kernel(t, root, dir, asked, policy == file.FollowDeny, nofollow)
				what := fmt.Sprintf("%s, %s, nofollow %v", asked, policy, nofollow)
				switch {
				case policy == file.FollowWithin && fault != nil: // the rows of TestLinks say when
				case policy == file.FollowWithin && (!file.Within(p.Path, "/a") || errno == nil && p.Path != want || errno != nil && p.Exists):
					t.Errorf("%s: %s, the kernel %s %v", what, p.Path, want, errno)
				case policy == file.FollowWithin:
				case errno == nil && (fault != nil || !p.Exists || p.Path != want || p.Stat.Ino != ino):
					t.Errorf("%s: %+v %v, the kernel %s", what, p, fault, want)
				case errors.Is(errno, unix.ENOENT) && !(fault == nil && !p.Exists || fault != nil && fault.Code == file.CodePathNotFound),
					errors.Is(errno, unix.ENOTDIR) && (fault == nil || fault.Code != file.CodePathNotFound && fault.Code != file.CodeNotDirectory),
					errors.Is(errno, unix.ELOOP) && (fault == nil || fault.Code != map[bool]file.Code{true: file.CodeLinkNotAllowed, false: file.CodeInvalidPath}[policy == file.FollowDeny]):
					t.Errorf("%s: %+v %v, the kernel %v", what, p, fault, errno)
				}
				found[fmt.Sprint(errno)]++
				p.Close()
				tr.Close()
			}
		}
	})
	t.Logf("%v", found)
	for _, errno := range []error{nil, unix.ENOENT, unix.ENOTDIR, unix.ELOOP} {
		if found[fmt.Sprint(errno)] == 0 {
			t.Errorf("the kernel has never said %v", errno)
		}
	}
}

// kernel is where a path leads by the kernel's own lookup.
func kernel(t *rapid.T, root *os.File, dir, asked string, deny, nofollow bool) (string, uint64, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if deny {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	if nofollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(int(root.Fd()), asked, &how)
	if err != nil {
		return "", 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	at, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
	if err != nil {
		t.Fatal(err)
	}
	if at = strings.TrimPrefix(at, dir); at == "" {
		at = "/"
	}
	return at, st.Ino, nil
}

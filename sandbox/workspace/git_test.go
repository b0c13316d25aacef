package workspace

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// repository is a git repository of the owner's with one commit, as the host's git makes it.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs git on the host")
		}
		t.Skip("needs git on the host: it is what is attacked")
	}
	dir = sourceDir(t, map[string]string{"file": "one\n"})
	git = func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.UID, Gid: owner.GID}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "-q", "-b", "main")
	git("add", "file")
	git("commit", "-qm", "one")
	return dir, git
}

// elsewhere has git read its configuration from a directory that the session made: a program runs at the next status.
func elsewhere(at func(string) string) error {
	script := at("evil/run")
	return must(
		os.MkdirAll(at("evil/refs"), 0o755), os.MkdirAll(at("evil/objects"), 0o755),
		os.WriteFile(script, []byte("#!/bin/sh\ntouch ran\n"), 0o755), os.Chmod(script, 0o755),
		os.WriteFile(at("evil/config"), []byte("[core]\n\tfsmonitor = evil/run\n"), 0o644),
		os.WriteFile(at(".git/commondir"), []byte("../evil\n"), 0o644),
	)
}

// T144: with .git/commondir a session could have the host's git read configuration and hooks of its own making. While it is
// reserved it cannot, and the host's git works as before; without the reservation the same attack runs.
func TestCommondir(t *testing.T) {
	ways := []string{".git/commondir", ".git/config", ".git/hooks"}
	for _, protected := range [][]string{ways, ways[1:]} {
		guarded := slices.Contains(protected, ".git/commondir")
		attack := func(t *testing.T, b *os.File) {
			t.Helper()
			session(t, b, func(ns *os.File) {
				err := thread.Enter(ns, func() error {
					become()
					return elsewhere(func(name string) string { return filepath.Join(mnt, name) })
				})
				if guarded && !errors.Is(err, unix.EROFS) || !guarded && err != nil {
					t.Errorf("protected: %v; %v", guarded, err)
				}
			})
		}
		ran := func(t *testing.T, dir string, git func(args ...string) string) {
			t.Helper()
			git("status")
			if _, err := os.Lstat(filepath.Join(dir, "ran")); (err != nil) != guarded {
				t.Errorf("protected: %v; %v", guarded, err)
			}
		}
		name := map[bool]string{true: "protected", false: "not protected"}[guarded]
		t.Run("shared, "+name, func(t *testing.T) {
			dir, git := repository(t)
			p := placeholders(t, filepath.Join(t.TempDir(), "placeholders"))
			tree, guards, err := Protect(detached(t, dir, false), Protection{Paths: protected, Owner: owner, Place: mnt,
				Reserve: &Reservation{Placeholders: p, Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			guards.Close()
			attack(t, tree)
			ran(t, dir, git)
			if guarded {
				works(t, git)
			}
			if err := p.Release("s"); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(dir, ".git/commondir")); (err != nil) != guarded {
				t.Errorf("protected: %v; at the end: %v", guarded, err)
			}
		})
		t.Run("overlay, "+name, func(t *testing.T) {
			dir, git := repository(t)
			b := newBox(t, dir, func(o *Options) { o.Protected = protected })
			attack(t, b.Tree)
			b.commit(t)
			ran(t, dir, git)
			if guarded {
				works(t, git)
			}
		})
	}
}

// works does with git what is done all day, and what a common directory could get in the way of.
func works(t *testing.T, git func(args ...string) string) {
	t.Helper()
	for _, line := range []string{
		"commit -q --allow-empty -m two", "checkout -q -b other", "commit -q --allow-empty -m three", "checkout -q main", "merge -q other",
		"worktree add -q -b third tree", "-C tree commit -q --allow-empty -m four", "-C tree status", "worktree remove tree", "rebase -q third",
		"config some.key value", "gc -q", "fsck --strict",
	} {
		git(strings.Fields(line)...)
	}
	if log := git("log", "--format=%s"); log != "four\nthree\ntwo\none\n" {
		t.Errorf("the log is %q", log)
	}
}

// What a runner was killed over is removed by the next, written or not yet; what the host has made of it stays.
func TestPlaceholdersWithContent(t *testing.T) {
	for content, left := range map[string]bool{"": false, ".\n": false, "..\n": true, "/x": true} {
		dir, state := sourceDir(t, project), filepath.Join(t.TempDir(), "placeholders")
		tree, guards, err := Protect(detached(t, dir, false), Protection{Paths: []string{".git/commondir"}, Owner: owner, Place: mnt,
			Reserve: &Reservation{Placeholders: placeholders(t, state), Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		guards.Close()
		tree.Close()
		at := filepath.Join(dir, ".git/commondir")
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := placeholders(t, state).Sweep(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(at); (err == nil) != left {
			t.Errorf("%q: %v", content, err)
		}
	}
}

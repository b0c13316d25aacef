package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// TestOverlay has a session write over a directory of root's and of another user's. The directory is as it was until
// the commit, and what is committed is the caller's (R012). Set-id bits and file capabilities of the directory are worth
// nothing inside, and do not come back (T025).
func TestOverlay(t *testing.T) {
	r := newRunner(t)
	for _, caller := range []sandbox.Caller{{}, {UID: 1001, GID: 1001}} {
		t.Run(fmt.Sprint(caller.UID), func(t *testing.T) {
			before := residueOf(t, r)
			uid := int(caller.UID)
			dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, uid)
			write(t, filepath.Join(dir, "mine"), "mine", 0o600, uid)
			write(t, filepath.Join(dir, "theirs"), "theirs", 0o644, 4242)
			write(t, filepath.Join(dir, "gone"), "", 0o644, uid)
			write(t, filepath.Join(dir, "secret"), "secret", 0o600, 4242)
			id, err := os.ReadFile("/usr/bin/id")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "id"), string(id), 0o755, uid)
			raise := filepath.Join(dir, "id")
			// cap_setuid+ep, version 2
			if err := errors.Join(os.Chmod(raise, os.ModeSetuid|0o755), unix.Setxattr(raise, "security.capability", []byte("\x01\x00\x00\x02\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)); err != nil {
				t.Fatal(err)
			}
			spec := hostSpec("over")
			spec.Caller, spec.Workdir = caller, "/work"
			spec.Mounts = []sandbox.Mount{{Source: source(t, r, caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 4 << 20, Inodes: 100}, Protected: []string{".git/config"}}}
			e := open(t, r, spec)
			defer func() {
				closeSession(t, r, "over")
				before.mustLeaveNothing(t, r)
			}()
			for _, line := range []string{"/work overlay rw,nosuid,nodev,relatime", "/work/.git overlay ro,nosuid,nodev,relatime"} {
				if !slices.Contains(e.Mounts, line) {
					t.Errorf("%q is not in %q", line, e.Mounts)
				}
			}
			o := shell(t, r, "over", `cd /work
				echo new > file; echo more >> mine; mkdir sub; touch sub/x; rm -f gone theirs; ln -s /etc/passwd link
				stat -c "%u:%g %n" . mine file sub secret
				cat secret; chmod 644 secret; echo x >> secret; ./id -u; grep NoNewPrivs /proc/self/status; touch id; mkdir .git/x; echo x > .git; mv .git git`)
			contains(t, "stdout", o.stdout, "1000:1000 .\n", "1000:1000 mine", "1000:1000 file", "1000:1000 sub", "65534:65534 secret", "\n1000\n", "NoNewPrivs:\t1")
			contains(t, "stderr", o.stderr, "remove 'theirs'", "secret: Permission denied", "changing permissions of 'secret'", "'.git/x': Read-only file system", ".git: Is a directory", "'.git' to 'git'")
			if _, err := os.Lstat(filepath.Join(dir, "file")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the host has it before the commit: %v", err)
			}
			ctx := context.Background()
			changes, more, err := r.Changes(ctx, "over", "", "", 100)
			var told []string
			for _, c := range changes {
				told = append(told, c.Kind+" "+c.Path)
			}
			want := []string{"added file", "deleted gone", "modified id", "added link", "modified mine", "added sub", "added sub/x"}
			if uid != 0 { // a capability of a root that does not exist inside: the kernel does not copy the file
				want = slices.Delete(want, 2, 3)
			}
			if err != nil || more || !slices.Equal(told, want) {
				t.Errorf("changes %q %v %v", told, more, err)
			}
			c, err := r.Commit(ctx, "over", "/work", nil)
			if err != nil || c.Applied != int64(len(want)) {
				t.Errorf("commit %+v %v", c, err)
			}
			for _, name := range []string{"file", "mine", "sub", "sub/x", "link"} {
				var st unixStat
				if err := st.of(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				if st.Uid != caller.UID || st.Gid != caller.GID || st.Mode&0o7000 != 0 {
					t.Errorf("%s outside: %d:%d mode %o", name, st.Uid, st.Gid, st.Mode)
				}
			}
			_, err = unix.Getxattr(raise, "security.capability", nil)
			if st := new(unixStat); uid == 0 && (st.of(raise) != nil || st.Mode&0o7000 != 0 || !errors.Is(err, unix.ENODATA)) {
				t.Errorf("what was committed has mode %o, its capabilities %v", st.Mode, err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "mine")); err != nil || string(data) != "minemore\n" {
				t.Errorf("mine is %q %v", data, err)
			}

			o = shell(t, r, "over", `cat /dev/zero > /work/zero`)
			if len(o.Hits) != 1 || o.Hits[0].Ceiling != sandbox.HitDiskBytes || o.Hits[0].Object != "/work" {
				t.Errorf("hits %+v, %s", o.Hits, o.stderr)
			}
			if err := r.Discard(ctx, "over", "/work"); err != nil {
				t.Fatal(err)
			}
			o = shell(t, r, "over", `cd /work; cat mine; ls -A; echo x > after && mkdir d && mv after d && echo written; echo x > .git/config`)
			contains(t, "stdout", o.stdout, "minemore\n", ".git\n", "file\n", "written\n")
			contains(t, "stderr", o.stderr, ".git/config: Read-only file system")
			if strings.Contains(o.stdout, "zero") || len(o.Hits) != 0 {
				t.Errorf("not empty: %s %+v", o.stdout, o.Hits)
			}
			if _, _, err := r.Changes(ctx, "over", "/tmp", "", 1); codeOf(err) != sandbox.CodeNoOverlay {
				t.Errorf("changes of /tmp: %v", err)
			}
		})
	}
}

// TestCommitSource commits to what is no longer the directory that was judged, or no longer the caller's to write.
func TestCommitSource(t *testing.T) {
	r := newRunner(t)
	caller := sandbox.Caller{UID: 1001, GID: 1001}
	shared := mkdir(t, filepath.Join(sharedDir(t), "of"), 0o755, 1001)
	dir := mkdir(t, filepath.Join(shared, "work"), 0o755, 1001)
	spec := hostSpec("src")
	spec.Caller = caller
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 1 << 20, Inodes: 100}}}
	open(t, r, spec)
	defer closeSession(t, r, "src")
	shell(t, r, "src", "echo x > /work/x")
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755), os.Chown(dir, 1001, 1001)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(context.Background(), "src", "", nil); codeOf(err) != sandbox.CodeSourceChanged {
		t.Errorf("another directory: %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".old", dir), os.Chown(dir, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(context.Background(), "src", "", nil); codeOf(err) != sandbox.CodeMountSource {
		t.Errorf("root's directory: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("there is %v %v", names, err)
	}
}

// TestProtected has a session, its identity and root inside, try to change what is protected in a directory that it shares with
// the host (T016, T144). The rest of the attempts are in sandbox/workspace, without a session around them.
func TestProtected(t *testing.T) {
	r := newRunner(t)
	r.options.Ceiling.UIDs = [2]uint32{0, 65534}
	caller := sandbox.Caller{UID: 1001, GID: 1001}
	for _, uid := range []uint32{1000, 0} {
		for _, protected := range []bool{true, false} {
			before := residueOf(t, r)
			dir := mkdir(t, filepath.Join(sharedDir(t), "repo"), 0o755, 1001)
			for _, d := range []string{".git", ".git/hooks", ".git/objects"} {
				mkdir(t, filepath.Join(dir, d), 0o755, 1001)
			}
			write(t, filepath.Join(dir, ".git/config"), "[core]\n", 0o644, 1001)
			write(t, filepath.Join(dir, ".git/index"), "i", 0o644, 1001)
			spec := hostSpec("prot")
			spec.Caller, spec.Identity, spec.Workdir = caller, sandbox.Identity{UID: uid, GID: uid}, "/work"
			spec.Mounts = []sandbox.Mount{{Source: source(t, r, caller, dir), Target: "/work"}}
			if protected {
				spec.Mounts[0].Protected = []string{".git/config", ".git/hooks", ".mcp.json", ".claude/settings.json"}
			}
			e := open(t, r, spec)
			try := func(script string) bool {
				return shell(t, r, "prot", "cd /work && { "+script+"; } 2>/dev/null").ExitCode == 0
			}
			for _, script := range []string{
				"echo x >> .git/config", "chmod 777 .git/config", "touch .git/hooks/pre-commit", "echo > new && mv -T new .git/config", "ln .git/config other",
				"echo > .mcp.json", "mkdir -p .claude && echo > .claude/settings.json", "rm -f .mcp.json; ln -s new .mcp.json", "mv .git/hooks hooks", "mv .git git",
			} {
				if try(script) == protected {
					t.Errorf("uid %d, protected %v: %s", uid, protected, script)
				}
			}
			if protected { // and the host writes as git does
				write(t, filepath.Join(dir, ".git/config.lock"), "[core]\n", 0o644, 1001)
				if err := os.Rename(filepath.Join(dir, ".git/config.lock"), filepath.Join(dir, ".git/config")); err != nil {
					t.Fatal(err)
				}
				if try("echo x >> .git/config") {
					t.Errorf("uid %d: written, once the host had", uid)
				}
				if !try("echo i2 > .git/index.lock && mv .git/index.lock .git/index && mkdir .git/objects/ab && echo > code") {
					t.Error("what is not protected cannot be done")
				}
				for target, flags := range map[string]string{"/work/.git": "rw", "/work/.git/config": "ro", "/work/.git/hooks": "ro", "/work/.mcp.json": "ro", "/work/.claude": "ro"} {
					if !slices.ContainsFunc(e.Mounts, func(m string) bool {
						return strings.HasPrefix(m, target+" ") && strings.Contains(m, " "+flags+",nosuid,nodev")
					}) {
						t.Errorf("no %s %s in %q", target, flags, e.Mounts)
					}
				}
			}
			closeSession(t, r, "prot")
			if protected {
				for _, name := range []string{".mcp.json", ".claude"} {
					if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("%s is left: %v", name, err)
					}
				}
				if data, err := os.ReadFile(filepath.Join(dir, ".git/config")); err != nil || string(data) != "[core]\n" {
					t.Errorf("config is %q %v", data, err)
				}
			}
			before.mustLeaveNothing(t, r)
		}
	}
}

// Where a caller's directory does not answer any more, a start ends with who waits for it, and the session is closed. The runner is not
// replaced while it still looks.
func TestSourceHangs(t *testing.T) {
	r := newRunner(t)
	answer := make(chan struct{})
	answers := sync.OnceFunc(func() { close(answer) })
	defer answers()
	hung, err := workspace.OpenPlaceholders(filepath.Join(t.TempDir(), "placeholders"), func(s sandbox.Source) (*os.File, error) {
		<-answer
		return reopen(s, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func(before *workspace.Placeholders) { r.placeholders = before }(r.placeholders)
	r.placeholders = hung
	spec := hostSpec("hung")
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Protected: []string{".mcp.json"}}}
	open(t, r, spec)
	s, err := r.session("hung")
	if err != nil {
		t.Fatal(err)
	}
	s.guarding <- struct{}{} // a renew that hangs
	begin := func(ctx context.Context) error {
		_, err := r.Start(ctx, sandbox.Exec{Session: "hung", ID: "x", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(sandbox.Result) {})
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start: %v", err)
	}
	started, closed := make(chan error, 1), make(chan error, 1)
	go func() { started <- begin(context.Background()) }()
	go func() {
		_, err := r.Close(context.Background(), "hung")
		closed <- err
	}()
	for what, end := range map[string]chan error{"<nil>": closed, sandbox.CodeNoSession: started} {
		select {
		case err := <-end:
			if codeOf(err) != what {
				t.Errorf("got %v, want code %q", err, what)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("no end with code %q", what)
		}
	}
	if _, _, err := r.Save(t.Context()); err == nil {
		t.Error("saved")
		r.Continue()
	}
	answers()
	for range 1000 {
		if _, err = os.Lstat(filepath.Join(dir, ".mcp.json")); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the placeholder is left: %v", err)
	}
}

// Names are bytes, UTF-8 or not, and every change is told once, however short the pages (T130).
func TestChangesOfAnyBytes(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("odd")
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 1 << 20, Inodes: 100}}}
	open(t, r, spec)
	defer closeSession(t, r, "odd")
	if o := shell(t, r, "odd", `cd /work && touch a "$(printf 'b\377')" "$(printf 'b\376')" c && ln -s "$(printf '\377')" d`); o.ExitCode != 0 {
		t.Fatalf("%+v", o)
	}
	var told []string
	after, more := "", true
	for pages := 0; more && pages < 10; pages++ {
		var changes []sandbox.Change
		var err error
		if changes, more, err = r.Changes(context.Background(), "odd", "", after, 1); err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			told = append(told, c.Path+c.Link)
			after = c.Path
		}
	}
	if want := []string{"a", "b\xfe", "b\xff", "c", "d\xff"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// A session that Discard leaves with executions born where nobody counts them has ended.
func TestDiscardCutOff(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("cut")
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 8 << 20, Inodes: 100}}}
	open(t, r, spec)
	defer closeSession(t, r, "cut")
	if err := unix.Kill(initOf(r, "cut"), unix.SIGSTOP); err != nil { // it answers nobody
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Discard(ctx, "cut", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	_ = unix.Kill(initOf(r, "cut"), unix.SIGCONT) // if it is there
	if _, err := r.Start(t.Context(), sandbox.Exec{Session: "cut", ID: "late", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(sandbox.Result) {}); codeOf(err) != sandbox.CodeNoSession {
		t.Errorf("a start afterwards: %v", err)
	}
}

// What ends a session whose executions are counted nowhere ends no other: the groups of one that is closed may be another's.
func TestCut(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("cut"))
	s, err := r.session("cut")
	if err != nil {
		t.Fatal(err)
	}
	closed := func(now bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = now
	}
	closed(true)
	if err := s.cut(); err != nil {
		t.Error(err)
	}
	closed(false)
	if o := shell(t, r, "cut", "echo on"); o.stdout != "on\n" {
		t.Errorf("one that is closed was cut: %+v", o)
	}
	if err := s.cut(); err != nil {
		t.Error(err)
	}
	if _, err := r.Start(t.Context(), sandbox.Exec{Session: "cut", ID: "late", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(sandbox.Result) {}); codeOf(err) != sandbox.CodeNoSession {
		t.Errorf("a start afterwards: %v", err)
	}
	closeSession(t, r, "cut")
}

// A close does not wait for what looks at an overlay and hangs, and everything but that is given back. The runner is not replaced while it
// still looks.
func TestOverlayHangs(t *testing.T) {
	r := newRunner(t)
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec := hostSpec("over")
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 1 << 20, Inodes: 100}}}
	open(t, r, spec)
	_, space, err := r.overlay("over", "")
	if err != nil {
		t.Fatal(err)
	}
	// As a commit holds it that hangs.
	looking := (*sync.RWMutex)(reflect.ValueOf(space).Elem().FieldByName("mu").Addr().UnsafePointer())
	looking.RLock()
	if _, err := r.Close(t.Context(), "over"); err != nil {
		t.Error(err)
	}
	if _, _, err := r.Save(t.Context()); err == nil {
		t.Error("saved")
		r.Continue()
	}
	open(t, r, spec) // the name is free
	closeSession(t, r, "over")
	looking.RUnlock()
	for range 1000 {
		if r.closing.Load() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, _, err := r.Save(t.Context()); err != nil {
		t.Error(err)
	}
	r.Continue()
}

// A user whose directories hang has so many threads waiting for them, and no more; other users' commands begin.
func TestRenewTurns(t *testing.T) {
	r := newRunner(t)
	for uid, id := range map[uint32]string{1001: "one", 1002: "two"} {
		spec := hostSpec(id)
		spec.Caller = sandbox.Caller{UID: uid, GID: uid}
		dir := mkdir(t, filepath.Join(sharedDir(t), id), 0o755, int(uid))
		spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Protected: []string{".mcp.json"}}}
		open(t, r, spec)
		defer closeSession(t, r, id)
	}
	var leave []func()
	for range maxRenews {
		done, err := r.renewing.Join(t.Context(), 1001, maxRenews)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := r.Start(ctx, sandbox.Exec{Session: "one", ID: "x", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(sandbox.Result) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start: %v", err)
	}
	shell(t, r, "two", "true")
	for _, done := range leave {
		done()
	}
	shell(t, r, "one", "true")
	if n := r.renewing.In(); n != 0 {
		t.Errorf("%d turns are kept", n)
	}
}

// Executions stand still for a commit, and go on after it; a session that was frozen stays so.
func TestCommitStandsStill(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("still")
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, dir), Target: "/work", Overlay: &sandbox.Overlay{Bytes: 8 << 20, Inodes: 100}}}
	open(t, r, spec)
	defer closeSession(t, r, "still")
	ctx := context.Background()
	// Both files have the same lines, at every moment at which both are written.
	x := start(t, r, sandbox.Exec{Session: "still", ID: "writer", Cwd: "/work", Argv: []string{"/bin/sh", "-c", "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i > one; echo $i > two; done"}}, nil)
	number := func(name string) (n int) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			_, err = fmt.Sscan(string(data), &n)
		}
		if err != nil {
			return -1 // it has not begun, or is between the truncation and the write
		}
		return n
	}
	last := 0
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		if _, err := r.Commit(ctx, "still", "", nil); err != nil {
			t.Fatal(err)
		}
		one, two := number("one"), number("two")
		if one != -1 && two != -1 && one != two && one != two+1 {
			t.Errorf("one %d, two %d", one, two)
		}
		if one != -1 && one < last {
			t.Errorf("%d after %d", one, last)
		}
		last = max(last, one)
	}
	if last == 0 {
		t.Error("it did not go on")
	}
	if err := r.Freeze(ctx, "still", "", true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(ctx, "still", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(ctx, sandbox.Exec{Session: "still", ID: "late", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(sandbox.Result) {}); codeOf(err) != sandbox.CodeFrozen {
		t.Errorf("got %v", err)
	}
	if err := r.Freeze(ctx, "still", "", false); err != nil {
		t.Fatal(err)
	}
	shell(t, r, "still", ": > /work/stop")
	x.wait()
}

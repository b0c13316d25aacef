package runc

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

type unixStat struct{ syscall.Stat_t }

func (s *unixStat) of(path string) error { return syscall.Lstat(path, &s.Stat_t) }

// TestExec runs commands that end in every way (R034, R048, R060, R064).
func TestExec(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("s")
	spec.Limits.MemoryBytes = 64 << 20
	open(t, r, spec)
	defer closeSession(t, r, "s")

	for _, c := range []struct {
		script string
		exit   int
		signal syscall.Signal
		oom    bool
		out    string
	}{
		{"echo out; echo err >&2; exit 7", 7, 0, false, "out\n"},
		{"kill -9 $$", -1, syscall.SIGKILL, false, ""},
		{"kill -15 $$", -1, syscall.SIGTERM, false, ""},
		{"echo again > /dev/stdout; cat /dev/stdin; pwd", 0, 0, false, "again\n/tmp\n"},
		{"exec tail /dev/zero", -1, syscall.SIGKILL, true, ""},
		{"ulimit -n; ulimit -c", 0, 0, false, "256\n0\n"},
		{"sleep 300 >/dev/null 2>&1 & echo left", 0, 0, false, "left\n"},
	} {
		o := shell(t, r, "s", c.script)
		if o.ExitCode != c.exit || o.Signal != int(c.signal) || o.OOM != c.oom || o.stdout != c.out {
			t.Errorf("%s: %.1000s", c.script, fmt.Sprintf("%+v", o))
		}
		if o.Usage.CPU <= 0 || o.Usage.PeakMemory <= 0 || !o.Ended.After(o.Started) {
			t.Errorf("%s: usage %+v", c.script, o.Result)
		}
	}

	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"cat"}, Env: []string{"PATH=/usr/bin", "A=b"}}, stdin)
	io.WriteString(w, "piped")
	w.Close()
	if o := x.wait(); o.stdout != "piped" {
		t.Errorf("cat: %+v", o)
	}
	if o := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/usr/bin/env"}, Env: []string{"A=b"}}, nil).wait(); o.stdout != "A=b\n" {
		t.Errorf("env: %q", o.stdout)
	}

	for _, c := range []struct {
		e    sandbox.Exec
		code string
	}{
		{sandbox.Exec{Session: "s", ID: "e", Argv: []string{"none"}, Cwd: "/"}, sandbox.CodeSpawn},
		{sandbox.Exec{Session: "s", ID: "e", Argv: []string{"/etc/passwd"}, Cwd: "/"}, sandbox.CodeSpawn},
		{sandbox.Exec{Session: "s", ID: "e", Argv: []string{"/proc/self/fd/4"}, Cwd: "/"}, sandbox.CodeSpawn},
		{sandbox.Exec{Session: "s", ID: "e", Argv: []string{"/bin/true"}, Cwd: "/none"}, sandbox.CodeInvalidWorkdir},
		{sandbox.Exec{Session: "s", ID: "e", Argv: []string{"/bin/true"}, Cwd: "none"}, sandbox.CodeInvalidSpec},
		{sandbox.Exec{Session: "other", ID: "e", Argv: []string{"/bin/true"}, Cwd: "/"}, sandbox.CodeNoSession},
	} {
		_, err := r.Start(context.Background(), c.e, nil, func(sandbox.Result) { t.Error("exited without a start") })
		if codeOf(err) != c.code {
			t.Errorf("%+v: %v, want %s", c.e, err, c.code)
		}
	}
}

// TestKill ends executions, and sessions, that do not want to end (T059, T079, T080).
func TestKill(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	hostile := []struct{ name, script string }{
		{"ignoring", "trap '' TERM INT HUP; echo up; while :; do sleep 1; done"},
		{"stopped", "echo up; kill -STOP $$"},
		{"daemon", "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; echo up; sleep 100"},
		{"fork bomb", "echo up; b() { b | b & }; b; while :; do sleep 1; done"},
	}
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			spec := hostSpec("s")
			spec.Limits.MemoryBytes = 1 << 30 // what a bomb of so many processes does not use up
			open(t, r, spec)
			x := start(t, r, sandbox.Exec{Session: "s", ID: "victim", Argv: []string{"/bin/sh", "-c", h.script}}, nil)
			time.Sleep(100 * time.Millisecond)
			if err := r.Signal(context.Background(), "s", "victim", int(syscall.SIGTERM)); err != nil && codeOf(err) != sandbox.CodeNoExec {
				t.Errorf("signal: %v", err)
			}
			begin := time.Now()
			// A shell that cannot fork gives up: then it is over already, bomb and all.
			ended := h.name == "fork bomb"
			// The daemon's parent obeyed the signal, and may be over too.
			over := ended || h.name == "daemon"
			if err := r.Kill(context.Background(), "s", "victim"); err != nil && !(over && codeOf(err) == sandbox.CodeNoExec) {
				t.Fatal(err)
			}
			o := x.wait()
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("the kill took %v", took)
			}
			if o.OOM || o.Signal == 0 && !ended {
				t.Errorf("%+v", o)
			}
			// Init is unhurt.
			if o := shell(t, r, "s", "echo alive"); o.stdout != "alive\n" {
				t.Errorf("after the kill: %+v", o)
			}
			// And once more, ended by the session's end.
			x = start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/sh", "-c", h.script}}, nil)
			time.Sleep(50 * time.Millisecond)
			closeSession(t, r, "s")
			if o := x.wait(); o.Signal != int(syscall.SIGKILL) && !ended || o.OOM {
				t.Errorf("closed under it: %+v", o)
			}
			before.mustLeaveNothing(t, r)
		})
	}
}

// TestBackground leaves a process behind on purpose (R027, R028).
func TestBackground(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	x := start(t, r, sandbox.Exec{Session: "s", ID: "bg", Background: true, Argv: []string{"/bin/sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"}}, nil)
	pid := strings.TrimSpace(x.wait().stdout)
	if o := shell(t, r, "s", "kill -0 "+pid); o.ExitCode != 0 {
		t.Errorf("the background process is gone: %+v", o)
	}
	if err := r.Kill(context.Background(), "s", "bg"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if o := shell(t, r, "s", "kill -0 "+pid); o.ExitCode == 0 {
		t.Error("the background process has survived its kill")
	}
	if err := r.Kill(context.Background(), "s", "bg"); codeOf(err) != sandbox.CodeNoExec {
		t.Errorf("second kill: %v", err)
	}
}

// TestCollect fetches files under the executions' identity (T114, T123, T124, T130).
func TestCollect(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	o := shell(t, r, "s", `cd /tmp; mkdir -p out/sub; echo one > out/b; echo two > out/sub/a; ln -s b out/link; mkfifo out/fifo pipe
		ln -s /tmp/out/b abs; ln -s ../../../../../etc/shadow up; echo x > secret; chmod 0 secret; ln -s /proc/self/root/etc/shadow magic
		mkdir odd; echo three > "$(printf 'odd/\377')"`)
	if o.ExitCode != 0 {
		t.Fatal(o)
	}
	found, err := r.Collect(context.Background(), "s", []string{"/tmp/out", "/tmp/abs", "/tmp/up", "/tmp/pipe", "/tmp/secret", "/tmp/magic", "/tmp/none", "/dev/null", "/tmp/../tmp/out/b", "/tmp/odd"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range found {
		line := a.Path + " " + a.Err
		if a.File != nil {
			data, _ := io.ReadAll(a.File)
			a.File.Close()
			line = fmt.Sprintf("%s %o %d %s", a.Path, a.Mode, a.Size, strings.TrimSpace(string(data)))
		}
		got = append(got, line)
	}
	want := []string{
		"/tmp/out/b 644 4 one", "/tmp/out/sub/a 644 4 two", "/tmp/abs 644 4 one",
		"/tmp/up not_found", "/tmp/pipe not_regular", "/tmp/secret permission_denied", "/tmp/magic not_found",
		"/tmp/none not_found", "/dev/null not_regular", "/tmp/out/b 644 4 one", "/tmp/odd/\ufffd not_supported",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCollectIsBounded collects trees that are made to take for ever (T053): wide, deep and
// without a file. Each ends with a word about it, and a path asked for beside it is there.
func TestCollectIsBounded(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("s")
	spec.Scratch[0].Inodes = 10000
	open(t, r, spec)
	defer closeSession(t, r, "s")
	o := shell(t, r, "s", `cd /tmp; echo one > file; mkdir wide files links
		(cd wide && seq 3000 | xargs mkdir); (cd files && seq -f %04g 1500 | xargs touch); ln -s $(seq 1100) links; echo two > links/last
		mkdir -p deep$(printf '/d%.0s' $(seq 1900))`)
	if o.ExitCode != 0 {
		t.Fatal(o)
	}
	for _, tt := range []struct {
		path    string
		found   int
		last    string
		tooMany bool
	}{
		{"/tmp/wide", 2, "/tmp/wide", true},
		{"/tmp/files", maxCollected + 1, "/tmp/files/1024", true},
		{"/tmp/links", 2, "/tmp/links/last", false},
		{"/tmp/deep", 1, "/tmp/file", false},
	} {
		found, err := r.Collect(context.Background(), "s", []string{"/tmp/file", tt.path})
		if err != nil {
			t.Fatal(err)
		}
		if last := found[len(found)-1]; len(found) != tt.found || last.Path != tt.last || (last.Err == "too_many_files") != tt.tooMany {
			t.Errorf("%s: %d found, the last %s %q", tt.path, len(found), last.Path, last.Err)
		}
		for _, a := range found {
			if a.File != nil {
				a.File.Close()
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Collect(ctx, "s", []string{"/tmp/wide"}); err == nil {
		t.Error("collected for nobody")
	}
}

// TestInside tries what must not be possible, from within (T003, T014, T017, T018,
// T021, T023, T024, T025, T026, T035, T050).
func TestInside(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	for _, c := range []struct{ script, want string }{
		{"grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\n\\t '",
			"CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000NoNewPrivs:1Seccomp:2"},
		{"ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3"},                 // 3 is the listing
		{"[ $(ls -d /proc/[0-9]* | wc -l) -le 5 ] && echo few", "few"}, // init and ours
		{"cut -d: -f3 /proc/self/cgroup | sort -u | head -c 20", "/"},
		{"cat /proc/1/environ 2>&1 >/dev/null | grep -o denied", "denied"},
		{"readlink /proc/1/exe; echo $?", "1"},
		{"kill -9 1 2>/dev/null; echo $?", "1"},
		{"unshare -U true 2>&1 | head -c 7", "unshare"},
		{"unshare -m true 2>&1 | head -c 7", "unshare"},
		{"mknod /tmp/n c 1 3 2>&1 | grep -c mknod", "1"},
		{"mount -t tmpfs x /tmp 2>/dev/null; echo $?", "32"},
		{"for f in $(find /proc/sys -type f 2>/dev/null); do [ -w $f ] && (: > $f) 2>/dev/null && echo $f; done; echo none", "none"},
		{"cat /proc/kcore /proc/keys /proc/timer_list /proc/sysrq-trigger 2>/dev/null | wc -c", "0"},
		{"ls /sys/fs/cgroup /sys/firmware /sys/kernel 2>/dev/null | grep -v : | tr -d '\\n'", ""},
		{"cat /proc/net/dev | grep -c :", "1"}, // lo
		{"hostname", "box"},
		{"echo x > /x 2>&1; echo x > /etc/passwd; echo $?", "2"},
		{"cp /usr/bin/id /tmp/id; chmod u+s /tmp/id; [ -u /tmp/id ] && echo set; echo done", "done"},
		{"ls /dev | grep -v core | tr '\\n' ' '", "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"},
		{"touch /dev/x 2>&1 | grep -o Read-only", "Read-only"},
	} {
		o := shell(t, r, "s", c.script)
		if got := strings.TrimSpace(o.stdout); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s\n got %q (stderr %q)\nwant %q", c.script, got, o.stderr, c.want)
		}
	}
}

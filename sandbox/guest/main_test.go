package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bin is a directory that the ids of a session can reach: it holds stockade-init, and this test
// binary, which plays the attacker inside.
var bin string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "attack" {
		attack()
		return
	}
	os.Exit(func() int {
		var err error
		if bin, err = build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(bin)
		return m.Run()
	}())
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "stockade-guest-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	if err := builtInit(filepath.Join(dir, "stockade-init")); err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "attacker"), self, 0o755)
}

// builtInit copies stockade-init from STOCKADE_BIN, where there may be no compiler, or builds it for this run.
func builtInit(to string) error {
	if built := os.Getenv("STOCKADE_BIN"); built != "" {
		data, err := os.ReadFile(filepath.Join(built, "stockade-init"))
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o755)
	}
	cmd := exec.Command("go", "build", "-o", to, "../../cmd/stockade-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build stockade-init: %v: %s", err, out)
	}
	return nil
}

// needRoot skips where the kernel objects cannot be made.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const reason = "needs root: init is started in a user namespace with 64 Ki ids"
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

const firstID = 0x7000_0000

// baseline is the setup of most tests: uid 1000 and nothing else.
func baseline() Setup {
	return Setup{UID: 1000, GID: 1001, Groups: []uint32{1002, 1003}, Umask: 0o022, OOMScoreAdj: 500, Workdir: "/"}
}

// box is a session without a root of its own.
type box struct {
	*Conn
	t   testing.TB
	pid int // of init, outside
	cmd *exec.Cmd
}

// ping is a call that changes nothing.
func ping(ctx context.Context, c *Conn) error {
	err := c.SignalAll(ctx, 0)
	if errors.Is(err, syscall.ESRCH) { // nobody is there
		return nil
	}
	return err
}

// start starts init in namespaces of its own, set up as s.
func start(t testing.TB, s Setup) *box {
	t.Helper()
	b := startRaw(t)
	if _, err := b.Setup(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return b
}

func startRaw(t testing.TB) *box {
	t.Helper()
	needRoot(t)
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}}
	cmd := exec.Command(filepath.Join(bin, "stockade-init"))
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		UidMappings:                ids,
		GidMappings:                ids,
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: 65535, Gid: 65535},
		AmbientCaps:                []uintptr{unix.CAP_KILL, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := NewConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Conn: conn, t: t, pid: cmd.Process.Pid, cmd: cmd}
	t.Cleanup(func() {
		conn.Close()
		cmd.Wait()
	})
	return b
}

// userNamespaces lets so many be made in the session's.
func (b *box) userNamespaces(most string) {
	b.t.Helper()
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(b.pid), "-U", "-S", "0", "-G", "0", "sh", "-c", "echo "+most+" >"+maxUserNamespaces)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

func (b *box) closeUserNamespaces() { b.userNamespaces("0") }
func (b *box) openUserNamespaces()  { b.userNamespaces("10") }

// command is argv with the environment of most tests.
func command(argv ...string) Command {
	return Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "LANG=C"}, Cwd: "/"}
}

func shell(script string) Command { return command("/bin/sh", "-c", script) }

func null(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// spawn starts a command without streams.
func (b *box) spawn(cmd Command) *Process {
	b.t.Helper()
	n := null(b.t)
	p, err := b.Spawn(b.t.Context(), cmd, Streams{Stdin: n, Stdout: n, Stderr: n})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// output runs a command to its end, and returns what it wrote to both streams.
func (b *box) output(cmd Command) (string, Exit) {
	b.t.Helper()
	out, err := b.run(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	return out.text, out.Exit
}

type outcome struct {
	Exit
	text string
}

func (b *box) run(cmd Command) (outcome, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	defer r.Close()
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		w.Close()
		return outcome{}, err
	}
	defer stdin.Close()
	p, err := b.Spawn(context.Background(), cmd, Streams{Stdin: stdin, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		return outcome{}, err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return outcome{}, err
	}
	e, ok := <-p.Exited
	if !ok {
		return outcome{}, ErrGone
	}
	return outcome{e, string(text)}, nil
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// This program is the workers of these tests, too, and what a pool may meet instead of one: a role by its name.
var roles = map[string]func() error{
	"":          Main,
	"every":     func() error { return serve(everyBuiltin) },
	"script":    func() error { return serve(scripted) },
	"ends":      func() error { return errors.New("no worker") },
	"unwilling": func() error { return pretend(kindRefused, nil) },
	"bare":      func() error { return pretend(kindConfined, nil) },
	"liar":      func() error { return serve(lying) },
	"stranger":  func() error { return serve(func(fs.FS) (evaluator, error) { return script{"sha256:another"}, nil }) },
	"daemon":    daemon,
	"acts":      acts,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		role := ""
		if len(os.Args) > 2 {
			role = os.Args[2]
		}
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// as has a pool of a role.
func as(role string, more ...string) []string {
	return append([]string{"/proc/self/exe", Argument, role}, more...)
}

// everyBuiltin is an engine without our list of builtins: what OPA's own can do to it.
func everyBuiltin(fsys fs.FS) (evaluator, error) {
	data, err := rego.ReadData(fsys)
	if err != nil {
		return nil, err
	}
	options := []func(*opa.Rego){opa.Query(rego.Open)}
	files, err := fs.Glob(fsys, "*.rego")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		options = append(options, opa.Module(name, string(text)))
	}
	query, err := opa.New(options...).PrepareForEval(context.Background())
	return every{data.Digest, query}, err
}

type every struct {
	digest string
	query  opa.PreparedEvalQuery
}

func (e every) Digest() string          { return e.digest }
func (e every) Defines(ref string) bool { return ref == rego.Open }

func (e every) Evaluate(_ string, canonical []byte, _ int64) rego.Answer {
	in, err := ast.ValueFromReader(strings.NewReader(string(canonical)))
	if err != nil {
		return rego.Failed(api.CodePolicyInput, "%v", err)
	}
	rs, err := e.query.Eval(context.Background(), opa.EvalParsedInput(in))
	if err != nil || len(rs) != 1 {
		return rego.Failed(api.CodePolicyError, "%v %v", rs, err)
	}
	return result(rs[0].Expressions[0].Value)
}

func result(v any) rego.Answer {
	text, err := json.Marshal(v)
	if err != nil {
		return rego.Failed(api.CodePolicyResult, "%v", err)
	}
	return rego.Answer{Result: text}
}

// script does what a request names as its profile, and denies with what it says.
type script struct{ digest string }

func scripted(fsys fs.FS) (evaluator, error) {
	data, err := rego.ReadData(fsys)
	return script{data.Digest}, err
}

func (s script) Digest() string      { return s.digest }
func (s script) Defines(string) bool { return true }

func (s script) Evaluate(_ string, canonical []byte, _ int64) rego.Answer {
	var in rego.Input
	if err := json.Unmarshal(canonical, &in); err != nil {
		return rego.Failed(api.CodePolicyInput, "%v", err)
	}
	what, argument, _ := strings.Cut(in.Request.Open.Profile, " ")
	return said(deeds[what](argument))
}

func said(what string) rego.Answer {
	return result(map[string]any{"allow": false, "deny": []map[string]string{{"code": what}}})
}

var hoard [][]byte

// deeds are what scripts do.
var deeds = map[string]func(argument string) string{
	"say":   func(s string) string { return s },
	"panic": func(s string) string { panic(s) },
	"exit":  func(string) string { os.Exit(0); return "" },
	"sleep": func(string) string { time.Sleep(time.Hour); return "" },
	"spin": func(string) string {
		for n := 0; ; n++ {
			if n < 0 {
				return ""
			}
		}
	},
	"recurse": func(s string) string { return recurse(1) + s },
	"hoard": func(s string) string {
		var mib int
		fmt.Sscan(s, &mib)
		for range mib {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			hoard = append(hoard, b)
		}
		hoard = nil
		return "hoarded"
	},
	"zone": func(s string) string {
		l, err := time.LoadLocation(s)
		if err != nil {
			return err.Error()
		}
		return time.Unix(0, 0).In(l).Format("15:04")
	},
	"try": try,
}

func recurse(n int) string {
	if n == 0 {
		return "never"
	}
	return recurse(n+1) + "."
}

// attempts are ways to do harm from inside, with what the kernel answers where there is no worker around it.
var attempts = map[string]func() error{
	"socket":        func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
	"unix socket":   func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"socketpair":    func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"execve":        func() error { return unix.Exec("/none", []string{"none"}, nil) },
	"fork":          func() error { return fork(0) },
	"user space":    func() error { return fork(unix.CLONE_NEWUSER) },
	"unshare":       func() error { return unix.Unshare(unix.CLONE_FS) },
	"kill":          func() error { return unix.Kill(1<<22-1, 0) },
	"kill a thread": func() error { return unix.Tgkill(1<<22-1, 1<<22-1, 0) },
	"ptrace":        func() error { return unix.PtraceAttach(1<<22 - 1) },
	"memory of others": func() error {
		_, err := unix.ProcessVMReadv(1<<22-1, nil, nil, 0)
		return err
	},
	"pidfd": func() error { _, err := unix.PidfdOpen(unix.Getpid(), 0); return err },
	"memfd": func() error { _, err := unix.MemfdCreate("x", 0); return err },
	"code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
	"shared memory": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON)
		return err
	},
	"growing memory": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_GROWSDOWN)
		return err
	},
	"code from data": func() error {
		b, _ := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
		return unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
	},
	"chroot":            func() error { return unix.Chroot("/none") },
	"mount":             func() error { return unix.Mount("none", "/none", "tmpfs", 0, "") },
	"bpf":               func() error { _, _, e := unix.Syscall(unix.SYS_BPF, 999, 0, 0); return e },
	"io_uring":          func() error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return e },
	"a descriptor":      func() error { _, err := unix.Dup(0); return err },
	"a message":         func() error { return unix.Sendmsg(0, []byte{0}, unix.UnixRights(0), nil, 0) },
	"another's numbers": func() error { _, _, e := unix.Syscall(0x4000_0000|unix.SYS_GETPID, 0, 0, 0); return e },
}

// fork makes a process that ends at once.
func fork(flags uintptr) error {
	pid, _, e := unix.RawSyscall(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

func try(what string) string { return fmt.Sprint(attempts[what]()) }

// acts is every attempt where nothing holds it: it prints how each ended.
func acts() error {
	for what := range attempts {
		fmt.Printf("%s: %s\n", what, try(what))
	}
	return nil
}

// pretend answers the first order without having carried it out.
func pretend(kind byte, body []byte) error {
	var c conn
	if _, err := c.expect(kindConfine); err != nil {
		return err
	}
	if err := c.say(kind, body); err != nil {
		return err
	}
	_, err := c.expect(kindLoad)
	return err
}

// lying is a worker that has been taken over: it says, as raw bytes, what a request names as its profile.
func lying(fsys fs.FS) (evaluator, error) {
	data, err := rego.ReadData(fsys)
	return liar{data.Digest}, err
}

type liar struct{ digest string }

func (l liar) Digest() string      { return l.digest }
func (l liar) Defines(string) bool { return true }

func (l liar) Evaluate(_ string, canonical []byte, _ int64) rego.Answer {
	var in rego.Input
	if err := json.Unmarshal(canonical, &in); err != nil {
		return rego.Failed(api.CodePolicyInput, "%v", err)
	}
	if honest, ok := strings.CutPrefix(in.Request.Open.Profile, "say "); ok {
		return said(honest)
	}
	var c conn
	c.write([]byte(lies[in.Request.Open.Profile]()))
	select {}
}

// daemon is a process that has a pool, and is killed.
func daemon() error {
	p, err := Load(tree(""), Options{Program: as(os.Args[3])})
	if err != nil {
		return err
	}
	for !atEase(p) {
		time.Sleep(time.Millisecond)
	}
	for _, deed := range os.Args[4:] {
		in := input(0)
		in.Request.Open.Profile = deed
		go p.Decide(context.Background(), rego.Open, in)
	}
	for s := p.State(); s.Ready == 0 || len(s.PIDs)-s.Ready < len(os.Args[4:]); s = p.State() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(p.State().PIDs)
	select {}
}

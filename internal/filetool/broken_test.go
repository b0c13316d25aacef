package filetool

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// brokenTools are tools at work, each on what the one before it has left.
var brokenTools = map[string]func(b *box) file.Outcome{
	"write": func(b *box) file.Outcome {
		return b.writeFile(file.Write{Target: at("f"), Content: text(longText("new"))}).Outcome
	},
	"expected": func(b *box) file.Outcome {
		return b.writeFile(file.Write{Target: at("g"), Content: text(longText("new")), ExpectedSHA256: hash(longText("old"))}).Outcome
	},
	"create": func(b *box) file.Outcome {
		return b.writeFile(file.Write{Target: at("p/q"), Content: text(longText("new")), CreateParents: true, Mode: "create_new"}).Outcome
	},
	"blob": func(b *box) file.Outcome {
		b.blobs["sha256:"+hash(longText("blob"))] = []byte(longText("blob"))
		return b.writeFile(file.Write{Target: at("f"), Content: file.Content{BlobRef: &file.BlobRef{BlobRef: "sha256:" + hash(longText("blob"))}}}).Outcome
	},
	"edit": func(b *box) file.Outcome {
		return b.editFile(file.Edit{Target: at("e"), OldString: "old\n", NewString: "newer\n", ReplaceAll: true}).Outcome
	},
	"patch": func(b *box) file.Outcome {
		return b.applyPatch("*** Begin Patch\n*** Update File: h\n@@\n-first\n+second\n*** Add File: x/y\n+fresh\n*** Delete File: d/f\n*** Update File: m\n*** Move to: z/m\n@@\n-first\n+second\n*** End Patch\n").Outcome
	},
	"move": func(b *box) file.Outcome {
		return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("t"), To: "t2"}}).Change.Outcome
	},
	"remove": func(b *box) file.Outcome {
		return b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("r"), Recursive: true}}).Change.Outcome
	},
	"mkdir": func(b *box) file.Outcome {
		return b.do(file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at("made")}}).Change.Outcome
	},
	"read":  func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("u")}).Outcome },
	"lines": func(b *box) file.Outcome { return b.readFile(file.Read{Target: at("u"), StartLine: 2}).Outcome },
	"grep":  func(b *box) file.Outcome { return b.grepFor(file.Grep{Pattern: "old"}).Outcome },
	"grep of one": func(b *box) file.Outcome {
		return b.grepFor(file.Grep{Target: at("u"), Pattern: "old"}).Outcome
	},
	"glob": func(b *box) file.Outcome { return b.globFor(file.Glob{Pattern: "*"}).Outcome },
	"list": func(b *box) file.Outcome { return b.do(file.Request{Op: file.OpList, List: &file.List{}}).List.Outcome },
	"stat": func(b *box) file.Outcome {
		return b.do(file.Request{Op: file.OpStat, Stat: &file.Stat{Target: at("u")}}).Stat.Outcome
	},
	"exists": func(b *box) file.Outcome {
		return b.do(file.Request{Op: file.OpExists, Stat: &file.Stat{Target: at("u")}}).Stat.Outcome
	},
}

func longText(line string) string { return strings.Repeat(line+"\n", 40) }

// broken are system calls that fail, and what tools say then.
var broken = []struct {
	name  string
	calls []uintptr
	errno unix.Errno
	arg   int    // the argument that decides, if least or mask says something
	least uint32 // it is so large
	mask  uint32 // it has one of these bits
	says  map[string]string
	done  bool // it does what was asked all the same
}{
	{name: "a write: ENOSPC", calls: []uintptr{unix.SYS_WRITE, unix.SYS_PWRITE64}, errno: unix.ENOSPC, arg: 2, least: 64, says: all("error no_space", "write", "expected", "create", "blob", "edit", "patch")},
	{name: "a write: EDQUOT", calls: []uintptr{unix.SYS_WRITE, unix.SYS_PWRITE64}, errno: unix.EDQUOT, arg: 2, least: 64, says: all("error no_space", "write", "expected", "create", "blob", "edit", "patch")},
	{name: "a write: EIO", calls: []uintptr{unix.SYS_WRITE, unix.SYS_PWRITE64}, errno: unix.EIO, arg: 2, least: 64, says: with(all("error write_failed", "write", "expected", "create", "blob", "edit"), "patch", "error io_error")},
	{name: "what makes a file: EDQUOT", calls: []uintptr{unix.SYS_OPENAT}, errno: unix.EDQUOT, arg: 2, mask: unix.O_CREAT, says: all("error no_space", "write", "expected", "create", "blob", "edit", "patch")},
	{name: "what makes a directory: EDQUOT", calls: []uintptr{unix.SYS_MKDIRAT}, errno: unix.EDQUOT, says: all("error no_space", "create", "patch", "mkdir")},
	{name: "what makes a content durable: EIO", calls: []uintptr{unix.SYS_FSYNC, unix.SYS_FDATASYNC}, errno: unix.EIO, says: with(all("error write_failed", "write", "expected", "create", "blob", "edit"), "patch", "error io_error")},
	{name: "what makes a content durable: EDQUOT", calls: []uintptr{unix.SYS_FSYNC, unix.SYS_FDATASYNC}, errno: unix.EDQUOT, says: all("error no_space", "write", "expected", "create", "blob", "edit", "patch")},
	{name: "what gives a name: EIO", calls: []uintptr{unix.SYS_RENAMEAT2, unix.SYS_RENAMEAT}, errno: unix.EIO, says: with(all("error write_failed", "write", "expected", "create", "blob", "edit", "patch"), "move", "error io_error")},
	{name: "what gives a name: EXDEV", calls: []uintptr{unix.SYS_RENAMEAT2, unix.SYS_RENAMEAT}, errno: unix.EXDEV, says: all("error cross_device", "move")},
	{name: "what gives an owner: EPERM", calls: []uintptr{unix.SYS_FCHOWN}, errno: unix.EPERM, says: all("error attributes_not_kept", "write", "expected", "edit", "patch")},
	{name: "what gives a mode: EPERM", calls: []uintptr{unix.SYS_FCHMOD}, errno: unix.EPERM, says: all("error attributes_not_kept", "write", "expected", "edit", "patch")},
	{name: "what takes a name away: EIO", calls: []uintptr{unix.SYS_UNLINKAT}, errno: unix.EIO, says: all("error delete_failed", "remove")},
	{name: "a read: EIO", calls: []uintptr{unix.SYS_READ, unix.SYS_PREAD64}, errno: unix.EIO, arg: 2, least: 64, says: with(all("error read_failed", "expected", "edit", "patch", "read", "lines"), "grep of one", "error grep_failed")},
	{name: "a listing: EIO", calls: []uintptr{unix.SYS_GETDENTS64}, errno: unix.EIO, says: map[string]string{"grep": "error grep_failed", "glob": "error glob_failed", "list": "error list_failed", "remove": "error delete_failed"}},
	{name: "a lookup: EIO", calls: []uintptr{unix.SYS_OPENAT}, errno: unix.EIO, arg: 2, mask: unix.O_PATH, says: with(with(all("error io_error", "write", "edit", "patch", "read", "grep", "glob", "list", "mkdir", "move", "remove"), "stat", "error stat_failed"), "exists", "error stat_failed")},
	{name: "a lookup: EACCES", calls: []uintptr{unix.SYS_OPENAT}, errno: unix.EACCES, arg: 2, mask: unix.O_PATH, says: with(all("forbidden forbidden", "write", "edit", "read", "grep", "glob", "list", "stat", "exists", "mkdir", "move", "remove"), "patch", "forbidden path_forbidden")},
	// As on a file system that can do no more than rename.
	{name: "an exchange: EINVAL", calls: []uintptr{unix.SYS_RENAMEAT2}, errno: unix.EINVAL, says: all("ok ", "write", "expected", "create", "edit", "patch"), done: true},
}

func all(says string, tools ...string) map[string]string {
	m := map[string]string{}
	for _, tool := range tools {
		m[tool] = says
	}
	return m
}

func with(m map[string]string, tool, says string) map[string]string {
	m[tool] = says
	return m
}

// R204, T134 and contract table 3.3: system calls that really fail, on their way to the disk and back. Each tool says so by its code, and what it was to
// change is as it was; where only more than a plain rename fails, everything takes place.
func TestSystemCallsFail(t *testing.T) {
	before := map[string]string{
		"f": longText("old"), "g": longText("old"), "e": longText("old"), "h": "first\n" + longText("old"), "d/f": "first\n", "m": "first\n", "t": "first\n", "r/s/t": "first\n", "u": longText("old"),
	}
	after := maps.Clone(before)
	maps.Copy(after, map[string]string{"f": longText("new"), "g": longText("new"), "p/q": longText("new"), "e": longText("newer"), "h": "second\n" + longText("old"), "x/y": "fresh\n", "z/m": "second\n"})
	delete(after, "m")
	delete(after, "d/f")
	for i, row := range broken {
		t.Run(row.name, func(t *testing.T) {
			b := newFastBox(t, file.Caps{})
			b.fill(before)
			for _, name := range []string{"f", "g", "e", "h"} {
				if err := os.Chmod(b.at(name), 0o640); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(b.at(name), 1234, 4321); err != nil && os.Getuid() == 0 {
					t.Fatal(err)
				}
			}
			whole := b.state()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "FILETOOL_BROKEN="+strconv.Itoa(i), "FILETOOL_DIR="+b.dir)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v %s", err, out)
			}
			got := map[string]string{}
			for line := range strings.Lines(string(out)) {
				if tool, says, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
					got[tool] = says
				}
			}
			for tool, says := range row.says {
				if strings.HasPrefix(row.name, "what gives an owner") && os.Getuid() != 0 {
					continue
				}
				if got[tool] != says {
					t.Errorf("%s says %q, want %q", tool, got[tool], says)
				}
				_, code, _ := strings.Cut(got[tool], " ")
				seen(file.Code(code))
			}
			if row.done {
				if d := difference(files(b.state()), after); d != "" {
					t.Errorf("after it\n%s", d)
				}
			} else if d := difference(b.state(), whole); d != "" {
				t.Errorf("it has changed\n%s", d)
			}
		})
	}
}

// breakdown is the process in which system calls fail.
func breakdown(dir string) {
	i, err := strconv.Atoi(os.Getenv("FILETOOL_BROKEN"))
	if err != nil {
		os.Exit(2)
	}
	root, err := os.Open(dir)
	if err != nil {
		os.Exit(2)
	}
	b := &box{dir: dir, blobs: map[string][]byte{}}
	tools, err := Open(Config{Root: root, Workdir: "/work", Load: b.load})
	if err != nil {
		os.Exit(2)
	}
	b.Tools = tools
	if err := install(i); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	for _, tool := range slices.Sorted(maps.Keys(broken[i].says)) {
		o := brokenTools[tool](b)
		fmt.Printf("%s: %s %s\n", tool, o.Status, o.Code)
	}
}

// install has the system calls of a row fail from now on, in all threads.
func install(i int) error {
	row := broken[i]
	var program []unix.SockFilter
	put := func(code uint16, jt, jf uint8, k uint32) {
		program = append(program, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	}
	fails := 0x00050000 | uint32(row.errno) // SECCOMP_RET_ERRNO
	for _, nr := range row.calls {
		put(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0)
		switch {
		case row.least > 0:
			put(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 3, uint32(nr))
			put(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, uint32(16+8*row.arg))
			put(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 1, row.least)
		case row.mask > 0:
			put(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 3, uint32(nr))
			put(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, uint32(16+8*row.arg))
			put(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, row.mask)
		default:
			put(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, uint32(nr))
		}
		put(unix.BPF_RET|unix.BPF_K, 0, 0, fails)
	}
	put(unix.BPF_RET|unix.BPF_K, 0, 0, 0x7fff0000) // SECCOMP_RET_ALLOW
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const setModeFilter, allThreads = 1, 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

package callfilter

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// data is the kernel's struct seccomp_data.
type data struct {
	call, arch uint32
	args       [6]uint64
}

// run is what the kernel makes of a program, of the instructions that ours have.
func run(t *testing.T, p []unix.SockFilter, d data) uint32 {
	b := binary.LittleEndian.AppendUint32(nil, d.call)
	b = binary.LittleEndian.AppendUint32(b, d.arch)
	b = binary.LittleEndian.AppendUint64(b, 0) // instruction pointer
	for _, a := range d.args {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	var acc uint32
	for at := 0; at < len(p); at++ {
		switch i := p[at]; i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(b[i.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if acc == i.K {
				at += int(i.Jt)
			} else {
				at += int(i.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d is %+v", at, i)
		}
	}
	t.Fatal("it does not end")
	return 0
}

// means is what rows say of a call, read as the package comment does.
func means(rows []Row, others Action, d data) uint32 {
next:
	for _, r := range rows {
		if r.Call != d.call {
			continue
		}
		for _, c := range r.Where {
			if uint32(d.args[c.Arg])&c.Mask != c.Value {
				continue next
			}
		}
		return r.Answer.code()
	}
	return others.code()
}

// R261: programs decide as their rows say, whatever those are.
func TestCompile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	actions := []Action{{}, Errno(unix.EPERM), Errno(unix.ENOSYS), Kill}
	seen := map[uint32]int{}
	for range 200 {
		var rows []Row
		for range random.IntN(12) {
			r := Row{Call: random.Uint32N(6), Answer: actions[random.IntN(len(actions))]}
			for range random.IntN(4) {
				mask := random.Uint32N(8)
				r.Where = append(r.Where, Condition{random.IntN(6), mask, random.Uint32N(8) & mask})
			}
			rows = append(rows, r)
		}
		others := actions[1+random.IntN(3)]
		p, err := compile(rows, others)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			d := data{call: random.Uint32N(7), arch: arches[runtime.GOARCH]}
			for i := range d.args {
				d.args[i] = uint64(random.Uint32N(8)) | uint64(random.Uint32())<<32 // the high half is not compared
			}
			want := means(rows, others, d)
			if got := run(t, p, d); got != want {
				t.Fatalf("%+v of %+v, others %+v: %#x, want %#x", d, rows, others, got, want)
			}
			seen[want]++
			d.arch++
			if got := run(t, p, d); got != unix.SECCOMP_RET_KILL_PROCESS {
				t.Fatalf("by another architecture's numbers: %#x", got)
			}
		}
	}
	if len(seen) != len(actions) {
		t.Errorf("only %v", seen)
	}
}

// R261: the kernel takes the program, for all threads.
func TestInstall(t *testing.T) {
	const child = "STOCKADE_TEST_CALLFILTER"
	if os.Getenv(child) != "" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		rows := []Row{
			{Call: unix.SYS_SOCKET, Where: []Condition{{0, ^uint32(0), unix.AF_INET}}},
			{Call: unix.SYS_SOCKET, Answer: Errno(unix.EACCES), Where: []Condition{{0, ^uint32(0), unix.AF_INET6}}},
			{Call: unix.SYS_SOCKET, Answer: Errno(unix.EPERM)},
		}
		if err := Install(rows, Action{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan bool)
		go func() { // another thread
			runtime.LockOSThread()
			defer close(done)
			for family, want := range map[int]error{unix.AF_INET: nil, unix.AF_INET6: unix.EACCES, unix.AF_UNIX: unix.EPERM} {
				fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != want {
					t.Errorf("a socket of family %d: %v, want %v", family, err, want)
				}
				if err == nil {
					unix.Close(fd)
				}
			}
		}()
		<-done
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInstall$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

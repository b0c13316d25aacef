package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
)

// process is the daemon's end of one worker. One goroutine at a time has it.
type process struct {
	os      *os.Process
	fd      int // blocking, but for tick
	number  uint64
	in, out []byte
	ended   chan struct{} // once it has been waited for
	state   *os.ProcessState
}

// tick is how long one system call on a socket waits at most: how exact a deadline is.
const tick = 10 * time.Millisecond

// apart are the namespaces of a worker's own, which root can make.
const apart = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// firstUID is where the uids of workers begin: each has the one that is as far behind it as its pid goes, so no two
// that live have the same. Pids end at 2²², and there begin the ids of sessions.
const firstUID = sandbox.FirstHostID - 1<<22

// spawn starts a worker, which waits for what it is told. The calling thread must live as long as it is to.
func spawn(program []string) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	defer theirs.Close()
	p := &process{fd: fds[0], ended: make(chan struct{})}
	wait := unix.NsecToTimeval(int64(tick))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, option, &wait); err != nil {
			unix.Close(p.fd)
			return nil, fmt.Errorf("socket: %w", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir: "/",
		// The second processor is the garbage collector's. The runtime is not to look for a number in control groups: it would keep their files open.
		Env:   []string{"GOMAXPROCS=2", "GOTRACEBACK=none", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"},
		Files: []*os.File{theirs, null, null},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // a terminal's Ctrl-C is for us
	}
	if isRoot() {
		attr.Sys.Cloneflags = apart
	}
	p.os, err = os.StartProcess(program[0], append([]string{filepath.Base(os.Args[0])}, program[1:]...), attr)
	if err != nil {
		unix.Close(p.fd)
		return nil, fmt.Errorf("start: %w", err)
	}
	return p, nil
}

func isRoot() bool { return os.Geteuid() == 0 }

// wait returns when the process has ended.
func (p *process) wait() {
	p.state, _ = p.os.Wait()
	close(p.ended)
}

// kill ends the process. Its socket stays open until close.
func (p *process) kill() { p.os.Kill() }

func (p *process) close() { unix.Close(p.fd) }

// prepare confines the worker, looks whether that is true, and gives it the revision.
func (p *process) prepare(ctx context.Context, memory int64, tests bool, revision []byte) (r ready, err error) {
	o := order{Apart: isRoot(), Memory: memory, Tests: tests}
	if o.Apart {
		o.UID = firstUID + uint32(p.os.Pid)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	within := bounds{wall: startWithin}
	if _, err := p.exchange(ctx, kindConfine, kindConfined, body, within); err != nil {
		return r, err
	}
	if err := confined(p.os.Pid, o); err != nil {
		return r, fmt.Errorf("confine: %w", err)
	}
	said, err := p.exchange(ctx, kindLoad, kindReady, revision, within)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(said, &r, json.RejectUnknownMembers(true))
}

// confined reads in /proc what the kernel says of a worker, and of every thread of it.
func confined(pid int, o order) error {
	if o.Apart { // root may look at what is undumpable
		if err := alone(pid); err != nil {
			return err
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return errors.New("it is gone")
	}
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapAmb": noCaps}
	if o.Apart {
		ids := strings.Repeat(fmt.Sprint(o.UID)+"\t", 4)
		want["Uid"], want["Gid"], want["Groups"] = strings.TrimSpace(ids), strings.TrimSpace(ids), ""
	}
	for _, name := range threads {
		status, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return err
		}
		for member, value := range want {
			if got := field(status, member); got != value {
				return fmt.Errorf("the kernel says %s %q, not %q", member, got, value)
			}
		}
	}
	return nil
}

// alone looks at the descriptors of a worker, and at its root.
func alone(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range open {
		target, err := os.Readlink(dir + e.Name())
		if err != nil {
			return err
		}
		if target != os.DevNull && !strings.HasPrefix(target, anonymous) && !(e.Name() == "0" && strings.HasPrefix(target, "socket:")) {
			return fmt.Errorf("descriptor %s is %s", e.Name(), target)
		}
	}
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("its root has %s", names[0].Name())
	}
	return nil
}

const noCaps = "0000000000000000"

// field is what stands behind a name in a status file.
func field(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return "(absent)"
}

// bounds are what one exchange may take.
type bounds struct {
	wall time.Duration
	cpu  time.Duration // 0 is none
}

// Why an exchange has no answer.
var (
	errLate    = errors.New("late")
	errUnheard = errors.New("the process had ended before it was asked")
	errEnded   = errors.New("the process has ended")
)

// refusal is what a worker says of a revision.
type refusal string

func (r refusal) Error() string { return string(r) }

// exchange says something that is small enough, and returns what comes back. With any error the process is of no use any more.
func (p *process) exchange(ctx context.Context, kind, want byte, body []byte, within bounds) ([]byte, error) {
	p.out = append(begin(p.out, kind), body...)
	got, said, err := p.roundTrip(ctx, within)
	switch {
	case err != nil:
		return nil, err
	case got == kindRefused:
		return nil, refusal(strings.ToValidUTF8(string(said), "?"))
	case got != want:
		return nil, fmt.Errorf("frame of kind %d: %w", got, errProtocol)
	}
	return said, nil
}

// ask has one question answered.
func (p *process) ask(ctx context.Context, ref string, canonical []byte, nowNS int64, within bounds) (a rego.Answer, err error) {
	p.number++
	q := question{number: p.number, nowNS: nowNS, ref: ref, canonical: canonical}
	p.out = q.append(begin(p.out, kindAsk))
	kind, body, err := p.roundTrip(ctx, within)
	if err != nil {
		return a, err
	}
	if kind != kindAnswer {
		return a, fmt.Errorf("frame of kind %d: %w", kind, errProtocol)
	}
	return parseAnswer(body, q.number)
}

// roundTrip writes the frame in p.out and reads one, whose body is valid until the next.
func (p *process) roundTrip(ctx context.Context, within bounds) (kind byte, body []byte, err error) {
	w := watch{pid: p.os.Pid, begin: time.Now(), bounds: within}
	for rest := end(p.out); len(rest) > 0; {
		n, err := unix.Write(p.fd, rest)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			if err := w.look(ctx); err != nil {
				return 0, nil, err
			}
		case err != nil && len(rest) == len(p.out):
			return 0, nil, errUnheard
		case err != nil:
			return 0, nil, errEnded
		}
		rest = rest[max(n, 0):]
	}
	if cap(p.in) == 0 {
		p.in = make([]byte, 0, 64<<10)
	}
	p.in = p.in[:0]
	for {
		if len(p.in) >= headerSize {
			size := headerSize + int(binary.LittleEndian.Uint32(p.in))
			if size > headerSize+maxReply || len(p.in) > size {
				return 0, nil, fmt.Errorf("%d bytes in a frame of %d: %w", len(p.in), size, errProtocol)
			}
			if len(p.in) == size {
				return p.in[4], p.in[headerSize:], nil
			}
			p.in = slices.Grow(p.in, size-len(p.in))
		}
		n, err := unix.Read(p.fd, p.in[len(p.in):cap(p.in)])
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			if err := w.look(ctx); err != nil {
				return 0, nil, err
			}
		case err != nil || n == 0:
			return 0, nil, errEnded
		default:
			p.in = p.in[:len(p.in)+n]
		}
	}
}

// watch bounds one exchange.
type watch struct {
	bounds
	pid   int
	begin time.Time
	spent time.Duration // by the process, when it was first looked at
	known bool
}

// look says whether it is time to give up. It is called when nothing has happened for a tick: what is answered at once is not looked at.
func (w *watch) look(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if took := time.Since(w.begin); took >= w.wall {
		return fmt.Errorf("%w: no answer within %v", errLate, w.wall)
	}
	if w.cpu == 0 {
		return nil
	}
	spent, err := processorTime(w.pid)
	if err != nil {
		return nil // it has ended: reading says so
	}
	if !w.known {
		w.known, w.spent = true, spent
	}
	if spent-w.spent >= w.cpu {
		return fmt.Errorf("%w: no answer within %v of processor time", errLate, w.cpu)
	}
	return nil
}

// processorTime is what all threads of a process have used (clock_getcpuclockid(3)).
func processorTime(pid int) (time.Duration, error) {
	const sched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

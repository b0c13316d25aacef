package guest

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"
)

// Runner and init talk over a SOCK_SEQPACKET socket pair; init's end is descriptor 3.
// Every message carries the call that it belongs to.
//
//	runner                                         init
//	  │  setup {identity, filter, …}                │  once, first
//	  ├────────────────────────────────────────────▶│
//	  │◀───────────────────────── ready │ failed ─┤
//	  │    + [listener of the filter's notifications]
//	  │                                             │
//	  │  spawn n {argv, env, cwd}                   │  any number at a time
//	  │    + stdin, stdout, stderr, [cgroup leaf], [socket of an executor]
//	  ├────────────────────────────────────────────▶│  clone, execve
//	  │◀──────────────────── started n {pid} │ failed n
//	  │  signal m {n, signo}                        │
//	  ├────────────────────────────────────────────▶│
//	  │◀──────────────────────── done m │ failed m ─┤
//	  │  terminal t                                 │  opened in the session's own devpts
//	  ├────────────────────────────────────────────▶│
//	  │◀─────────────────────── opened t │ failed t ─┤
//	  │    + master, slave                          │
//	  │  foreground f {signo} + master              │  whoever that terminal listens to
//	  ├────────────────────────────────────────────▶│
//	  │◀───────────────────────── done f │ failed f ─┤
//	  │  connect c {port}                           │  on the session's loopback
//	  ├────────────────────────────────────────────▶│
//	  │◀─────────────────────── opened c │ failed c ─┤
//	  │    + socket                                 │
//	  │  allow a + tree, end of a pipe              │  what Landlock lets be written to, from here on
//	  ├────────────────────────────────────────────▶│
//	  │◀─────── started a {tid} │ done a │ failed a ─┤  by another thread; or by nobody, without Landlock
//	  │  end of the pipe                            │  that thread is where the one before was, and serves
//	  │◀──────────────── exited n {status, rusage} ─┤  once for each started, after it
//	  │                                             │
//	  ╳  end of file                                │  init exits; the kernel kills the pid namespace
//
// A message is one byte of kind, the call (u64), and the members in the order in
// which encode and decode name them. Integers are little-endian; strings and lists
// carry a u32 length.
const (
	kindSetup      = 1 + iota // runner to init
	kindSpawn                 //
	kindSignal                //
	kindAllow                 //
	kindTerminal              //
	kindForeground            //
	kindConnect               //
	kindDone                  // init to runner
	kindReady                 //
	kindOpened                //
	kindFailed                //
	kindStarted               //
	kindExited                //
)

// Version is the first member of setup: runner and init are built together, and
// a stray mixture of the two must not run. A runner that is replaced under live sessions
// speaks with the inits of the one before, so it changes with every change of a message.
const Version = 7

// What bounds a decoded list: execve's own limits are lower.
const (
	maxStrings  = 1 << 18
	maxGroups   = 1 << 16 // NGROUPS_MAX
	maxRlimits  = 16      // RLIM_NLIMITS
	maxAccesses = 1 << 12
)

// Setup is what init becomes, once, before anything runs. All of it is inherited by executions.
type Setup struct {
	UID, GID     uint32 // of executions, inside ids
	Groups       []uint32
	Capabilities uint64 // granted to executions, bit per capability
	Umask        uint32
	OOMScoreAdj  int32    // of executions; init keeps its own
	Rlimits      []Rlimit // lowered, never raised; RLIMIT_NPROC no further than init's own threads need, 16
	Filter       []byte   // seccomp program, an array of struct sock_filter; empty only where a test needs none
	Report       bool     // what the filter refuses with a notification is told to Ready.Listener
	Landlock     []Access // all that executions may do with files; empty is no Landlock
	LandlockABI  uint32   // no newer one is used; 0 is what the kernel has
	Proof        string   // with Landlock: a directory in which the mounts let init make a file, and Landlock must not
	Workdir      string   // must be a directory that the identity can enter
}

// Ready is what has become of a Setup.
type Ready struct {
	Landlock int      // ABI whose rights are handled; 0 is no Landlock
	Listener *os.File // of the filter's notifications, the receiver's to close; nil without Setup.Report
}

// Rlimit is one resource limit.
type Rlimit struct {
	Resource int32
	Cur, Max uint64
}

// Command is one execution.
type Command struct {
	Argv []string // Argv[0] without a slash is looked up in PATH of Env, under the session's identity
	Env  []string // complete
	Cwd  string   // absolute inside path

	Rlimits []Rlimit // lowered for this command, never raised; it costs an executor, as Parked does
	Parked  bool     // cloned, and not executed before Process.Release
	Canary  []string // instead of Argv and the rest: what to try, by the names of Canaries
	Files   bool     // instead of them: init's own program, as a worker that serves file tools on its stdin

	Terminal bool   // its streams are one, which becomes that of the session that it leads; it costs an executor, too
	Script   string // of a terminal: what can be read from descriptor ScriptFD, once; "" is no descriptor
}

// Exit is what wait4 said of a command.
type Exit struct {
	Status syscall.WaitStatus
	CPU    time.Duration // user and system, of the command and the descendants that it waited for
	MaxRSS int64         // bytes; the largest of the same
}

// Stage says which step refused.
type Stage uint8

// The stages of an Error.
const (
	StageSetup    Stage = 1 + iota // init could not become what it has to be
	StageWorkdir                   // the directory is missing, is none, or cannot be entered
	StageProgram                   // argv[0] cannot be found or executed
	StageClone                     // no process could be made (EAGAIN: out of pids)
	StageSignal                    // ESRCH: the command has been reaped
	StageRequest                   // init could not understand the request
	StageTerminal                  // there is no terminal to be had, or it could not become the command's
	StageConnect                   // a port of the loopback cannot be reached (ECONNREFUSED: nobody listens)
)

var stages = [...]string{
	StageSetup:   "setup",
	StageWorkdir: "workdir",
	StageProgram: "program",
	StageClone:   "clone",
	StageSignal:  "signal",
	StageRequest: "request",

	StageTerminal: "terminal",
	StageConnect:  "connect",
}

func (s Stage) String() string {
	if int(s) < len(stages) && stages[s] != "" {
		return stages[s]
	}
	return "unknown"
}

// Error is a refusal by init or by the kernel inside.
type Error struct {
	Stage Stage
	Op    string // what was tried: "chdir /x", "execve /bin/y"
	Errno syscall.Errno
}

func (e *Error) Error() string { return e.Stage.String() + ": " + e.Op + ": " + e.Errno.Error() }

// Unwrap lets errors.Is compare the errno.
func (e *Error) Unwrap() error { return e.Errno }

// The frames.
type (
	spawnFrame struct {
		Command
		cgroup   bool // a descriptor more, the leaf, follows the three streams
		executor bool // and another, its socket; it will be told the command by that
		files    bool // it is no command, see Command.Files; the last descriptor is what is executed
	}
	commandFrame struct{ Command } // with everything
	signalFrame  struct {
		target uint64 // call of the spawn; 0 is every process of the session
		signal int32
	}
	startedFrame    struct{ pid int32 }
	foregroundFrame struct{ signal int32 }
	connectFrame    struct{ port uint32 }
	readyFrame      struct{ landlock uint32 }
)

func (s *Setup) encode(b []byte) []byte {
	b = putU32(b, Version)
	b = putU32(b, s.UID)
	b = putU32(b, s.GID)
	b = putU32(b, uint32(len(s.Groups)))
	for _, g := range s.Groups {
		b = putU32(b, g)
	}
	b = putU64(b, s.Capabilities)
	b = putU32(b, s.Umask)
	b = putU32(b, uint32(s.OOMScoreAdj))
	b = putRlimits(b, s.Rlimits)
	b = putString(b, string(s.Filter))
	b = putBool(b, s.Report)
	b = putU32(b, uint32(len(s.Landlock)))
	for _, a := range s.Landlock {
		b = putString(b, a.Path)
		b = putBool(b, a.Write)
		b = putBool(b, a.Device)
	}
	b = putU32(b, s.LandlockABI)
	b = putString(b, s.Proof)
	return putString(b, s.Workdir)
}

func (s *Setup) decode(d *decoder) {
	if d.u32() != Version {
		d.fail()
	}
	s.UID = d.u32()
	s.GID = d.u32()
	for range d.count(maxGroups, 4) {
		s.Groups = append(s.Groups, d.u32())
	}
	s.Capabilities = d.u64()
	s.Umask = d.u32()
	s.OOMScoreAdj = int32(d.u32())
	s.Rlimits = d.rlimits()
	s.Filter = []byte(d.string())
	s.Report = d.bool()
	for range d.count(maxAccesses, 6) {
		s.Landlock = append(s.Landlock, Access{d.string(), d.bool(), d.bool()})
	}
	s.LandlockABI = d.u32()
	s.Proof = d.string()
	s.Workdir = d.string()
}

func (f *spawnFrame) encode(b []byte) []byte {
	b = putStrings(b, f.Argv)
	b = putStrings(b, f.Env)
	b = putString(b, f.Cwd)
	b = putBool(b, f.cgroup)
	b = putBool(b, f.executor)
	return putBool(b, f.files)
}

func (f *spawnFrame) decode(d *decoder) {
	f.Argv = d.strings()
	f.Env = d.strings()
	f.Cwd = d.string()
	f.cgroup = d.bool()
	f.executor = d.bool()
	f.files = d.bool()
}

func (f *commandFrame) encode(b []byte) []byte {
	b = putStrings(b, f.Argv)
	b = putStrings(b, f.Env)
	b = putString(b, f.Cwd)
	b = putRlimits(b, f.Rlimits)
	b = putStrings(b, f.Canary)
	b = putBool(b, f.Terminal)
	return putString(b, f.Script)
}

func (f *commandFrame) decode(d *decoder) {
	f.Argv = d.strings()
	f.Env = d.strings()
	f.Cwd = d.string()
	f.Rlimits = d.rlimits()
	f.Canary = d.strings()
	f.Terminal = d.bool()
	f.Script = d.string()
}

func (f *signalFrame) encode(b []byte) []byte {
	return putU32(putU64(b, f.target), uint32(f.signal))
}

func (f *signalFrame) decode(d *decoder) {
	f.target = d.u64()
	f.signal = int32(d.u32())
}

func (f *foregroundFrame) encode(b []byte) []byte { return putU32(b, uint32(f.signal)) }
func (f *foregroundFrame) decode(d *decoder)      { f.signal = int32(d.u32()) }

func (f *connectFrame) encode(b []byte) []byte { return putU32(b, f.port) }
func (f *connectFrame) decode(d *decoder)      { f.port = d.u32() }

func (f *startedFrame) encode(b []byte) []byte { return putU32(b, uint32(f.pid)) }
func (f *startedFrame) decode(d *decoder)      { f.pid = int32(d.u32()) }

func (f *readyFrame) encode(b []byte) []byte { return putU32(b, f.landlock) }
func (f *readyFrame) decode(d *decoder)      { f.landlock = d.u32() }

func (e *Exit) encode(b []byte) []byte {
	b = putU32(b, uint32(e.Status))
	b = putU64(b, uint64(e.CPU))
	return putU64(b, uint64(e.MaxRSS))
}

func (e *Exit) decode(d *decoder) {
	e.Status = syscall.WaitStatus(d.u32())
	e.CPU = time.Duration(d.u64())
	e.MaxRSS = int64(d.u64())
}

func (e *Error) encode(b []byte) []byte {
	b = append(b, byte(e.Stage))
	b = putU32(b, uint32(e.Errno))
	return putString(b, e.Op)
}

func (e *Error) decode(d *decoder) {
	e.Stage = Stage(d.u8())
	e.Errno = syscall.Errno(d.u32())
	e.Op = d.string()
}

// member is the part of a message after its head.
type member interface {
	encode([]byte) []byte
	decode(*decoder)
}

// encode returns a message; a nil member is an empty one.
func encode(kind byte, call uint64, m member) []byte {
	b := putU64(append(make([]byte, 0, 512), kind), call)
	if m != nil {
		b = m.encode(b)
	}
	return b
}

// head splits a message into its kind, its call, and the rest.
func head(b []byte) (kind byte, call uint64, rest *decoder) {
	d := &decoder{b: b}
	return d.u8(), d.u64(), d
}

var errMalformed = errors.New("guest: malformed message")

// decode reads m from the rest of a message, all of it.
func decode(d *decoder, m member) error {
	if m != nil {
		m.decode(d)
	}
	if d.bad || len(d.b) > 0 {
		return errMalformed
	}
	return nil
}

func putU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func putU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func putBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func putString(b []byte, s string) []byte {
	return append(putU32(b, uint32(len(s))), s...)
}

func putStrings(b []byte, ss []string) []byte {
	b = putU32(b, uint32(len(ss)))
	for _, s := range ss {
		b = putString(b, s)
	}
	return b
}

func putRlimits(b []byte, limits []Rlimit) []byte {
	b = putU32(b, uint32(len(limits)))
	for _, l := range limits {
		b = putU32(b, uint32(l.Resource))
		b = putU64(b, l.Cur)
		b = putU64(b, l.Max)
	}
	return b
}

// decoder takes a message apart. After the first failure every value is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail()
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// bool accepts the two values that encode makes, so that a message has one form.
func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail()
	}
	return v == 1
}

// count reads the length of a list whose elements take at least size bytes each, so
// that no length can make room for more than the message holds.
func (d *decoder) count(most, size int) int {
	n := d.u32()
	if n > uint32(most) || int(n) > len(d.b)/size {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)) {
		d.fail()
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) strings() []string {
	n := d.count(maxStrings, 4)
	if n == 0 {
		return nil
	}
	ss := make([]string, 0, n)
	for range n {
		ss = append(ss, d.string())
	}
	return ss
}

func (d *decoder) rlimits() (limits []Rlimit) {
	for range d.count(maxRlimits, 20) {
		limits = append(limits, Rlimit{int32(d.u32()), d.u64(), d.u64()})
	}
	return limits
}

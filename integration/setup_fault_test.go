package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// setupCalls are the kinds of system calls that the building of a session consists of, and the error that each may really
// have. Left out is what builds nothing or is never refused: calls of the Go runtime for its own sake (memory, signals, what a thread
// waits for), questions without an error (getpid, umask, clock_gettime), what ends or removes something (close, kill, wait4, exit, unlinkat), what reads a
// directory or a file that is open (those of /proc and of groups are refused where they are opened), and what goes through sockets and
// pipes that are there already (read, recvmsg, sendmsg): they fail when the other end is gone, which is the matter of the tests of
// crashes.
var setupCalls = map[string]string{
	"access": "EACCES", "bind": "EADDRINUSE", "bpf": "EPERM", "capget": "EPERM", "capset": "EPERM", "chdir": "EACCES", "clone": "EAGAIN", "clone3": "EAGAIN", "close_range": "EINVAL", "connect": "ENOENT",
	"dup3": "EBUSY", "epoll_create1": "EMFILE", "eventfd2": "EMFILE", "execve": "EACCES", "faccessat": "EACCES", "faccessat2": "EACCES", "fchdir": "EACCES", "fchmodat": "EPERM", "fchown": "EPERM",
	"fchownat": "EPERM", "fcntl": "EMFILE", "fsconfig": "EPERM", "fsmount": "EPERM", "fsopen": "EPERM", "fstat": "EIO", "fstatfs": "EIO", "getcwd": "ENOENT", "getrlimit": "EPERM",
	"getsockname": "ENOBUFS", "ioctl": "ENOTTY", "keyctl": "EDQUOT", "landlock_add_rule": "EINVAL", "landlock_create_ruleset": "EOPNOTSUPP", "landlock_restrict_self": "E2BIG", "listen": "EADDRINUSE", "lseek": "ESPIPE",
	"memfd_create": "EMFILE", "mkdirat": "ENOSPC", "mknodat": "ENOSPC", "mount": "EPERM", "mount_setattr": "EPERM", "move_mount": "EPERM", "newfstatat": "EIO", "open_tree": "EMFILE", "openat": "EMFILE",
	"openat2": "EMFILE", "pidfd_open": "EMFILE", "pipe2": "EMFILE", "pivot_root": "EPERM", "prctl": "EPERM", "pread64": "EIO", "prlimit64": "EPERM", "readlinkat": "EIO", "recvfrom": "ENOBUFS", "renameat": "ENOSPC",
	"seccomp": "EINVAL", "sendto": "ENOBUFS", "setfsgid": "EPERM", "setfsuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM", "sethostname": "EPERM", "setns": "EPERM", "setresgid": "EPERM", "setresuid": "EPERM",
	"setrlimit": "EPERM", "setsid": "EPERM", "setsockopt": "ENOBUFS", "setuid": "EPERM", "socket": "EMFILE", "socketpair": "EMFILE", "statfs": "EIO", "statx": "EIO", "symlinkat": "ENOSPC", "umount2": "EBUSY",
	"unshare": "ENOSPC", "write": "EIO",
}

// An excuse is for a call that may be refused to an open that works all the same.
type excuse struct {
	call   string // as strace writes it, a regular expression
	k      int    // which call of the kind it is to its thread; 0 is any
	reason string
}

func (e excuse) is(call string, k int) bool {
	return regexp.MustCompile(`^\d+ +`+e.call).MatchString(call) && (e.k == 0 || e.k == k)
}

// madeUpFor are all of them. Whatever else is refused must make the open fail.
var madeUpFor = []excuse{
	{`access\("/etc/ld\.so\.preload"`, 0, "the dynamic linker asks whether there is one"},
	{`bpf\(BPF_PROG_LOAD, .*log_buf=NULL`, 0, "cilium/ebpf loads a program once more then, to be told why"},
	{`capset\(.*inheritable=0\}`, 5, "init tries whether it can take back what it gave up, and is content with nothing else"},
	{`chdir\("/"\)`, 2, "libcontainer tries before it becomes the user, and once more as the user"},
	{`clone\(.*CLONE_THREAD`, 0, "the Go runtime tries twenty times to make a thread"},
	{`clone3\(.*CLONE_THREAD`, 0, "likewise, by means of the C library"},
	{`close_range\(.*CLOSE_RANGE_CLOEXEC`, 0, "libcontainer then takes descriptor by descriptor; init closes all but its socket, without that flag"},
	{`(faccessat|newfstatat)\(.*"/proc/thread-self/"`, 0, "it is found below task then"},
	{`faccessat2\(.*"uptime"`, 0, "whether a proc is one of processes only: it may be kept open then"},
	{`mkdirat\(.*"/sys/fs/cgroup/s\d+"`, 0, "libcontainer tries to make a group where it can make none; see showGroups of sandbox/runc"},
	{`fcntl\(\d+<.*, F_GETFL\)`, 0, "the Go runtime takes the file for one that blocks, and has a thread wait for it; who needs it otherwise fails"},
	{`fcntl\(\d+<(/|(pipe|cgroup|ipc|mnt|net|pid|user|uts):).*, F_SETFL, `, 0, "likewise, or it leaves a file or a namespace as it is, where the flag says nothing; O_PATH has no such flag"},
	{`fcntl\(0<[^>]*>, F_DUPFD_CLOEXEC, 0\)`, 0, "libcontainer tries the close_range above with it, and does without"},
	{`fcntl\(\d+</memfd:exe>.*, F_GET_SEALS\)`, 0, "libcontainer makes a sealed copy of the runner's program then, as of one that is none"},
	{`mount\("/proc/thread-self/fd/\d+", "/proc/thread-self/fd/\d+", 0x\w+, MS_BIND, NULL`, 0, "libcontainer masks that directory with a tmpfs of its own then; what is masked is read back"},
	{`fstat\(\d+</(proc/\d+|sys/fs/cgroup)/[^>]*>`, 0, "os.ReadFile asks how much there is to read, and reads to the end all the same"},
	{`fsopen\("proc"`, 0, "libcontainer has another way to its proc then, and looks at that, too"},
	{`fstatfs\(\d+</>`, 0, "likewise"},
	{`newfstatat\(AT_FDCWD</>, "/"`, 0, "libcontainer asks where it is: the kernel says it then"},
	{`newfstatat\(.*"/proc/kcore"`, 0, "whether /dev/core gets its link"},
	{`newfstatat\(.*"/proc/vz"`, 0, "libcontainer asks whether the machine is one of OpenVZ"},
	{`newfstatat\(.*"/proc/self/(ns/(user|cgroup)|timens_offsets)"`, 0, "libcontainer asks whether there are such namespaces, and nothing but ENOENT says no"},
	{`newfstatat\(.*"/sys/fs/cgroup/([^"]*/)?s\d+(/init)?"`, 0, "the group is made, which says whether it is there"},
	{`newfstatat\(.*"/sys/fs/cgroup/[^"]*/memory\.(memsw\.limit_in_bytes|swap\.max)"`, 0, "what the kernel does not say is missing is there for us: the ceiling on swap is written to it"},
	{`newfstatat\(.*"/run/stockade/[^"]*/(boxes|placeholders)"`, 0, "os.MkdirAll makes it, which says whether it is there"},
	{`newfstatat\(.*"/run/stockade/[^"]*/state\.json"`, 0, "os.Rename asks whether it is a directory, which the kernel refuses in any case"},
	{`newfstatat\(\d+<(socket:\[|/proc/\d+/maps)[^>]*>, ""`, 0, "the C library asks how much to read or to write at once"},
	{`(newfstatat|openat)\(.*/etc/ld\.so\.cache`, 0, "the dynamic linker looks into its directories then"},
	{`openat\(AT_FDCWD<[^>]*>, "(/sys/kernel/mm/transparent_hugepage/|/proc/self/(cgroup|mountinfo)"|/sys/fs/cgroup/[^"]*/cpu\.(max|cfs_(quota|period)_us)")`, 0, "the Go runtime asks how large pages are, and how many processors it may use"},
	{`pread64\(\d+</sys/fs/cgroup/[^>]*/cpu\.(max|cfs_(quota|period)_us)>`, 0, "likewise"},
	{`openat2\(AT_FDCWD<[^>]*>, "\.", \{flags=O_RDONLY\|O_CLOEXEC\|O_PATH, resolve=RESOLVE_NO_SYMLINKS\|RESOLVE_IN_ROOT\}`, 0, "libcontainer asks whether there is openat2, and looks up name by name where there is none"},
	{`openat2\(\d+</>, "((s\d+/init/)?cgroup\.controllers|cgroup\.subtree_control)"`, 0, "libcontainer tries to make a group, as above, and asks what it could limit, where it limits nothing"},
	{`openat2\(\d+</>, "thread-self/fd/\d+", \{flags=O_RDONLY\|O_NOFOLLOW\|O_CLOEXEC\|O_PATH, `, 0, "by what name libcontainer speaks of a file that it has opened: where it needs to know it, it fails"},
	{`openat2\(\d+</>, "\./\d+/stat"`, 0, "libcontainer notes since when init runs, as below"},
	{`pidfd_open\(`, 0, "the Go runtime goes by the process id, which is a child's that has not been reaped"},
	{`prctl\(PR_SET_SECUREBITS, 0\)`, 0, "init tries whether it can take back what it has locked, and is content with nothing but a refusal"},
	{`prctl\(PR_SET_VMA, PR_SET_VMA_ANON_NAME, \w+, \d+, " Go: `, 0, "the Go runtime names its memory for whoever reads maps"},
	{`prlimit64\(0, RLIMIT_NOFILE, NULL`, 0, "the Go runtime would like more descriptors for itself"},
	{`prlimit64\(0, RLIMIT_STACK, NULL`, 0, "the C library has a size for the stacks of threads"},
	{`prlimit64\(0, RLIMIT_MEMLOCK, \{rlim_cur=RLIM64_INFINITY`, 0, "BPF before Linux 5.11 needs it, and then fails"},
	{`(statx|openat)\(\d+</\d{2,}/task/\d+/fd>, "\d+"`, 0, "libcontainer notes in the runner since when init runs, which we never ask it; init itself is process 1"},
	{`statx\(-9, "/"`, 0, "libcontainer then looks for no mounts over its own proc, over which a caller has none"},
	{`readlinkat\(\d+</\d+/task/\d+/fd/\d+>, ""`, 0, "by what name libcontainer speaks of a file that it has opened"},
	{`statx\(\d+</(\d+/task/\d+/fd/\d+)?>, "", .*STATX_MNT_ID`, 0, "likewise, whether something lies over that proc: without an answer it does without the name"},
	{`seccomp\(SECCOMP_(SET_MODE_FILTER, \w+, NULL|GET_ACTION_AVAIL|GET_NOTIF_SIZES)`, 0, "libseccomp asks what the kernel has, where no filter is made with it"},
	{`seccomp\(.*WAIT_KILLABLE_RECV`, 0, "init installs the filter without that flag, of Linux 5.19"},
}

// setupCodes are the errors that a failed open may have. They say which step it was; that nobody has waited for it, or that the runner
// is gone, would say nothing.
var setupCodes = []api.Code{"runner_failed", "not_enforced", "spawn_failed", "mount_source", "mount_target", "invalid_workdir", "network_failed", "protected_path", "unsupported_by_host"}

// TestSetupFaults has the kernel refuse the first, the second, … call of every kind that the building of a session consists of, until
// none is reached any more (T036, T077). Whatever is refused: the open says so, nothing ran, nothing is left, and the next open works; or the call
// stands in madeUpFor. It is strace that refuses, from outside, and that says what it has refused. It counts by thread: what is refused is the kth call of
// every thread of the runner, of libcontainer's processes and of init, as long as they get that far: what comes later in one of them may stand in the
// shadow of another. A run of `make test` takes the first of every kind, and one more of half of them; STOCKADE_SOAK=1 takes all. Control: an open of which nothing is refused
// works, after each that failed; and a call that was refused to an open that worked is seen.
func TestSetupFaults(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		skip(t, "needs strace, which refuses the calls")
	}
	t.Run("a plain session", func(t *testing.T) {
		f := &faults{T: t, d: start(t, "--runner-binary", withoutStock(t))}
		f.control()
		f.campaign(1)
	})
	t.Run("overlay, protected paths and network", func(t *testing.T) {
		d, _ := startOutside(t, "--runner-binary", withoutStock(t))
		f := &faults{T: t, d: d, local: api.Local{NetworkMode: "egress", Mounts: []api.Mount{
			{HostPath: shared(t), GuestPath: "/data/over", Mode: "overlay", Bytes: 1 << 20},
			{HostPath: shared(t), GuestPath: "/data/mine", Mode: "rw"},
		}}}
		f.campaign(5) // most is the same
	})
}

// withoutStock is a runner that makes for each open all that it needs, nothing ahead: what is refused to it is refused to the open.
func withoutStock(t *testing.T) string {
	script := filepath.Join(shared(t), "stockade-run")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec %s/stockade-run \"$@\" --stock 0\n", bin), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// underTrace is how long an open may take that is traced, on a machine that is emulated or has much to do besides.
const underTrace = 2 * time.Minute

// faults are those of the set-up of one kind of session.
type faults struct {
	*testing.T
	d     *testbox.Daemon
	local api.Local // what is asked for

	before testbox.Residue // what is held between two attempts
}

// campaign refuses calls of every kind, or where not everything is to be shown, of one kind in so many.
func (f *faults) campaign(oneIn int) {
	f.works("at first") // and the id mappings of its mounts are there: they are made by means of ptrace, which a process has one user of
	f.settle()
	most := f.counted()
	f.Logf("calls of a thread at the most: %v", most)
	kinds, arrived, refused, failed, begin := 0, 0, 0, 0, time.Now()
	for _, call := range slices.SortedFunc(maps.Keys(most), func(a, b string) int { return cmp.Or(cmp.Compare(most[a], most[b]), cmp.Compare(a, b)) }) {
		ks := turns(most[call], oneIn)
		if len(ks) == 0 {
			continue
		}
		f.Run(call, func(t *testing.T) {
			f, whole := &faults{T: t, d: f.d, local: f.local, before: f.before}, f
			defer func() { whole.before = f.before }()
			kinds++
			before := refused
			defer func() { arrived += min(1, refused-before) }()
			for _, k := range ks {
				a := f.refuse(call, k)
				if len(a.refused) > 0 {
					refused++
					if !a.opened() {
						failed++
					}
				}
				if len(a.refused) == 0 && k > most[call] {
					break // none is reached any more
				}
			}
		})
	}
	f.Logf("%d kinds of calls, of which %d were refused, %d times in all, %d times the open failed, %v", kinds, arrived, refused, failed, time.Since(begin).Round(time.Second))
	if kinds == len(most) && arrived < leastKinds { // none left out, by chance or by -run
		f.Errorf("of %d kinds of calls only %d were refused", kinds, arrived)
	}
}

// frequent is how many calls a thread may make of a kind of which one is drawn: of the others there are hundreds, and
// STOCKADE_SOAK=1 has them.
const frequent = 100

// leastKinds is of how many kinds one must have been refused in a campaign of all: some seventy are made. strace could be there
// and refuse nothing, and every open would work.
const leastKinds = 40

// turns are which calls of a kind are to be refused, of which a thread makes so many at the most.
func turns(most, oneIn int) (ks []int) {
	switch {
	case os.Getenv("STOCKADE_SOAK") == "1":
		for k := 1; k <= 2*most+100; k++ { // it may make more now
			ks = append(ks, k)
		}
	case os.Getenv("STOCKADE_MACHINE") != "": // where an open takes seconds
		if rand.IntN(3*oneIn) == 0 {
			ks = []int{1}
		}
	case rand.IntN(oneIn) == 0:
		ks = []int{1}
		if oneIn == 1 && most > 1 && most <= frequent && rand.IntN(2) == 0 {
			ks = append(ks, 2+rand.IntN(most-1))
		}
	}
	return ks
}

// settle takes down what is held between two attempts.
func (f *faults) settle() {
	f.Helper()
	var err error
	if f.before, err = f.d.Used(f.Context(), func(context.Context) error { return f.open() }); err != nil {
		f.Fatal(err)
	}
}

// attempt is an open during which calls were refused.
type attempt struct {
	k       int
	refused []string // as strace tells it
	receipt *api.Receipt
	err     error
}

func (a *attempt) opened() bool { return a.err == nil && a.receipt.Outcome == api.OutcomeOK }

func (a *attempt) text() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprint(a.receipt.Outcome, " ", a.receipt.ErrorCode, " ", a.receipt.ErrorMessage)
}

// wrong says what must not be, if anything.
func (a *attempt) wrong(excuses []excuse) string {
	if a.err != nil {
		return fmt.Sprintf("no receipt: %v, after %q", a.err, a.refused)
	}
	if a.opened() {
		without := slices.DeleteFunc(slices.Clone(a.refused), func(call string) bool {
			return slices.ContainsFunc(excuses, func(e excuse) bool { return e.is(call, a.k) })
		})
		if len(without) > 0 {
			return fmt.Sprintf("opened, without %q", without)
		}
		return ""
	}
	r := a.receipt
	switch {
	case len(a.refused) == 0:
		return "failed, and nothing was refused: " + a.text()
	case r.Outcome == api.OutcomeDenied && r.ErrorCode == "mount_host_path_not_allowed": // what cannot be looked up, nobody may mount
	case r.Outcome != api.OutcomeFaulted || !slices.Contains(setupCodes, r.ErrorCode) || r.ErrorMessage == "":
		return fmt.Sprintf("the receipt says %s, after %q", a.text(), a.refused)
	case r.SessionID != "" || r.Payload.Open == nil || r.Payload.Open.SessionID != "" || r.Payload.Open.Enforced != nil:
		return fmt.Sprintf("a failed open has session %q, %+v", r.SessionID, r.Payload.Open)
	}
	return ""
}

// refuse refuses the kth call of a kind to every thread, and sees what comes of it.
func (f *faults) refuse(call string, k int) *attempt {
	f.Helper()
	what := fmt.Sprint(call, " ", k)
	a := f.attempt(call, k)
	for range 3 {
		// The Go runtime ends a program that cannot wake its own poller: that was no attempt.
		if !slices.ContainsFunc(a.refused, func(call string) bool { return strings.Contains(call, "[eventfd") }) || !f.d.Ended(2*time.Second) {
			break
		}
		f.Logf("%s: the runner could not wake its poller", what)
		f.start()
		a = f.attempt(call, k)
	}
	if testing.Verbose() {
		f.Logf("%s: refused to %d threads, %.200s", what, len(a.refused), a.text())
	}
	if !f.d.Running() {
		f.Fatalf("%s: the daemon has ended, after %q", what, a.refused)
	}
	if wrong := a.wrong(madeUpFor); wrong != "" {
		f.Errorf("%s: %s", what, wrong)
	}
	if call == "fcntl" && byNetlink.MatchString(a.text()) {
		// The netlink libraries keep a socket that they cannot set non-blocking, and so does this runner. No kernel refuses that.
		if err := f.d.Stop(); err != nil {
			f.Fatal(err)
		}
		f.start()
	}
	f.rest(what, a)
	return a
}

var byNetlink = regexp.MustCompile(`route netlink: |(nftables|chain \w+): setnonblock: `)

// start starts a daemon after one that has ended.
func (f *faults) start() {
	f.Helper()
	f.d.Client().CloseIdle()
	if err := f.d.Start(); err != nil {
		f.Fatal(err)
	}
	f.settle()
}

// attempt opens a session while the kth call of a kind is refused to every thread. Others open theirs meanwhile, and so it may be in an
// id range that it was not in before. The mapping of its mounts cannot be made while strace is there: that was no attempt.
func (f *faults) attempt(call string, k int) *attempt {
	f.Helper()
	a := f.once(call, k)
	for range 5 {
		if !strings.Contains(a.text(), "user namespace of an id mapping") {
			break
		}
		f.rest(fmt.Sprint(call, " ", k), a)
		a = f.once(call, k)
	}
	return a
}

func (f *faults) once(call string, k int) *attempt {
	f.Helper()
	a := &attempt{k: k}
	told := f.strace(func() {
		ctx, cancel := context.WithTimeout(f.Context(), underTrace)
		defer cancel()
		a.receipt, a.err = f.d.Client().Open(ctx, f.ask())
	}, "-y", "-s", "64", "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d", call, setupCalls[call], k))
	for _, line := range told {
		if strings.Contains(line, "(INJECTED)") {
			a.refused = append(a.refused, line)
		}
	}
	return a
}

func (f *faults) ask() api.SessionOpen {
	return api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &f.local}, Degraded: degraded()}
}

// rest sees that nothing of an attempt is left: no session, no process of one, nothing else; and that the next open works.
func (f *faults) rest(what string, a *attempt) {
	f.Helper()
	if a.opened() {
		if err := f.close(a.receipt); err != nil {
			f.Errorf("%s: %v", what, err)
		}
	}
	if some, err := live(f.Context(), f.d); err != nil || len(some) > 0 {
		f.Errorf("%s: sessions %+v, %v", what, some, err)
	}
	if ran := testbox.Executing(f.d.Instance()); len(ran) > 0 {
		f.Errorf("%s: there run %q", what, ran)
	}
	f.d.Client().CloseIdle()
	if left, err := f.d.Scope().Settle(f.before, testbox.SettleWithin); err != nil || len(left) > 0 {
		f.Errorf("%s: left behind: %q, %v, after %q", what, left, err, a.refused)
		f.settle() // it is told once
	}
	if !a.opened() {
		f.works("after " + what)
	}
}

// works is the control of every refusal.
func (f *faults) works(when string) {
	f.Helper()
	if err := f.open(); err != nil {
		f.Fatalf("%s: %v", when, err)
	}
}

// open opens a session and closes it.
func (f *faults) open() error {
	ctx, cancel := context.WithTimeout(f.Context(), underTrace)
	defer cancel()
	r, err := f.d.Client().Open(ctx, f.ask())
	if err := happened(r, err); err != nil {
		return err
	}
	return f.close(r)
}

func (f *faults) close(r *api.Receipt) error {
	ctx, cancel := context.WithTimeout(context.Background(), underTrace)
	defer cancel()
	return happened(f.d.Client().Close(ctx, api.SessionClose{SessionID: r.SessionID, Mode: "force"}))
}

// counted is how many calls of each kind one thread makes at the most, of those kinds that are reached.
func (f *faults) counted() map[string]int {
	f.Helper()
	var begun []string
	err := errors.New("not tried")
	for try := 0; err != nil; try++ {
		if try == 5 {
			f.Fatal(err)
		}
		f.works("before it is traced") // the ids may be others than last time, and their mapping is made now
		begun = f.strace(func() { err = f.open() }, "-e", "raw=all", "-e", "trace="+strings.Join(slices.Sorted(maps.Keys(setupCalls)), ","))
	}
	each, most := map[string]int{}, map[string]int{}
	for _, line := range begun {
		thread, call, _ := strings.Cut(line, " ")
		call, _, _ = strings.Cut(strings.TrimSpace(call), "(")
		each[thread+call]++
		if _, ours := setupCalls[call]; ours {
			most[call] = max(most[call], each[thread+call])
		}
	}
	return most
}

// control refuses a call that nobody misses, and sees that this would not go unseen.
func (f *faults) control() {
	a := f.attempt("access", 1)
	if len(a.refused) == 0 || !a.opened() {
		f.Fatalf("control: %s, refused: %q", a.text(), a.refused)
	}
	if err := f.close(a.receipt); err != nil {
		f.Fatal(err)
	}
	if wrong := a.wrong(madeUpFor); wrong != "" {
		f.Errorf("control: %s", wrong)
	}
	if wrong := a.wrong(nil); !strings.Contains(wrong, "/etc/ld.so.preload") {
		f.Errorf("control: opened without what is in no table, and this is told of it: %q", wrong)
	}
}

// strace calls fn while the runner and whatever it starts is traced, and returns the calls, each in one line after its thread.
func (f *faults) strace(fn func(), args ...string) (calls []string) {
	f.Helper()
	runner := f.d.Runner()
	out := filepath.Join(f.TempDir(), "calls")
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-o", out, "-p", fmt.Sprint(runner)}, args...)...)
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	for end := time.Now().Add(testbox.Patience(5 * time.Second)); !traced(runner); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			f.Fatalf("strace does not attach to process %d", runner)
		}
	}
	fn()
	_ = cmd.Process.Signal(unix.SIGINT) // it detaches, and ends
	late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait()
	told, err := os.ReadFile(out)
	if err != nil {
		f.Fatal(err)
	}
	return joined(string(told))
}

var resumed = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>`)

// joined are the lines of strace, those put together of which another thread has parted the end from the beginning.
func joined(told string) (lines []string) {
	begun := map[string]string{}
	for line := range strings.Lines(told) {
		line = strings.TrimSpace(line)
		thread, _, _ := strings.Cut(line, " ")
		if before, ok := strings.CutSuffix(line, " <unfinished ...>"); ok {
			begun[thread] = before
			continue
		}
		if m := resumed.FindString(line); m != "" {
			line = begun[thread] + line[len(m):]
			delete(begun, thread)
		}
		lines = append(lines, line)
	}
	return append(lines, slices.Collect(maps.Values(begun))...)
}

// traced reports whether every thread of a process has a tracer.
func traced(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range tasks {
		status, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			return false
		}
	}
	return err == nil && len(tasks) > 0
}

// A line of strace that another thread has parted is one call, and belongs to its own thread.
func TestStraceJoined(t *testing.T) {
	const told = `7  openat(AT_FDCWD, "/a" <unfinished ...>
8  write(3, "x", 1 <unfinished ...>
7  <... openat resumed>, O_RDONLY) = -1 EMFILE (Too many open files) (INJECTED)
7  mount("a", "b", "", MS_BIND, NULL) = 0
8  <... write resumed>)              = 1
9  read(4,  <unfinished ...>
`
	want := []string{
		`7  openat(AT_FDCWD, "/a", O_RDONLY) = -1 EMFILE (Too many open files) (INJECTED)`,
		`7  mount("a", "b", "", MS_BIND, NULL) = 0`,
		`8  write(3, "x", 1)              = 1`,
		`9  read(4, `,
	}
	if got := joined(told); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

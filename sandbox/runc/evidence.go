package runc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/oci"
)

// proof compares what the kernel says is in force with what was asked for, layer by layer. A
// difference is a refusal, whatever its cause.
type proof struct {
	session  *session
	config   *specs.Spec // that libcontainer was given
	attached []attachment
	setup    guest.Setup
	below    int64            // user namespaces that can be made in the session's, as its holder has read it: nobody else can
	landlock int              // ABI that init says it has taken
	degraded []string         // layers that need not be there
	dir      string           // of init, in /proc
	e        sandbox.Enforced // each layer has members of its own

	forging sync.Mutex
	forge   func(file, content string) string
}

// proofs are the layers. Each is read again here, however it was set: what set it is not asked. They are read
// at the same time, because most of that is the kernel's, and nothing of the caller's runs yet that could change between
// two of them.
var proofs = []struct {
	layer string
	read  func(*proof) error
}{
	{"namespaces", (*proof).namespaces},
	{"hostname", (*proof).hostname},
	{"clocks", (*proof).clocks},
	{"ids", (*proof).ids},
	{"threads", (*proof).threads},
	{"rlimits", (*proof).rlimits},
	{"mounts", (*proof).mounts},
	{"groups", (*proof).groups},
	{"devices", (*proof).devices},
	{"network", (*proof).network},
	{"landlock", (*proof).landlocked},
	{"reports", (*proof).reports},
}

func (p *proof) run() (sandbox.Enforced, error) {
	p.dir = "/proc/" + strconv.Itoa(p.session.box.pid)
	p.e.Degraded = p.degraded
	var all sync.WaitGroup
	errs := make([]error, len(proofs))
	for i, layer := range proofs {
		all.Go(func() { errs[i] = layer.read(p) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return p.e, sandbox.Errorf(sandbox.CodeNotEnforced, "%s: %v", proofs[i].layer, err)
		}
	}
	return p.e, nil
}

// read returns a file of init's.
func (p *proof) read(file string) (string, error) {
	data, err := os.ReadFile(p.dir + "/" + file)
	return p.forged(file, string(data)), err
}

// forged is what was read, but in tests.
func (p *proof) forged(file, content string) string {
	if p.forge == nil {
		return content
	}
	p.forging.Lock()
	defer p.forging.Unlock()
	return p.forge(file, content)
}

// namespaces must all be other ones than the runner's.
func (p *proof) namespaces() error {
	p.e.Namespaces = map[string]uint64{}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		if kind == "time" && p.config.Linux.TimeOffsets == nil {
			continue
		}
		theirs, err := os.Readlink(p.dir + "/ns/" + kind)
		if err != nil {
			return err
		}
		theirs = p.forged("ns/"+kind, theirs)
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		if theirs == ours {
			return fmt.Errorf("the %s namespace is the runner's", kind)
		}
		inode, ok := strings.CutPrefix(theirs, kind+":[")
		if p.e.Namespaces[kind], err = strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64); err != nil || !ok {
			return fmt.Errorf("the %s namespace is %q", kind, theirs)
		}
	}
	return nil
}

// hostname is the one that the session was granted. The kernel tells it to those who are in the namespace.
func (p *proof) hostname() error {
	ns, err := os.Open(p.dir + "/ns/uts")
	if err != nil {
		return err
	}
	defer ns.Close()
	var names unix.Utsname
	if err := thread.Within(ns, unix.CLONE_NEWUTS, func() error { return unix.Uname(&names) }); err != nil {
		return err
	}
	if got := p.forged("hostname", unix.ByteSliceToString(names.Nodename[:])); got != p.session.spec.Hostname {
		return fmt.Errorf("it is %q, not %q", got, p.session.spec.Hostname)
	}
	return nil
}

// clocks are as far behind the host's as was asked for.
func (p *proof) clocks() error {
	offsets := p.config.Linux.TimeOffsets
	if offsets == nil {
		return nil
	}
	return p.expect("timens_offsets", fmt.Sprintf("monotonic %d 0 boottime %d 0", offsets["monotonic"].Secs, offsets["boottime"].Secs))
}

// ids are those of the session's range, all of them and no other.
func (p *proof) ids() error {
	want := fmt.Sprintf("0 %d %d", p.session.base, sandbox.IDs)
	return errors.Join(p.expect("uid_map", want), p.expect("gid_map", want), p.expect("setgroups", "allow"), p.owned(), p.closed())
}

// nsGetOwnerUID is NS_GET_OWNER_UID of linux/nsfs.h.
const nsGetOwnerUID = 0xb704

// owned: the user namespace is not root's, as whose its inotify instances, signals and message queues would count.
func (p *proof) owned() error {
	f, err := os.Open(p.dir + "/ns/user")
	if err != nil {
		return err
	}
	defer f.Close()
	uid, err := unix.IoctlGetUint32(int(f.Fd()), nsGetOwnerUID)
	if err != nil {
		return fmt.Errorf("owner of the user namespace: %w", err)
	}
	if got := p.forged("owner", fmt.Sprint(uid)); got != fmt.Sprint(p.session.base) {
		return fmt.Errorf("uid %s owns the user namespace, not %d", got, p.session.base)
	}
	return nil
}

// closed: nobody makes a user namespace in the session's.
func (p *proof) closed() error {
	p.e.UserNS = p.below
	if got := p.forged("below", fmt.Sprint(p.below)); got != "0" {
		return fmt.Errorf("max_user_namespaces is %s", got)
	}
	return nil
}

// expect compares a file's words.
func (p *proof) expect(file, want string) error {
	content, err := p.read(file)
	if err != nil {
		return err
	}
	if got := strings.Join(strings.Fields(content), " "); got != want {
		return fmt.Errorf("%s is %q, not %q", file, got, want)
	}
	return nil
}

// groups hold the ceilings that were asked for, and init.
func (p *proof) groups() error {
	groups := p.session.groups
	limits, swap, err := groups.Limits() // compares with what was asked for
	if err != nil {
		return err
	}
	p.e.MemoryBytes, p.e.CPUMillis, p.e.PIDs, p.e.SwapBytes = limits.MemoryBytes, limits.CPUMillis, limits.PIDs, swap
	if p.e.Ceilings, err = groups.Files(); err != nil {
		return err
	}
	for controller, group := range groups.Paths() {
		if controller == "" {
			group += "/init"
		}
		data, err := os.ReadFile(group + "/cgroup.procs")
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(string(data)), strconv.Itoa(p.session.box.pid)) {
			return fmt.Errorf("init is not in %s", group)
		}
	}
	return nil
}

// devices are those of the list, and no other.
func (p *proof) devices() (err error) {
	p.e.Devices, err = p.session.groups.DevicesHeld(rules(oci.Devices))
	return err
}

// network is the loopback, and with a network the rules that lead to the relay: there is no other way out.
func (p *proof) network() (err error) {
	p.e.Network, err = p.session.network.Evidence()
	return err
}

// landlocked is Landlock, which shows nowhere in /proc. What is known is that init has tried, on the thread
// that executions are cloned from, what the mounts allow and Landlock alone refuses (guest.ProofDir).
func (p *proof) landlocked() error {
	if wanted := len(p.setup.Landlock) > 0; wanted != (p.landlock > 0) {
		return fmt.Errorf("its ABI is %d", p.landlock)
	}
	p.e.Landlock = p.landlock
	return nil
}

// reports are how each layer tells what it refuses, of those that do; the others say nothing to anybody
// but the program. What a layer tells of all but a part of it, it does not tell of that part.
func (p *proof) reports() error {
	sum := sha256.Sum256(p.setup.Filter)
	p.e.Filter = "sha256:" + hex.EncodeToString(sum[:])
	p.e.Reports = map[string]string{
		"ceilings": "counter", "mounts": "", "capabilities": "", "devices": "", "network": "",
		"ceilings.files": "", "ceilings.cpu_millis": "", // these have no counter, or slow down and refuse nothing
	}
	if p.session.spec.Limits.IOBytesPerSecond != 0 {
		p.e.Reports["ceilings.io_bytes_per_second"] = ""
	}
	if p.landlock > 0 {
		p.e.Reports["landlock"] = ""
	}
	p.e.Reports["seccomp"] = ""
	if p.session.notify != nil {
		p.e.Reports["seccomp"] = "notification"
	}
	if p.session.spec.Network.Mode != "none" {
		p.e.Reports["network"] = "relay"
		p.e.Reports["packets"] = "" // what is neither TCP nor a question is dropped by rules
	}
	return nil
}

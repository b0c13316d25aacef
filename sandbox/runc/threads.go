package runc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// What init's threads keep, said once more than by init itself: evidence that takes its subject's
// word is none. Executions are cloned from the main thread, and what it has beyond the grant is gone
// with their setuid; the others keep CAP_SETPCAP, without which there would be no main thread.
const (
	spawnerCapabilities = 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	initCapabilities    = spawnerCapabilities | 1<<unix.CAP_SETPCAP
)

// threads are read of init, all of them. The main thread's sets are those of executions.
func (p *proof) threads() error {
	tasks, err := os.ReadDir(p.dir + "/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		fields, err := p.status("task/" + task.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the Go runtime ends a thread now and then
		}
		if err != nil {
			return err
		}
		for field, want := range p.thread(task.Name() == path.Base(p.dir)) {
			if got := strings.Join(strings.Fields(fields[field]), " "); got != want {
				return fmt.Errorf("%s of thread %s of init is %q, not %q", field, task.Name(), got, want)
			}
		}
	}
	// The files of a process that can be dumped, and traced, are its own; others belong to the root of
	// its user namespace.
	var st unix.Stat_t
	if err := unix.Stat(p.dir+"/status", &st); err != nil {
		return err
	}
	if st.Uid != p.session.base {
		return fmt.Errorf("init can be traced: its files are user %d's", st.Uid)
	}
	p.e.NoNewPrivs, p.e.Seccomp, p.e.Capabilities = true, 2, p.session.spec.Identity.CapabilityMask()
	return nil
}

// thread is what the status of a thread of init says.
func (p *proof) thread(main bool) map[string]string {
	granted := p.session.spec.Identity.CapabilityMask()
	set := func(mask uint64) string { return fmt.Sprintf("%016x", mask) }
	host := func(id uint32) string { return strconv.FormatUint(uint64(p.session.base+id), 10) }
	init := host(sandbox.InitUID)
	own := strings.Join([]string{init, init, init, init}, " ")
	want := map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1",
		"Uid": own, "Gid": own, "Groups": "", "Umask": fmt.Sprintf("%04o", p.setup.Umask),
		"CapInh": set(0), "CapAmb": set(0),
		"CapPrm": set(granted | initCapabilities), "CapEff": set(granted | initCapabilities), "CapBnd": set(granted | initCapabilities),
	}
	if !main {
		return want
	}
	// It looks files up as an execution would, until the first request also by its uid; the kernel keeps groups in order.
	id := p.session.spec.Identity
	var groups []string
	for _, g := range slices.Sorted(slices.Values(id.Groups)) {
		groups = append(groups, host(g))
	}
	want["Uid"] = strings.Join([]string{init, init, init, host(id.UID)}, " ")
	want["Gid"] = strings.Join([]string{init, init, init, host(id.GID)}, " ")
	want["Groups"] = strings.Join(groups, " ")
	for field, mask := range map[string]uint64{
		"CapInh": granted, "CapAmb": granted, "CapBnd": granted,
		"CapPrm": granted | spawnerCapabilities, "CapEff": granted | spawnerCapabilities,
	} {
		want[field] = set(mask)
	}
	return want
}

// status reads a file of "Name:\tvalue" lines.
func (p *proof) status(file string) (map[string]string, error) {
	content, err := p.read(file)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(content) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}

// rlimitNames are the limits that setup lowers, as /proc/PID/limits and getrlimit(2) have them.
var rlimitNames = map[int32]struct{ title, name string }{
	unix.RLIMIT_CORE:       {"Max core file size", "CORE"},
	unix.RLIMIT_MEMLOCK:    {"Max locked memory", "MEMLOCK"},
	unix.RLIMIT_MSGQUEUE:   {"Max msgqueue size", "MSGQUEUE"},
	unix.RLIMIT_NOFILE:     {"Max open files", "NOFILE"},
	unix.RLIMIT_NPROC:      {"Max processes", "NPROC"},
	unix.RLIMIT_RTPRIO:     {"Max realtime priority", "RTPRIO"},
	unix.RLIMIT_SIGPENDING: {"Max pending signals", "SIGPENDING"},
}

// rlimits of init are inherited by executions. None is above what was asked for, nor above our own.
func (p *proof) rlimits() error {
	content, err := p.read("limits")
	if err != nil {
		return err
	}
	p.e.Rlimits = map[string]uint64{}
	for _, limit := range p.setup.Rlimits {
		var own unix.Rlimit
		if err := unix.Getrlimit(int(limit.Resource), &own); err != nil {
			return err
		}
		want := min(limit.Max, own.Max)
		name := rlimitNames[limit.Resource]
		_, rest, found := strings.Cut(content, name.title)
		f := strings.Fields(rest)
		if text := strconv.FormatUint(want, 10); !found || len(f) < 2 || f[0] != text || f[1] != text {
			return fmt.Errorf("%s is %.2q, not %s", name.title, f, text)
		}
		p.e.Rlimits[name.name] = want
	}
	return nil
}

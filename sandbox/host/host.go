// Package host finds out what this kernel and this place offer; it needs root to find
// everything, and is linked only into stockade-run.
//
// It goes by doing, not by version numbers: a distribution's kernel, a container around us
// or an administrator's sysctl decides as much as the kernel's age does. Whatever it does is
// undone when [Probe] returns, and touches nothing that another process could see.
//
// Non-goals: refusing (that is the runner's, with the Spec at hand) and repairing (each
// [sandbox.Layer] that is missing names its remedy).
package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// States of a layer.
const (
	present = "present"
	missing = "missing"
	unknown = "unknown" // asking was not permitted
)

// Probe tries every layer, and those of groups where the options say that sessions' are to
// stand. What cannot be found out is a layer of state "unknown", never an error.
func Probe(groups cgroup.Options) sandbox.Host {
	h := sandbox.Host{Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		h.Memory = int64(info.Totalram) * int64(info.Unit)
	}

	layout, err := cgroup.Discover(groups)
	h.Cgroup = layout.Layout
	h.Layers = append(h.Layers, cgroups(layout, err)...)
	for _, t := range trials {
		h.Layers = append(h.Layers, t.layer())
	}
	return h
}

// trial is one row: something to be tried, and what would make it work.
type trial struct {
	name     string
	required bool
	try      func() (detail string, err error)
	remedy   string
}

func (t trial) layer() sandbox.Layer {
	detail, err := t.try()
	l := sandbox.Layer{Name: t.name, State: present, Required: t.required, Detail: detail}
	if err == nil {
		return l
	}
	l.State, l.Detail, l.Remedy = missing, err.Error(), t.remedy
	if os.Geteuid() != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		l.State, l.Remedy = unknown, "ask again as root"
	}
	return l
}

const (
	namespaces = "a kernel with CONFIG_NAMESPACES, sysctl user.max_%s_namespaces above 0, and CAP_SYS_ADMIN (in a container: --privileged)"
	kernel     = "a kernel of %s or later"
)

// trials are in the order of the set-up that rests on them.
var trials = []trial{
	{"runner's capabilities", true, capabilities, "start stockade-run as root with these capabilities in its bounding set"},
	{"user namespace", true, namespace(unix.CLONE_NEWUSER), fmt.Sprintf(namespaces, "user") + "; sysctl kernel.apparmor_restrict_unprivileged_userns does not matter to root"},
	{"mount namespace", true, namespace(unix.CLONE_NEWNS), fmt.Sprintf(namespaces, "mnt")},
	{"pid namespace", true, namespace(unix.CLONE_NEWPID), fmt.Sprintf(namespaces, "pid")},
	{"ipc namespace", true, namespace(unix.CLONE_NEWIPC), fmt.Sprintf(namespaces, "ipc")},
	{"uts namespace", true, namespace(unix.CLONE_NEWUTS), fmt.Sprintf(namespaces, "uts")},
	{"network namespace", true, namespace(unix.CLONE_NEWNET), fmt.Sprintf(namespaces, "net")},
	{"cgroup namespace", true, namespace(unix.CLONE_NEWCGROUP), fmt.Sprintf(namespaces, "cgroup")},
	{sandbox.LayerTimeNS, true, timeNamespace, "a kernel with CONFIG_TIME_NS (5.6)"},
	{"mounts by descriptor", true, mountAPI, fmt.Sprintf(kernel, "5.12")},
	{"idmapped mounts", true, func() (string, error) { return IDMapped("/") }, "a kernel and root file system that map ids in mounts: ext4 and xfs from 5.12, btrfs 5.15, overlayfs 5.19, tmpfs 6.3"},
	{"idmapped tmpfs", false, idmappedTmpfs, fmt.Sprintf(kernel, "6.3")},
	{sandbox.LayerOverlay, false, overlay, "modprobe overlay; a kernel of 5.19 or later, with CONFIG_TMPFS_XATTR"},
	{"path resolution beneath a descriptor", true, openat2, fmt.Sprintf(kernel, "5.6") + " (and, in a container, a seccomp profile that lets openat2 through)"},
	{"seccomp filter", true, seccompFilter, "a kernel with CONFIG_SECCOMP_FILTER"},
	{sandbox.LayerNotify, true, notification, fmt.Sprintf(kernel, "5.7")},
	{sandbox.LayerLandlock, true, landlock, "a kernel with CONFIG_SECURITY_LANDLOCK (5.13), and landlock in its lsm= list"},
	{sandbox.LayerNetwork, false, redirect, "modprobe -a nf_tables nft_chain_nat nft_redir nft_limit nft_ct; a kernel with CONFIG_NF_TABLES, CONFIG_NF_NAT, CONFIG_NFT_REDIR, CONFIG_NFT_LIMIT and CONFIG_NFT_CT"},
	{"sealed memfd", true, sealedMemfd, "a kernel with CONFIG_MEMFD_CREATE"},
	{"executable memfd flag", false, executableMemfd, fmt.Sprintf(kernel, "6.3")},
	{"pidfd", true, pidfd, fmt.Sprintf(kernel, "5.4")},
	{"raising resource limits", false, resource, "CAP_SYS_RESOURCE for the runner; without it no limit goes above the inherited one"},
}

// cgroups are the layers that the cgroup package knows how to try.
func cgroups(h cgroup.Hierarchies, err error) []sandbox.Layer {
	const delegate = "start the runner with Delegate=yes, or name a group with --cgroup-parent"
	found := func() (string, error) { return h.Layout, err }
	layers := []sandbox.Layer{trial{"unified cgroup hierarchy", true, found, "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"}.layer()}
	if err != nil {
		return layers
	}
	for _, c := range []string{"memory", "cpu", "pids"} {
		layers = append(layers, trial{c + " controller", true, func() (string, error) {
			if h.Version[c] == "" {
				return "", errors.New("neither on v1 nor handed down on v2")
			}
			return h.Version[c], nil
		}, delegate + "; on v1 mount it, and boot without cgroup_disable=" + c}.layer())
	}
	tried := h.Try()
	done := func(err error, detail string) func() (string, error) {
		return func() (string, error) { return detail, err }
	}
	const place = ", and a group that the runner may build in: " + delegate
	return append(layers,
		trial{"cgroup kill", true, done(tried.Kill, ""), fmt.Sprintf(kernel, "5.14") + place}.layer(),
		trial{"clone into cgroup", true, done(tried.Clone, ""), fmt.Sprintf(kernel, "5.7") + place}.layer(),
		trial{"swap ceiling", true, func() (string, error) { return swap(h) }, "boot with swapaccount=1, or swapoff -a"}.layer(),
		trial{"device rules", true, done(tried.Devices, tried.How), "a kernel with CONFIG_CGROUP_BPF, and CAP_BPF or CAP_SYS_ADMIN; " + delegate}.layer(),
		trial{sandbox.LayerExecLimits, false, done(tried.Ceilings, ""), "a kernel of 5.11 or later, or memory.use_hierarchy in the group; " + delegate}.layer(),
		trial{sandbox.LayerIO, false, done(h.IO(), ""), "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), CONFIG_BLK_DEV_THROTTLING, and hand io down; " + delegate}.layer(),
		kept(h, "peak of processes", "pids", "6.1"),
		kept(h, "peak of memory", "memory", "5.19"),
	)
}

// kept is a figure that the kernel keeps of a group, or does not; nothing is refused for want of it.
func kept(h cgroup.Hierarchies, name, controller, since string) sandbox.Layer {
	file, known := h.Peak(controller)
	switch {
	case file != "":
		return sandbox.Layer{Name: name, State: present, Detail: file}
	case known:
		return sandbox.Layer{Name: name, State: missing, Detail: "told as 0", Remedy: fmt.Sprintf(kernel, since)}
	}
	return sandbox.Layer{Name: name, State: unknown, Detail: "there is no group yet to tell by", Remedy: fmt.Sprintf(kernel, since)}
}

// swap is bounded where groups account it, and where there is none.
func swap(h cgroup.Hierarchies) (string, error) {
	data, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return "", err
	}
	if strings.Count(string(data), "\n") <= 1 { // the heading
		return "the host has no swap", nil
	}
	if !h.AccountsSwap() {
		return "", errors.New("swap is in use and not accounted")
	}
	return "", nil
}

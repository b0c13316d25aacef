package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// sessionFlags describe the session that open and run ask for. What is not said is
// left to policy.
type sessionFlags struct {
	profile  string
	root     string
	mounts   []string
	env      []string
	secrets  []string
	labels   []string
	workdir  string
	hostname string
	overlays []string
	network  string
	allow    []string
	limits   limitFlags
	degraded []string // --accept-degraded
	verify   bool
	ttl      time.Duration
	idle     time.Duration
	restart  string // --on-restart
	stay     bool   // --background
}

func (f *sessionFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.profile, "profile", "", "profile of the policy library, such as workspace or hermetic (default: policy chooses)")
	flags.StringVar(&f.root, "root", "", "root file system: host, dir:PATH or paths:PATH,PATH…")
	flags.StringArrayVar(&f.mounts, "mount", nil, "host path to mount, SRC[:DST[:ro|rw|overlay]]; read-only unless something else is said (repeatable)")
	flags.StringArrayVar(&f.overlays, "overlay", nil, "host path that is writable inside and unchanged outside until stockade commit, SRC[:DST[:SIZE]] (repeatable)")
	flags.StringVar(&f.workdir, "workdir", "", "directory inside in which commands start")
	flags.StringArrayVar(&f.env, "env", nil, "K=V, or K to hand on our own value (repeatable)")
	flags.StringArrayVar(&f.secrets, "secret", nil, "K=FILE: the content of FILE, without its last newline, reaches the command as K and appears in no record (repeatable)")
	flags.StringVar(&f.network, "network", "", "what of the network is reached: none, egress (what --allow names) or full (the public internet)")
	flags.StringArrayVar(&f.allow, "allow", nil, "NAME[:PORT,…] or PREFIX[:PORT,…] to reach over TCP, such as example.org:443, '*.example.org' or 192.0.2.0/24; NAME:PORT/tcp for what is neither TLS nor HTTP; means --network egress (repeatable)")
	flags.StringVar(&f.hostname, "hostname", "", "host name inside")
	completeFlag(cmd, "network", cobra.FixedCompletions(sandbox.NetworkModes, cobra.ShellCompDirectiveNoFileComp))
	f.limits.register(cmd, true)
	flags.StringSliceVar(&f.degraded, "accept-degraded", nil, "layers to do without where the host lacks them, such as landlock; policy has to accept it too, and the receipt says so (repeatable)")
	completeFlag(cmd, "accept-degraded", cobra.FixedCompletions(sandbox.Degradable, cobra.ShellCompDirectiveNoFileComp))
	flags.BoolVar(&f.verify, "verify", false, "try from inside what must fail, before anything else runs; the receipt has each verdict")
	flags.DurationVar(&f.ttl, "ttl", 0, "time after which the session ends by itself, such as 30m")
	flags.DurationVar(&f.idle, "idle", 0, "time without activity after which the session ends by itself; it is warned first")
	flags.StringVar(&f.restart, "on-restart", "", "when the supervisor restarts: adopt (the session goes on) or terminate (default: adopt)")
	flags.BoolVar(&f.stay, "background", false, "let processes that a command leaves behind live on until the session ends")
	flags.StringArrayVar(&f.labels, "label", nil, "K=V, shown to policy and in lists (repeatable)")
}

// request is the flags as the document that is sent.
func (f *sessionFlags) request() (*api.SessionOpen, error) {
	local := &api.Local{Workdir: f.workdir, Hostname: f.hostname}
	ask := &api.SessionOpen{Profile: f.profile, SessionTTLNS: int64(f.ttl), Target: api.Target{Local: local}}
	ask.IdleNS, ask.OnRestart = int64(f.idle), f.restart
	if f.stay {
		ask.Background = &f.stay
	}
	if f.ttl < 0 || f.idle < 0 {
		return nil, usage("--ttl and --idle: want a positive duration")
	}
	if f.restart != "" && f.restart != "adopt" && f.restart != "terminate" {
		return nil, usage("--on-restart %q: want adopt or terminate", f.restart)
	}
	var err error
	if local.Root, err = root(f.root); err != nil {
		return nil, err
	}
	for _, s := range f.mounts {
		m, err := mount(s)
		if err != nil {
			return nil, err
		}
		local.Mounts = append(local.Mounts, m)
	}
	for _, s := range f.overlays {
		m, err := overlay(s)
		if err != nil {
			return nil, err
		}
		local.Mounts = append(local.Mounts, m)
	}
	network, err := network(f.network, f.allow)
	if err != nil {
		return nil, err
	}
	local.NetworkMode, local.Egress = network.Mode, network.Allow
	ask.Degraded = f.degraded
	if f.verify {
		ask.Verify = "canary"
	}
	if local.Env, err = environment(f.env, f.secrets); err != nil {
		return nil, err
	}
	if ask.Labels, err = labels(f.labels); err != nil {
		return nil, err
	}
	if ask.Limits, err = f.limits.limits(); err != nil {
		return nil, err
	}
	return ask, nil
}

// root reads host, dir:PATH or paths:PATH,PATH.
func root(s string) (api.Root, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch {
	case s == "":
		return api.Root{}, nil
	case s == "host":
		return api.Root{Host: &struct{}{}}, nil
	case kind == "dir" && rest != "":
		path, err := filepath.Abs(rest)
		return api.Root{Dir: &api.RootDir{Path: path}}, err
	case kind == "paths" && rest != "":
		var paths []string
		for p := range strings.SplitSeq(rest, ",") {
			path, err := filepath.Abs(p)
			if err != nil {
				return api.Root{}, err
			}
			paths = append(paths, path)
		}
		return api.Root{Paths: &api.RootPaths{Paths: paths}}, nil
	}
	return api.Root{}, usage("--root %q: want host, dir:PATH or paths:PATH,PATH…", s)
}

// mount reads SRC[:DST[:ro|rw|overlay]]. A relative source is relative to us, not to the
// supervisor; a missing destination is the same place inside.
func mount(s string) (api.Mount, error) {
	fields := strings.Split(s, ":")
	if len(fields) > 3 || fields[0] == "" {
		return api.Mount{}, usage("--mount %q: want SRC[:DST[:ro|rw|overlay]]", s)
	}
	source, err := filepath.Abs(fields[0])
	if err != nil {
		return api.Mount{}, err
	}
	m := api.Mount{HostPath: source, GuestPath: source, Mode: "ro"}
	if len(fields) > 1 && fields[1] != "" {
		m.GuestPath = fields[1]
	}
	if len(fields) > 2 {
		m.Mode = fields[2]
	}
	if m.Mode != "ro" && m.Mode != "rw" && m.Mode != api.ModeOverlay {
		return api.Mount{}, usage("--mount %q: mode is ro, rw or overlay", s)
	}
	return m, nil
}

// overlay reads SRC[:DST[:SIZE]], with relative sources and missing destinations as mount has them.
func overlay(s string) (api.Mount, error) {
	fields := strings.SplitN(s, ":", 3)
	m, err := mount(strings.Join(fields[:min(len(fields), 2)], ":"))
	if err != nil || fields[0] == "" {
		return api.Mount{}, usage("--overlay %q: want SRC[:DST[:SIZE]]", s)
	}
	m.Mode = api.ModeOverlay
	if len(fields) > 2 {
		if m.Bytes, err = size(fields[2]); err != nil {
			return api.Mount{}, usage("--overlay %q: %v", s, err)
		}
	}
	return m, nil
}

// environment reads K=V, K (our own value) and secrets K=FILE.
func environment(plain, secret []string) (map[string]api.EnvValue, error) {
	env := map[string]api.EnvValue{}
	for _, s := range plain {
		k, v, given := strings.Cut(s, "=")
		if k == "" {
			return nil, usage("--env %q: want K=V or K", s)
		}
		if !given {
			var set bool
			if v, set = os.LookupEnv(k); !set {
				continue
			}
		}
		env[k] = api.EnvValue{Text: v}
	}
	for _, s := range secret {
		k, file, _ := strings.Cut(s, "=")
		if k == "" || file == "" {
			return nil, usage("--secret %q: want K=FILE", s)
		}
		value, err := os.ReadFile(file)
		if err != nil {
			return nil, usage("--secret %s: %v", k, err)
		}
		env[k] = api.EnvValue{Text: strings.TrimSuffix(string(value), "\n"), Secret: true}
	}
	return env, nil
}

func labels(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, usage("--label %q: want K=V", s)
		}
		out[k] = v
	}
	return out, nil
}

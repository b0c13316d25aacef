package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/rego/worker"
	"github.com/stockade-dev/stockade/supervisor"
)

// policySource is where the flags say that policy comes from, and how it is made to answer.
func (c *config) policySource(state string) (supervisor.Policies, error) {
	trust := bundle.Trust{Owner: uint32(os.Geteuid())}
	from := supervisor.Policies{Source: c.policy, Live: c.live}
	for _, name := range c.policyKeys {
		text, err := os.ReadFile(name)
		if err != nil {
			return from, fmt.Errorf("policy key: %w", err)
		}
		key, err := bundle.ParseKey(text)
		if err != nil {
			return from, fmt.Errorf("policy key %s: %w", name, err)
		}
		trust.Keys, from.Keys = append(trust.Keys, key), append(from.Keys, key.ID)
	}
	if c.policyWorkers < 0 {
		return from, fmt.Errorf("--policy-workers %d: want at least 1, or 0 for one for each processor", c.policyWorkers)
	}
	if c.policyTime < 0 {
		return from, fmt.Errorf("--policy-time %v: want a time, or 0 for %v", c.policyTime, worker.DefaultCPU)
	}
	workers := worker.Options{
		Options: rego.Options{Deadline: max(policyDeadline, policyWait*c.policyTime)},
		CPU:     c.policyTime,
		Program: []string{"/proc/self/exe", worker.Argument, state},
		Size:    c.policyWorkers,
	}
	from.Load = func(r *bundle.Revision) (supervisor.Policy, error) { return worker.Load(r.FS, workers) }
	if c.policy == "" {
		if len(trust.Keys) > 0 {
			return from, errors.New("--policy-key is for a policy that --policy names; the shipped one is a part of this program")
		}
		from.Open = func() (*bundle.Revision, error) { return bundle.Of(policies.FS) }
		return from, nil // it was tested when it was built
	}
	path, err := filepath.Abs(c.policy)
	if err != nil {
		return from, err
	}
	from.Source = path
	from.Open = func() (*bundle.Revision, error) { return bundle.Open(path, trust) }
	from.Test = func(ctx context.Context, r *bundle.Revision) error { return worker.Test(ctx, r.FS, workers) }
	return from, nil
}

// watched reports whether a change of the policy is to be taken up by itself.
func (c *config) watched() (bool, error) {
	if c.policy == "" {
		return false, nil
	}
	switch c.policyWatch {
	case "on", "off":
		return c.policyWatch == "on", nil
	case "auto":
		// A directory without a signature cannot be told from half of one.
		info, err := os.Stat(c.policy)
		return len(c.policyKeys) > 0 || err == nil && !info.IsDir(), nil
	}
	return false, fmt.Errorf("--policy-watch %q: want auto, on or off", c.policyWatch)
}

// reload has the supervisor look at the policy. What comes of it, it says itself.
func reload(ctx context.Context, sup *supervisor.Supervisor, trigger string, log *slog.Logger) {
	r, err := sup.Reload(ctx, trigger)
	if err == nil {
		log.Info("policy was looked at", "trigger", trigger, "status", r.Status)
	}
}

package runc

import (
	"testing"
)

// TestCanaries tries from inside what must fail, and says how each ended; nothing of it is left (T037).
func TestCanaries(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	for _, network := range []string{"none", "egress"} {
		for _, profile := range []string{"default", "strict"} {
			t.Run(network+" "+profile, func(t *testing.T) {
				spec := proofSpec(t, r)
				r.options.Ceiling.Networks = []string{network}
				spec.Network.Mode = network
				spec.Seccomp, spec.Verify = profile, "canary"
				e := open(t, r, spec)
				if len(e.Canaries) < 20 {
					t.Errorf("%+v", e.Canaries)
				}
				for _, c := range e.Canaries {
					if c.Want == "" || c.Got != c.Want {
						t.Errorf("%+v", c)
					}
				}
				if o := shell(t, r, spec.Session, "echo on"); o.stdout != "on\n" || len(o.Denials)+len(o.Hits) != 0 {
					t.Errorf("%+v", o)
				}
				closeSession(t, r, spec.Session)
			})
		}
	}
	before.mustLeaveNothing(t, r)
}

// TestCanaryMeddled lets one thing be otherwise than what canaries are told: the session is refused. These are
// their negative controls: each would pass for what it is not.
func TestCanaryMeddled(t *testing.T) {
	r := newRunner(t)
	for _, c := range []struct {
		name, word string
		change     func(o *opening)
	}{
		{"a writable place", "canary write /", func(o *opening) {
			for i := range o.files.attach {
				o.files.attach[i].readOnly = true
			}
		}},
		{"a place that is not masked", "read /usr", func(o *opening) { o.config.Linux.MaskedPaths = append(o.config.Linux.MaskedPaths, "/usr") }},
		{"more processes", "fork past the ceiling", func(o *opening) { o.spec.Limits.PIDs /= 2 }},
		{"another profile", "canary", func(o *opening) { o.spec.Seccomp = "strict" }},
		{"no Landlock", "make a", func(o *opening) { o.landlock = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := proofSpec(t, r)
			spec.Verify = "canary"
			r.meddle = func(step string, o *opening) error {
				if step == "evidence" {
					c.change(o)
				}
				return nil
			}
			defer func() { r.meddle = nil }()
			unproved(t, r, spec, c.word)
		})
	}
}

// What is not tried is there all the same, with why.
func TestCanariesLeftOut(t *testing.T) {
	r := newRunner(t)
	r.options.Ceiling.Networks = []string{"full"}
	spec := hostSpec("out")
	spec.Network.Mode, spec.Verify = "full", "canary"
	spec.Limits.MemoryBytes, spec.Limits.PIDs = 32<<20, 100
	e := open(t, r, spec)
	defer closeSession(t, r, spec.Session)
	got := map[string]string{}
	for _, c := range e.Canaries {
		if got[c.Name] = c.Got; c.Got != c.Want {
			t.Errorf("%+v", c)
		}
	}
	for name, want := range map[string]string{
		"connect to 192.0.2.1:80": "left out: the network is granted whole", "fork past the ceiling 100": "left out: the ceiling of memory is nearer", "keyctl": "EPERM",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

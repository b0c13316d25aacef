package supervisor

import (
	"slices"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// T037: what a host lacks, and what its operator does not allow, is said before anybody asks for it.
func TestCapabilities(t *testing.T) {
	host := func(missing ...string) sandbox.Host {
		h := sandbox.Host{Cgroup: "hybrid", Layers: []sandbox.Layer{{Name: "user namespace", State: "present", Required: true}}}
		for _, name := range []string{sandbox.LayerLandlock, sandbox.LayerTimeNS, sandbox.LayerNotify, sandbox.LayerOverlay, sandbox.LayerExecLimits, sandbox.LayerIO, sandbox.LayerNetwork} {
			l := sandbox.Layer{Name: name, State: "present", Required: slices.Contains(sandbox.Degradable, name)}
			if slices.Contains(missing, name) {
				l.State = "missing"
			}
			h.Layers = append(h.Layers, l)
		}
		return h
	}
	ceiling := func(c *api.Capabilities, name string) api.CeilingKind {
		i := slices.IndexFunc(c.Ceilings, func(k api.CeilingKind) bool { return k.Name == name })
		return c.Ceilings[i]
	}
	for _, row := range []struct {
		name    string
		host    sandbox.Host
		ceiling sandbox.Ceiling
		holds   func(*api.Capabilities) bool
	}{
		{"everything", host(), sandbox.Ceiling{}, func(c *api.Capabilities) bool {
			return c.Sessions && len(c.Degraded) == 0 && slices.Equal(c.Networks, []string{"none", "egress", "full"}) &&
				slices.Equal(c.MountModes, []string{"ro", "rw", "overlay"}) && len(c.Ceilings) == len(ceilingKinds) && ceiling(c, "pids").Execution && ceiling(c, "pids").Detail != ""
		}},
		{"Landlock", host(sandbox.LayerLandlock), sandbox.Ceiling{}, func(c *api.Capabilities) bool {
			return !c.Sessions && slices.Equal(c.Missing, []string{sandbox.LayerLandlock}) && slices.Equal(c.Degraded, []string{sandbox.LayerLandlock})
		}},
		{"overlays", host(sandbox.LayerOverlay), sandbox.Ceiling{ReadWrite: []string{}}, func(c *api.Capabilities) bool { return slices.Equal(c.MountModes, []string{"ro"}) }},
		{"ceilings of executions", host(sandbox.LayerExecLimits), sandbox.Ceiling{}, func(c *api.Capabilities) bool {
			return ceiling(c, "memory_bytes").Session && !ceiling(c, "memory_bytes").Execution && ceiling(c, "output_bytes").Execution
		}},
		{"io", host(sandbox.LayerIO), sandbox.Ceiling{}, func(c *api.Capabilities) bool { return !ceiling(c, "io_bytes_per_second").Session }},
		{"the relay", host(sandbox.LayerNetwork), sandbox.Ceiling{}, func(c *api.Capabilities) bool { return slices.Equal(c.Networks, []string{"none"}) }},
		{"the operator", host(), sandbox.DefaultCeiling(), func(c *api.Capabilities) bool {
			return slices.Equal(c.Networks, []string{"none", "egress"}) && ceiling(c, "pids").Max == 4096 && ceiling(c, "cpu_weight").Max == 0
		}},
	} {
		if got := capabilities(row.host, row.ceiling); !row.holds(got) {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

package telemetry

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// all is every metric that there can be.
func all() []string {
	m := New()
	m.Watch(func() State { return State{} })
	m.Settled(denied(api.CodePolicyDenied))
	m.Settled(&api.Receipt{Op: api.OpExec, Timings: []api.Timing{{Stage: "policy"}}, Payload: api.Payload{Exec: &api.ExecResult{Denials: []api.Denial{{Layer: "dns"}}}}})
	m.Ended("closed", 0)
	m.Near("memory", "80")
	m.Decided("data.stockade.exec.decision", 0)
	return m.Names()
}

var ofOurs = regexp.MustCompile(`stockade_[a-z_]+`)

// R259: the rules that we hand out are YAML of the form that Prometheus reads, and every metric in them exists.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	names, seen := all(), map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			used := ofOurs.FindAllString(r.Expr, -1)
			if len(used) == 0 || r.Alert == "" || r.Annotations["summary"] == "" || seen[r.Alert] || strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") {
				t.Errorf("a rule that is none: %+v", r)
			}
			seen[r.Alert] = true
			for _, name := range used {
				if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
					t.Errorf("%s: there is no metric %s", r.Alert, name)
				}
			}
		}
	}
	if len(seen) < 6 {
		t.Errorf("%d rules", len(seen))
	}
}

// The table in the guide has every metric of ours, and no other.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(stockade_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, row[1])
	}
	for _, name := range all() {
		if strings.HasPrefix(name, "stockade_") && !slices.Contains(rows, name) {
			t.Errorf("the guide has no row for %s", name)
		}
	}
	for _, row := range rows {
		if !slices.Contains(all(), row) {
			t.Errorf("the guide has a row for %s, which there is not", row)
		}
	}
}

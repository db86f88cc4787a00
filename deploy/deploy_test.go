// Package deploy_test holds the files of this folder to what they name: metrics,
// pages, commands and keys that exist.
package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metrics are the names that the reference lists, which is generated.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(likeness_[a-z0-9_]+)` \\| (\\w+)").FindAllStringSubmatch(read(t, "../docs/reference/metrics.md"), -1) {
		names[m[1]] = true
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[m[1]+suffix] = true
			}
		}
	}
	if len(names) < 10 {
		t.Fatalf("metrics.md lists only %q", slices.Sorted(maps.Keys(names)))
	}
	return names
}

func checkNames(t *testing.T, known map[string]bool, where, expression string) {
	t.Helper()
	for _, name := range regexp.MustCompile(`likeness_[a-z0-9_]+`).FindAllString(expression, -1) {
		if !known[name] {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

func TestDashboard(t *testing.T) {
	var d struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/likeness.json")), &d); err != nil {
		t.Fatal(err)
	}
	known := metrics(t)
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("panel %q has no target or no description", p.Title)
		}
		for _, target := range p.Targets {
			checkNames(t, known, "panel "+p.Title, target.Expr)
		}
	}
}

func TestAlerts(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	known, headings := metrics(t), anchors(read(t, "../docs/runbooks.md"))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			checkNames(t, known, r.Alert, r.Expr)
			page, anchor, _ := strings.Cut(r.Annotations["runbook"], "#")
			if page != "docs/runbooks.md" || !headings[anchor] {
				t.Errorf("%s: there is no runbook %q", r.Alert, r.Annotations["runbook"])
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s lacks a severity or a summary", r.Alert)
			}
		}
	}
}

// anchors are the headings of a page as links name them.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(text, " ", "-")] = true
	}
	return out
}

// TestCompose wants what keeps a container small and honest in both files.
func TestCompose(t *testing.T) {
	for _, name := range []string{"compose/qdrant.yaml", "compose/milvus.yaml"} {
		var file struct {
			Services map[string]struct {
				Image       string
				Build       struct{ Context, Dockerfile string }
				DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
				HealthCheck struct{ Test []string }               `yaml:"healthcheck"`
				ReadOnly    bool                                  `yaml:"read_only"`
				CapDrop     []string                              `yaml:"cap_drop"`
				Volumes     []string
			}
			Volumes map[string]any
		}
		if err := yaml.Unmarshal([]byte(read(t, name)), &file); err != nil {
			t.Fatal(err)
		}
		own := file.Services["likeness"]
		if _, err := os.Stat(filepath.Join("compose", own.Build.Context, own.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !own.ReadOnly || !slices.Contains(own.CapDrop, "ALL") {
			t.Errorf("%s: the sidecar may write or has capabilities", name)
		}
		for store, d := range own.DependsOn {
			if d.Condition != "service_healthy" || len(file.Services[store].HealthCheck.Test) == 0 {
				t.Errorf("%s: the sidecar does not wait for a healthy %s", name, store)
			}
			if _, tag, ok := strings.Cut(file.Services[store].Image, ":"); !ok || tag == "latest" {
				t.Errorf("%s: %s has no version", name, store)
			}
		}
	}
}

// TestUnit has systemd check the unit, where it is there, with a binary that is.
func TestUnit(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze") //nolint:misspell // its name
	if err != nil {
		t.Skip("the verifier of systemd is not there")
	}
	unit := filepath.Join(t.TempDir(), "likeness.service")
	text := strings.ReplaceAll(read(t, "systemd/likeness.service"), "/usr/local/bin/likeness", "/bin/true")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verify, "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), unit) {
		t.Errorf("%v: %s", err, out)
	}
}

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

	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metrics returns the metric names of the generated reference with their labels, and the registered
// ones of the runtime and the process.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^- `(likeness_[a-z0-9_]+)` \\((\\w+)([^;)]*)[;)]").FindAllStringSubmatch(read(t, "../docs/reference/metrics.md"), -1) {
		labels := []string{"instance", "job"}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, label[1])
		}
		names[m[1]] = labels
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[m[1]+suffix] = append(labels, "le")
			}
		}
	}
	families, err := telemetry.NewMetrics(buildinfo.Info{}, nil).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "likeness_") {
			names[f.GetName()] = []string{"instance", "job"}
		}
	}
	if len(names) < 10 {
		t.Fatalf("metrics.md lists only %q", slices.Sorted(maps.Keys(names)))
	}
	return names
}

// checkNames wants every metric of an expression to exist, with the labels that are
// matched, and those that it is grouped by to be of one of them.
func checkNames(t *testing.T, known map[string][]string, where, expression string) {
	t.Helper()
	word := regexp.MustCompile(`[a-z_]+`)
	var all []string
	for _, m := range regexp.MustCompile(`\b((?:likeness|go|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expression, -1) {
		labels, ok := known[m[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
		}
		all = append(all, labels...)
		for _, matched := range regexp.MustCompile(`([a-z_]+)(?:=|!)`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, matched[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], matched[1])
			}
		}
	}
	for _, m := range regexp.MustCompile(`\b(?:by|without|ignoring|on) \(([^)]*)\)`).FindAllStringSubmatch(expression, -1) {
		for _, label := range word.FindAllString(m[1], -1) {
			if !slices.Contains(all, label) {
				t.Errorf("%s: nothing has the label %s", where, label)
			}
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

// TestDockerfile wants a CUDA image that comes from nothing that can change under its name, and runs without rights.
func TestDockerfile(t *testing.T) {
	text := read(t, "docker/Dockerfile.cuda")
	bases := regexp.MustCompile(`(?m)^ARG \w+_IMAGE=(\S+)$`).FindAllStringSubmatch(text, -1)
	if len(bases) != 2 || len(regexp.MustCompile(`(?m)^FROM (--platform=\S+ )?\$\{\w+_IMAGE\}( AS build)?$`).FindAllString(text, -1)) != 2 {
		t.Errorf("another base than its two arguments, %v", bases)
	}
	for _, b := range bases {
		if !regexp.MustCompile(`:[\w.-]+@sha256:[0-9a-f]{64}$`).MatchString(b[1]) {
			t.Errorf("%s has no tag with a digest", b[1])
		}
	}
	for _, want := range []string{
		"\nUSER 65532:65532\n", "\nHEALTHCHECK ", "\nENTRYPOINT [\"/likeness\"]\n", "org.opencontainers.image.licenses=", "-trimpath -buildvcs=false",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	_, last, _ := strings.Cut(text, "FROM ${BASE_IMAGE}")
	if strings.Contains(last, "\nRUN ") {
		t.Error("it runs something in an image without a shell")
	}
}

// TestUnit has systemd check the units, where it is there, with a binary that is.
func TestUnit(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze") //nolint:misspell // its name
	if err != nil {
		t.Skip("the verifier of systemd is not there")
	}
	dir := t.TempDir()
	unit := filepath.Join(dir, "likeness.service")
	for _, name := range []string{"likeness.service", "likeness-refit.service", "likeness-refit.timer"} {
		text := strings.ReplaceAll(read(t, "systemd/"+name), "/usr/local/bin/likeness", "/bin/true")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"likeness.service", "likeness-refit.timer", "likeness-refit.service"} {
		if out, err := exec.Command(verify, "verify", "--man=no", filepath.Join(dir, name)).CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	// Of ten, in tenths: what a service could do that has been taken over.
	if out, err := exec.Command(verify, "security", "--offline=true", "--threshold=20", unit).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Package helm renders the chart of deploy/helm with Helm's own engine and holds what comes out, and the manifests of
// deploy/kubernetes, to the API of Kubernetes and its Pod Security Standards. What they tell likeness is checked in deploy.
package helm

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	names "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	promql "github.com/prometheus/prometheus/promql/parser"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	security "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is rendered to deploy/helm/rendered")

const root = "../.."

// render returns the chart's manifests for values, one after the other by the name of their template.
func render(values map[string]any) (string, error) {
	chart, err := loader.LoadDir(filepath.Join(root, "deploy/helm/likeness"))
	if err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "likeness", Namespace: "search", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && strings.HasSuffix(name, ".yaml") {
			b.WriteString("---\n# " + name + "\n" + text + "\n")
		}
	}
	return b.String(), nil
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// examples are the names of the chart's ci folder.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/helm/likeness/ci/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}

// TestRendered compares the rendered examples with the committed files, and checks them.
func TestRendered(t *testing.T) {
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			got, err := render(parse(t, read(t, filepath.Join(root, "deploy/helm/likeness/ci", name+".yaml"))))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(root, "deploy/helm/rendered", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := read(t, golden); got != want {
				t.Errorf("%s is not what the chart renders: go -C tools/helm test . -update, and look at the difference", golden)
			}
			decode(t, got).check(t, "restricted")
		})
	}
}

// TestWritesProxyNeedsOnePod: no pod sees the writes that pass through another, so that none
// may take them all for its own, unless all share a journal and their number is fixed.
func TestWritesProxyNeedsOnePod(t *testing.T) {
	declared := "config: {routes: {r: {writes: proxy}}}\n"
	for values, want := range map[string]bool{
		"": false, "replicas: 1\n": true, "replicas: 1\nautoscaling: {enabled: true}\n": false,
		"autoscaling: {enabled: true, maxReplicas: 1}\n": true,
		sharedJournal: true, sharedJournal + "autoscaling: {enabled: true}\n": false,
	} {
		text, err := render(parse(t, declared+values))
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "config.routes.r.writes is proxy") {
			t.Errorf("%q: %v", values, err)
		}
		shares := strings.Contains(text, `{name: LIKENESS_JOURNAL_SHARED, value: /var/lib/likeness-journal}`) &&
			strings.Contains(text, `{name: journal, mountPath: /var/lib/likeness-journal}`) && strings.Contains(text, "claimName: journals")
		if want && !shares && !strings.Contains(text, `{name: LIKENESS_REPLICAS, value: "1"}`) {
			t.Errorf("%q: the sidecar is not told that it is alone", values)
		}
	}
	if _, err := render(parse(t, "config: {routes: {r: {}}}\n"+strings.Replace(sharedJournal, "enabled: true", "enabled: false", 1))); err == nil {
		t.Error("a journal is shared by pods without lasting names")
	}
}

const sharedJournal = "state: {enabled: true, sharedJournal: {persistentVolumeClaim: {claimName: journals}}}\n"

// TestAlerts: the chart's alerts equal deploy/prometheus, which Prometheus reads: names, expressions and templates.
func TestAlerts(t *testing.T) {
	text, err := render(parse(t, read(t, filepath.Join(root, "deploy/helm/likeness/ci/minimal.yaml"))+"prometheusRule: {enabled: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	decode(t, text).check(t, "restricted")
	alerts := read(t, filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	if indented := "\n  " + strings.ReplaceAll(strings.TrimSpace(alerts), "\n", "\n  "); !strings.Contains(text, indented) {
		t.Error("the rule is not deploy/prometheus/alerts.yaml")
	}
	if _, errs := rulefmt.Parse([]byte(alerts), false, names.UTF8Validation, promql.NewParser(promql.Options{})); len(errs) > 0 {
		t.Errorf("Prometheus refuses deploy/prometheus/alerts.yaml: %v", errs)
	}
}

// TestManifests checks the manifests of deploy/kubernetes.
func TestManifests(t *testing.T) {
	for name, level := range map[string]security.Level{"sidecar-qdrant.yaml": "restricted", "sidecar-milvus.yaml": "baseline"} {
		t.Run(name, func(t *testing.T) {
			o := decode(t, read(t, filepath.Join(root, "deploy/kubernetes", name)))
			o.check(t, level)
			for _, c := range o.pod.Spec.InitContainers {
				if c.RestartPolicy == nil || *c.RestartPolicy != "Always" {
					t.Errorf("container %s is no native sidecar", c.Name)
				}
				// The startup probe waits for the same endpoint as the readiness probe.
				if c.StartupProbe == nil || c.StartupProbe.HTTPGet.Path != "/livez" {
					t.Errorf("container %s would wait for its store, which waits for it", c.Name)
				}
			}
			if len(o.pod.Spec.InitContainers) != 1 {
				t.Error("there is no sidecar")
			}
		})
	}
}

// TestWrongValues wants mistakes named when the chart is installed, not when a pod starts.
func TestWrongValues(t *testing.T) {
	good := read(t, filepath.Join(root, "deploy/helm/likeness/ci/minimal.yaml"))
	for _, c := range []struct{ name, values, want string }{
		{"nothing", "{}", "config.routes is empty"},
		{"a key that does not exist", good + "replica: 3\n", "replica"},
		{"one inside", good + "tls: {secret: x}\n", "secret"},
		{"another type", good + "replicas: two\n", "replicas"},
		{"a negative number", good + "shutdown: {graceSeconds: -1}\n", "graceSeconds"},
		{"a word that is none of those", good + "image: {pullPolicy: Sometimes}\n", "pullPolicy"},
		{"a balancer without an address", good + "service: {type: LoadBalancer, headless: true}\n", "service.headless"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := render(parse(t, c.values)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %s", err, c.want)
			}
		})
	}
}

// TestChecksumFollowsTheConfiguration: pods are replaced where it changes, and only then.
func TestChecksumFollowsTheConfiguration(t *testing.T) {
	sum := func(more string) string {
		text, err := render(parse(t, read(t, filepath.Join(root, "deploy/helm/likeness/ci/minimal.yaml"))+more))
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, text).pod.Annotations["checksum/config"]
	}
	first := sum("")
	if first == "" || first != sum("replicas: 5\n") {
		t.Error("the checksum is not that of the configuration alone")
	}
	if changed := sum("nodeSelector: {a: b}\n"); changed != first {
		t.Error("a value beside the configuration changes the checksum")
	}
	text, err := render(parse(t, strings.Replace(read(t, filepath.Join(root, "deploy/helm/likeness/ci/minimal.yaml")), "collection: products", "collection: others", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if decode(t, text).pod.Annotations["checksum/config"] == first {
		t.Error("another configuration has the same checksum")
	}
}

// TestRefitIsRefused: a job that could not read the events of all pods, write a model, or begin an experiment is refused.
func TestRefitIsRefused(t *testing.T) {
	sound := read(t, filepath.Join(root, "deploy/helm/likeness/ci/refit.yaml"))
	for old, changed := range map[string]string{
		"accessMode: ReadWriteMany": "accessMode: ReadWriteOncePod", "{enabled: true, accessMode": "{enabled: false, accessMode",
		"{persistentVolumeClaim: {claimName: models}}": "{image: {reference: r}}", "routes: [products]": "routes: []",
		"\nrefit:": "\nautoscaling: {enabled: true}\nrefit:", "token: {secretName: refit-token}": "token: {}", "tls: {secretName: refit-tls, serverName: likeness}": "tls: {}",
		"\nadmin:\n  tls: {secretName: likeness-admin-tls, clientCA: true}\n  tokens: {secretName: likeness-tokens}": "",
	} {
		if !strings.Contains(sound, old) {
			t.Fatalf("%q is not in the example", old)
		}
		if _, err := render(parse(t, strings.Replace(sound, old, changed, 1))); err == nil || !strings.Contains(err.Error(), "refit") {
			t.Errorf("%s: %v", changed, err)
		}
	}
}

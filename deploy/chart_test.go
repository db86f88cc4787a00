package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/likenessdb/likeness/sidecar/config"
)

// manifest is the sidecar's configuration in a manifest: a file, and variables.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []container `yaml:"initContainers"`
				Containers     []container
			}
		}
	}
}

type container struct {
	Name string
	Args []string
	Env  []struct{ Name, Value string }
}

// TestManifestsConfigure has likeness read the configurations that the chart's examples render to, and the variables
// that every manifest sets beside them: a key that does not exist there is an error.
func TestManifestsConfigure(t *testing.T) {
	rendered, err := filepath.Glob("helm/rendered/*.yaml")
	if err != nil || len(rendered) < 3 {
		t.Fatal(rendered, err)
	}
	beside, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(beside) < 2 {
		t.Fatal(beside, err)
	}
	for _, name := range append(rendered, beside...) {
		t.Run(name, func(t *testing.T) {
			file, environment := told(t, read(t, name))
			if file == "" { // the user's own
				file = read(t, "likeness.yaml")
			}
			c, err := config.Parse("/etc/likeness/config/likeness.yaml", []byte(file), environment, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.Listen.GRPC != "0.0.0.0:7600" || c.Listen.Admin != "0.0.0.0:7601" {
				t.Errorf("it listens on %s and %s", c.Listen.GRPC, c.Listen.Admin)
			}
		})
	}
}

// told is the likeness.yaml of a ConfigMap, and the environment of the container called likeness.
func told(t *testing.T, text string) (file string, environment []string) {
	t.Helper()
	found := false
	for d := yaml.NewDecoder(bytes.NewReader([]byte(text))); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil && m.Kind == "" {
			t.Fatal(err)
		}
		if m.Kind == "ConfigMap" {
			file = m.Data["likeness.yaml"]
		}
		pod := m.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Name != "likeness" {
				continue
			}
			found = true
			for _, e := range c.Env {
				environment = append(environment, e.Name+"="+e.Value)
			}
		}
	}
	if !found {
		t.Fatal("no container is called likeness")
	}
	return file, environment
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goldenPT = "../../testdata/golden/pt/v_two_uids."

var unsaid = []string{
	"--hyper", "temperature=0.05", "--hyper", "dot_product_l2_norm=true", "--hyper", "gating_combination_type=glu_silu",
	"--hyper", "query_nonlinearity=swiglu", "--hyper", "softmax_dropout_rate=0.2",
}

// TestModelImportsCheckpoints: an imported checkpoint becomes a file that verifies, and the same
// model imported from different formats scores alike.
func TestModelImportsCheckpoints(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	importPT := func(name string, more ...string) result {
		return execute(t, "", append(append([]string{"model", "import", "--from", "rails", goldenPT + name + ".pt", path(name)}, unsaid...), more...)...)
	}
	if r := importPT("checkpoint", "--name", "mine"); r.code != 0 || !strings.Contains(r.out, "dropped 1 tensors of other modules") {
		t.Fatalf("%d %s%s", r.code, r.out, r.err)
	}
	for _, name := range []string{"legacy", "bf16"} {
		if r := importPT(name); r.code != 0 {
			t.Fatalf("%s: %s", name, r.err)
		}
	}
	if r := execute(t, "", "model", "verify", path("checkpoint")); r.code != 0 || !strings.Contains(r.out, "as in the file") || !strings.Contains(r.out, "agrees") {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
	if r := execute(t, "", "model", "show", path("checkpoint")); r.code != 0 || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "import.source v_two_uids.checkpoint.pt sha256:") {
		t.Errorf("the model does not say what it was made from: %s%s", r.out, r.err)
	}
	if r := execute(t, "", "model", "diff", path("checkpoint"), path("legacy")); r.code != 0 || !strings.Contains(r.out, "they score alike") {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
	if r := execute(t, "", "model", "diff", path("bf16"), path("legacy"), "--output", "json"); r.code != 1 || !strings.Contains(r.out, `"same_version": false`) {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
	if r := importPT("legacy"); r.code != 2 || !strings.Contains(r.err, "--force") {
		t.Errorf("a second time: %d %s", r.code, r.err)
	}
	addressed := filepath.Join(dir, "models")
	if err := os.Mkdir(addressed, 0o755); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "model", "import", path("checkpoint"), addressed)
	if files, err := os.ReadDir(addressed); err != nil || r.code != 0 || len(files) != 1 || !strings.HasPrefix(files[0].Name(), "mine-") {
		t.Errorf("%v %v %s", files, err, r.err)
	}
}

// TestModelDot writes the cosine as a model. Refused command lines say what is wrong, end with exit
// code 2 and write nothing.
func TestModelDot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cosine.safetensors")
	if r := execute(t, "", "model", "dot", path, "--dim", "384", "--normalise"); r.code != 0 || !strings.Contains(r.out, "model cosine, version") {
		t.Fatalf("%d %s%s", r.code, r.out, r.err)
	}
	if r := execute(t, "", "model", "show", path, "--output", "json"); r.code != 0 || !strings.Contains(r.out, `"dot"`) {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
	for want, args := range map[string][]string{
		"--force":     {path, "--dim", "3"},
		"dim is -1":   {path + "2", "--dim", "-1"},
		"\"dim\" not": {path},
	} {
		if r := execute(t, "", append([]string{"model", "dot"}, args...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%q: %d %s", args, r.code, r.err)
		}
	}
	if r := execute(t, "", "model", "dot", path, "--dim", "3", "--force"); r.code != 0 {
		t.Error(r.err)
	}
}

func TestModelImportRefuses(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "m.safetensors")
	pickle := filepath.Join(dir, "evil.pt")
	if err := os.WriteFile(pickle, []byte("\x80\x02cos\nsystem\n."), 0o600); err != nil {
		t.Fatal(err)
	}
	rails := func(from string, more ...string) []string {
		return append([]string{"model", "import", "--from", "rails", from, to}, more...)
	}
	for want, args := range map[string][]string{
		"temperature":      rails(goldenPT + "legacy.pt"),
		"query_hidden_dim": rails(goldenPT+"legacy.pt", append(unsaid, "--hyper", "query_hidden_dim=512")...),
		"temprature":       rails(goldenPT+"legacy.pt", append(unsaid, "--hyper", "temprature=0.07")...),
		"no NAME=VALUE":    rails(goldenPT+"legacy.pt", "--hyper", "temperature"),
		"neither rails":    {"model", "import", "--from", "onnx", goldenPT + "legacy.pt", to},
		"give --from":      {"model", "import", "--prefix", "x", goldenPT + "legacy.pt", to},
		"begins neither":   rails(pickle),
		"no such file":     rails(filepath.Join(dir, "none.pt")),
	} {
		if want == "neither rails" {
			want = "is neither"
		}
		r := execute(t, "", args...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
		if _, err := os.Stat(to); err == nil {
			t.Fatalf("%v wrote a model", args)
		}
	}
	for _, command := range []string{"show", "verify"} {
		if r := execute(t, "", "model", command, filepath.Join(dir, "none")); r.code != 2 {
			t.Errorf("%s: code %d", command, r.code)
		}
	}
	if r := execute(t, "", "model", "verify", pickle); r.code != 1 {
		t.Errorf("verify of a damaged file: code %d", r.code)
	}
}

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// The files of a model directory.
const (
	configFile    = "config.json"
	weightsFile   = "model.safetensors"
	distilledFile = "distilled.safetensors" // optional
)

// maxConfig limits the size of a config.json.
const maxConfig = 1 << 20

func openDirectory(path string) (*Model, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	config, err := readConfig(root)
	if err != nil {
		return nil, err
	}
	tensors, err := readTensors(root)
	if err != nil {
		return nil, err
	}
	p, err := Import(config, tensors)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if p.Name, err = baseName(path); err != nil {
		return nil, err
	}
	return New(p)
}

func baseName(path string) (string, error) {
	abs, err := filepath.Abs(path)
	return filepath.Base(abs), err
}

func readConfig(root *os.Root) ([]byte, error) {
	f, size, err := regular.OpenIn(root, configFile)
	if err != nil {
		return nil, directoryError(err)
	}
	defer f.Close()
	if size > maxConfig {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrFile, configFile, size, maxConfig)
	}
	return io.ReadAll(io.LimitReader(f, maxConfig))
}

// readTensors reads the weights and the optional learned probes, whose names get the prefix
// of package distilled.
func readTensors(root *os.Root) (tensor.Set, error) {
	tensors, err := readWeights(root, weightsFile)
	if err != nil {
		return nil, err
	}
	probes, err := readWeights(root, distilledFile)
	if errors.Is(err, os.ErrNotExist) {
		return tensors, nil
	}
	for name, t := range probes {
		if tensors.Has(distilled.Prefix + name) {
			return nil, fmt.Errorf("%w: %s and %s both have %q", ErrFile, weightsFile, distilledFile, distilled.Prefix+name)
		}
		tensors[distilled.Prefix+name] = t
	}
	return tensors, err
}

func readWeights(root *os.Root, name string) (tensor.Set, error) {
	f, size, err := regular.OpenIn(root, name)
	if err != nil {
		return nil, directoryError(err)
	}
	defer f.Close()
	file, err := safetensors.Read(f, size)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, name, err)
	case len(file.Ints) > 0:
		return nil, fmt.Errorf("%w: %s has integer tensors, and no kind uses any", ErrFile, name)
	}
	return file.Tensors, nil
}

// directoryError adds to err which files a directory must contain.
func directoryError(err error) error {
	return fmt.Errorf("%w: %w; the directory needs %s and %s, and links out of it are not followed",
		ErrFile, err, configFile, weightsFile)
}

// Import converts a RAILS configuration and weights under their RAILS names to a model's
// parameters. The config.json may be flat or nest its values in hyper_parameters. It must
// state what the weights do not reveal. Hyper-parameters that only training needs are
// dropped. Import returns ErrFile.
func Import(config []byte, tensors tensor.Set) (Parameters, error) {
	c, err := flatConfig(config)
	if err != nil {
		return Parameters{}, err
	}
	kind, err := modelType(c)
	if err != nil {
		return Parameters{}, err
	}
	normalise, err := readNormalise(c["normalise"])
	if err != nil {
		return Parameters{}, err
	}
	kept, err := importConfig(kind, c, normalise)
	if err != nil {
		return Parameters{}, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return Parameters{Kind: kind, Config: kept, Tensors: tensors, Provenance: provenance(c)}, nil
}

// modelType reads the key model_type.
func modelType(c map[string]json.RawMessage) (rerank.Kind, error) {
	raw := c["model_type"]
	var kind rerank.Kind
	if err := json.Unmarshal(raw, &kind); err != nil || kind != rerank.KindMoL && kind != rerank.KindBilinear {
		return "", fmt.Errorf("%w: model_type is %s, want %q or %q", ErrFile, raw, rerank.KindMoL, rerank.KindBilinear)
	}
	return kind, nil
}

// bothSides is the value of "normalise" in the configuration of a bilinear model.
const bothSides = "both sides to unit length"

// readNormalise reads the key "normalise", which RAILS does not have: whether the model was
// fitted on unit vectors. Without the key, vectors are used unchanged, as RAILS does,
// because normalising them would change the model's scores.
func readNormalise(raw json.RawMessage) (bool, error) {
	switch strings.TrimSpace(string(raw)) {
	case "", "false", "null":
		return false, nil
	case "true", `"` + bothSides + `"`:
		return true, nil
	default:
		return false, fmt.Errorf("%w: normalise is %s, want true, false or %q", ErrFile, raw, bothSides)
	}
}

// provenance extracts information on training and quality from a configuration: every text
// or number under a few keys, named by its path.
func provenance(c map[string]json.RawMessage) map[string]string {
	p := map[string]string{}
	for _, key := range []string{"source", "reference_name", "note", "training", "quality"} {
		var value any
		if json.Unmarshal(c[key], &value) == nil {
			flatten(p, key, value)
		}
	}
	return p
}

func flatten(p map[string]string, path string, value any) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for key, inner := range v {
			flatten(p, path+"."+key, inner)
		}
	default:
		p[path] = fmt.Sprint(v)
	}
}

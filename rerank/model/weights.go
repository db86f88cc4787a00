package model

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/rerank/torchfile"
)

// railsModules are the name prefixes of the tensors of a RAILS similarity. They distinguish
// its tensors from others of a training run.
var railsModules = []string{"_query_embeddings_fn.", "_item_embeddings_fn.", "_gating_fn."}

// Weights holds the tensors of a RAILS similarity that was found in a file.
type Weights struct {
	Tensors tensor.Set
	// Prefix was removed from the front of the names, such as
	// "module._ndp_module.".
	Prefix string
	// Dropped lists the names of tensors that belong to other modules.
	Dropped []string
}

// ReadWeights reads the state dict of a RAILS similarity from a .safetensors file or from a
// file of torch.save (a bare state dict or a checkpoint, in any of PyTorch's formats). A
// pickle is read as data, without running any code in it. ReadWeights finds the prefix of
// the similarity's modules; if several fit, the caller must choose one. It returns ErrFile,
// or the system's error.
func ReadWeights(path, prefix string) (*Weights, error) {
	var w *Weights
	isSafetensors, err := looksLikeSafetensors(path)
	switch {
	case err != nil:
		return nil, err
	case isSafetensors:
		w, err = readSafetensorsWeights(path, prefix)
	default:
		w, err = readTorchWeights(path, prefix)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// looksLikeSafetensors reports whether the file begins with an 8-byte length and JSON, or
// is named .safetensors.
func looksLikeSafetensors(path string) (bool, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head [9]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return false, fmt.Errorf("%w: %s has fewer than 9 bytes; want .safetensors or a file of torch.save", ErrFile, path)
	}
	return head[8] == '{' || strings.HasSuffix(path, Extension), nil
}

func readSafetensorsWeights(path, prefix string) (*Weights, error) {
	file, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if _, native := file.Metadata[headerKey]; native {
		return nil, fmt.Errorf("%w: it is a native model file already", ErrFile)
	}
	names := sortedNames(file.Tensors)
	w := &Weights{Tensors: tensor.Set{}}
	if w.Prefix, err = findPrefix(names, prefix); err != nil {
		return nil, err
	}
	return w, w.keep(names, func(name string) (tensor.Tensor, error) { return file.Tensors[name], nil })
}

func readTorchWeights(path, prefix string) (_ *Weights, err error) {
	file, err := torchfile.Open(path)
	if err != nil {
		if errors.Is(err, torchfile.ErrFormat) {
			err = fmt.Errorf("%w: %w", ErrFile, err)
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var found *Weights
	var from *torchfile.Dict
	var failed error
	for _, d := range file.Dicts {
		at, err := findPrefix(d.Names(), prefix)
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case from != nil:
			return nil, fmt.Errorf("%w: the dicts %q and %q both have a RAILS similarity; save one alone", ErrFile, from.Path, d.Path)
		default:
			found, from = &Weights{Tensors: tensor.Set{}, Prefix: at}, d
		}
	}
	if from == nil {
		return nil, failed
	}
	if err := found.keep(from.Names(), from.Load); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return found, nil
}

// keep loads the tensors of the similarity and records the names of the others.
func (w *Weights) keep(names []string, load func(name string) (tensor.Tensor, error)) error {
	for _, name := range names {
		key, ok := strings.CutPrefix(name, w.Prefix)
		if !ok || !isRails(key) {
			w.Dropped = append(w.Dropped, name)
			continue
		}
		t, err := load(name)
		if err != nil {
			return err
		}
		w.Tensors[key] = t
	}
	return nil
}

func isRails(key string) bool {
	return slices.ContainsFunc(railsModules, func(m string) bool { return strings.HasPrefix(key, m) })
}

// findPrefix returns the text in front of the names of RAILS modules. If a prefix is given,
// it must occur.
func findPrefix(names []string, given string) (string, error) {
	var found []string
	for _, name := range names {
		for _, m := range railsModules {
			at := strings.Index(name, m)
			if at >= 0 && !slices.Contains(found, name[:at]) {
				found = append(found, name[:at])
			}
		}
	}
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%w: no tensor's name has a module of RAILS, %q; its names are %.200q", ErrFile, railsModules, names)
	case given != "" && !slices.Contains(found, given):
		return "", fmt.Errorf("%w: no similarity has the prefix %q; want one of %q", ErrFile, given, found)
	case given != "":
		return given, nil
	case len(found) > 1:
		return "", fmt.Errorf("%w: similarities have the prefixes %q; name one (--prefix)", ErrFile, found)
	}
	return found[0], nil
}

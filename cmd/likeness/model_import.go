package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
)

const importLong = `FROM is a directory with RAILS names (model.safetensors, config.json, and
distilled.safetensors if there are probes), or a native file, which is written again.
With --from rails it is the state dict of a MoL, written as .safetensors or by
torch.save.

A state dict needs --config or --hyper: temperature, dot_product_l2_norm,
gating_combination_type and the nonlinearities; they have to fit the weights. No code in
a pickle runs. If TO is a directory, the file is named after the model and its version.`

// importFlags are the flags of model import.
type importFlags struct {
	format, config, prefix, name string
	hyper                        []string
	force                        bool
}

// importResult is the JSON report of `likeness model import`.
type importResult struct {
	model.Description
	Path string `json:"path"`
	// Prefix and Dropped describe an imported state dict: the prefix removed from the
	// names, and the tensors of other modules that were dropped.
	Prefix  string   `json:"prefix,omitempty"`
	Dropped []string `json:"dropped,omitempty"`
}

func newModelImportCommand(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FROM TO",
		Short: "Write a model directory or a RAILS state dict as one native file",
		Long:  importLong,
		Example: `  likeness model import examples/models/banking77-mol banking77.safetensors
  likeness model import --from rails checkpoint.pt mol.safetensors --config config.json
  likeness model import --from rails state_dict.pt models/ --hyper temperature=0.05 --hyper dot_product_l2_norm=true \
    --hyper gating_combination_type=glu_silu --hyper query_nonlinearity=swiglu --hyper softmax_dropout_rate=0.2`,
		Args: cobra.ExactArgs(2),
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		r, err := f.run(args[0], args[1])
		if err != nil {
			return badModel(err)
		}
		return a.print(*out, r, func(w io.Writer) error {
			if n := len(r.Dropped); n > 0 {
				_, _ = fmt.Fprintf(w, "dropped %d tensors of other modules: %s\n", n, shorten(strings.Join(r.Dropped, ", ")))
			}
			_, err := fmt.Fprintf(w, "wrote %s: model %s, version %s\n", r.Path, r.Name, r.Version)
			return err
		})
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *importFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.format, "from", "likeness", "what FROM is: likeness (directory or native file) or rails (state dict)")
	flags.StringVar(&f.config, "config", "", "config.json with the hyper-parameters of a state dict")
	flags.StringArrayVar(&f.hyper, "hyper", nil, "hyper-parameter NAME=VALUE, over --config; may be repeated")
	flags.StringVar(&f.prefix, "prefix", "", "prefix of the similarity's tensors, where a state dict has several")
	flags.StringVar(&f.name, "name", "", "name of the model; empty keeps it")
	flags.BoolVar(&f.force, "force", false, "replace existing files")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"likeness", "rails"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("config", "json")
}

func (f importFlags) run(from, to string) (*importResult, error) {
	r := &importResult{Path: to}
	m, err := f.read(from, r)
	if err != nil {
		return nil, err
	}
	if f.name != "" {
		m.Name = f.name
	}
	if err := m.Embed(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		r.Path = filepath.Join(to, fmt.Sprintf("%s-%s%s", filepath.Base(m.Name), m.Version, model.Extension))
	}
	if _, err := os.Lstat(r.Path); err == nil && !f.force {
		return nil, usagef("%s exists; replace it with --force", r.Path)
	}
	r.Description = m.Describe()
	return r, model.Write(r.Path, m)
}

func (f importFlags) read(from string, r *importResult) (*model.Model, error) {
	switch f.format {
	case "likeness":
		if f.config != "" || f.hyper != nil || f.prefix != "" {
			return nil, usagef("--config, --hyper and --prefix are of a state dict; give --from rails")
		}
		return model.Open(from)
	case "rails":
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			return model.Open(from)
		}
		return f.readRAILS(from, r)
	default:
		return nil, usagef("--from %q is neither likeness nor rails", f.format)
	}
}

func (f importFlags) readRAILS(from string, r *importResult) (*model.Model, error) {
	weights, err := model.ReadWeights(from, f.prefix)
	if err != nil {
		return nil, err
	}
	r.Prefix, r.Dropped = weights.Prefix, weights.Dropped
	config, err := f.hyperParameters()
	if err != nil {
		return nil, err
	}
	if config, err = model.Complete(config, weights.Tensors); err != nil {
		return nil, err
	}
	p, err := model.Import(config, weights.Tensors)
	if err != nil {
		return nil, err
	}
	p.Name = strings.TrimSuffix(filepath.Base(from), filepath.Ext(from))
	digest, err := dataset.FileDigest(from)
	if err != nil {
		return nil, err
	}
	p.Provenance["import.source"] = filepath.Base(from) + " sha256:" + digest
	p.Provenance["tool"] = "likeness " + buildinfo.Read(stamp()).Version
	return model.New(p)
}

// hyperParameters returns the hyperparameters of --config, overridden by --hyper.
func (f importFlags) hyperParameters() ([]byte, error) {
	config := []byte("{}")
	if f.config != "" {
		var err error
		if config, err = os.ReadFile(f.config); err != nil {
			return nil, err
		}
	}
	given := map[string]json.RawMessage{}
	for _, h := range f.hyper {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usagef("--hyper %q is no NAME=VALUE", h)
		}
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(value) // a plain word, which JSON needs in quotes
		}
		given[name] = raw
	}
	config, err := model.Override(config, given)
	if err != nil {
		return nil, fmt.Errorf("hyper-parameters: %w", err)
	}
	return config, nil
}

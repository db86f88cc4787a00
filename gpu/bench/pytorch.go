package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// PyTorch describes how to run the cases in PyTorch.
type PyTorch struct {
	Python string // path of the Python interpreter
	Script string // the path of bench/gpu/baseline.py
	// Arguments are additional arguments of the script, such as --device cpu.
	Arguments []string
}

// Row is the result of one way of running a case in PyTorch.
type Row struct {
	Type     string         `json:"type"`
	Compiled bool           `json:"compiled"`
	Times    workload.Times `json:"times"`
	// Chunk is how many rows were scored at a time; 0 means all candidates.
	Chunk int `json:"chunk"`
	// Agrees is the share of likeness's rows that PyTorch found too.
	Agrees float64 `json:"agrees"`
	// Graphs is how many graphs PyTorch compiled. More than one means that pieces had
	// different shapes.
	Graphs int    `json:"graphs,omitempty"`
	Error  string `json:"error,omitempty"`
}

// line is a line of the script's output.
type line struct {
	Case    string `json:"case"`
	PyTorch string `json:"pytorch"`
	Row
}

// subject is the description of a case for the script.
type subject struct {
	workload.Case
	Features   int    `json:"features"`
	Units      int    `json:"units"` // number of normalised blocks at the start of a row
	Block      int    `json:"block"` // numbers in a block
	Seed       uint32 `json:"seed"`
	PairsQuery int    `json:"pairs_query"`
	PairsItem  int    `json:"pairs_item"`
	Dim        int    `json:"dim"`
	SiLU       bool   `json:"silu"`
	Candidates int    `json:"candidates"`
}

// run runs every case. If PyTorch with CUDA is missing, that is not an error: the report
// says so.
func (p *PyTorch) run(ctx context.Context, o *Options, r *Report) (err error) {
	dir, err := os.MkdirTemp("", "likeness-pytorch")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Told("the cases for PyTorch")
	for i := range r.Cases {
		if r.Cases[i].fromBefore {
			continue
		}
		if err := writeSubject(&r.Cases[i], o.Seed, filepath.Join(dir, fmt.Sprintf("%02d.safetensors", i))); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, p.Python, append([]string{p.Script, dir}, p.Arguments...)...) //nolint:gosec // the program is the user's
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.PyTorch = fmt.Sprintf("not measured: %v", err)
		return nil
	}
	for i := range r.Cases {
		if !r.Cases[i].fromBefore { // otherwise they are from another run
			r.Cases[i].PyTorch = nil
		}
	}
	read := p.read(out, o, r)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		why := fmt.Sprintf("%v: %s", err, lines[len(lines)-1])
		if r.PyTorch == "" {
			r.PyTorch = "not measured: " + why
			return nil
		}
		r.PyTorch += "; ended early: " + why
	}
	return read
}

func (p *PyTorch) read(out io.Reader, o *Options, r *Report) error {
	lines := bufio.NewScanner(out)
	var saved error
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // output of a library
		}
		if l.PyTorch != "" {
			r.PyTorch = l.PyTorch
		}
		for i := range r.Cases {
			if r.Cases[i].Name == l.Case {
				o.Told(fmt.Sprintf("PyTorch, %s, compiled %v: %s", l.Type, l.Compiled, l.Case))
				r.Cases[i].PyTorch = append(r.Cases[i].PyTorch, l.Row)
				saved = errors.Join(saved, o.save(r))
			}
		}
	}
	return errors.Join(lines.Err(), saved)
}

// writeSubject writes a case to a file in the format of the script.
func writeSubject(r *Result, seed uint32, path string) error {
	small := r.Case
	small.Rows = min(small.Rows, 1) // the script builds the table itself
	small.Candidates = 0
	w, err := workload.Make(small, seed)
	if err != nil {
		return err
	}
	if r.Case.Candidates > 0 {
		w.Candidates = workload.Candidates(&r.Case)
	}
	spec, n := w.Model.Spec(), gpu.NetworkOf(w.Model)
	s := subject{Case: r.Case, Features: spec.Features, Seed: seed, Dim: r.Case.Dim, Candidates: r.Case.Candidates}
	f := &safetensors.File{Tensors: tensor.Set{}, Ints: map[string]safetensors.Ints{}}
	if n.MoL != nil {
		s.Units, s.Block, s.PairsQuery, s.PairsItem, s.Dim = n.MoL.PairsItem, spec.Block, n.MoL.PairsQuery, n.MoL.PairsItem, n.MoL.Dim
		s.SiLU = n.MoL.Combination == mol.GLUSiLU
		addLayers(f, n.MoL)
	}
	for _, q := range w.Queries {
		if err := addOperands(f, w, q); err != nil {
			return err
		}
	}
	for _, ids := range w.Candidates {
		addInts(f, "candidates", ids)
	}
	for i := range r.Answer.Answers {
		addInts(f, "answers", r.Answer.Answers[i].Rows)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f.Metadata = map[string]string{"case": string(text)}
	var file bytes.Buffer
	if err := safetensors.Write(&file, f); err != nil {
		return fmt.Errorf("case %s: %w", r.Name, err)
	}
	return os.WriteFile(path, file.Bytes(), 0o600)
}

func addLayers(f *safetensors.File, n *mol.Network) {
	for name, m := range map[string]rerank.Matrix{"first": n.First, "second": n.Second} {
		f.Tensors[name] = tensor.Tensor{Shape: []int{m.Rows, m.Cols}, Data: m.Data}
	}
	f.Tensors["first_bias"] = tensor.Tensor{Shape: []int{len(n.FirstBias)}, Data: n.FirstBias}
	f.Tensors["second_bias"] = tensor.Tensor{Shape: []int{len(n.SecondBias)}, Data: n.SecondBias}
}

// addOperands adds the operands of a query: components over τ and its part of the gates, or
// its vector.
func addOperands(f *safetensors.File, w *workload.Work, q rerank.Query) error {
	enc, err := w.Model.Encode(q)
	if err != nil {
		return err
	}
	o := rerank.EncodedAbilitiesOf(enc).Operate.Operands()
	v := make([]float32, len(o.Vectors.Data))
	for i, x := range o.Vectors.Data {
		v[i] = x * o.Scale
	}
	if o.Gates == nil {
		addFloats(f, "vectors", v, o.Vectors.Cols)
		return nil
	}
	addFloats(f, "components", v, o.Vectors.Rows, o.Vectors.Cols)
	addFloats(f, "gates", o.Gates, len(o.Gates))
	return nil
}

// addFloats appends the numbers of one query to a tensor.
func addFloats(f *safetensors.File, name string, v []float32, shape ...int) {
	t := f.Tensors[name]
	t.Data = append(t.Data, v...)
	t.Shape = append([]int{len(t.Data) / len(v)}, shape...)
	f.Tensors[name] = t
}

func addInts(f *safetensors.File, name string, v []uint32) {
	t := f.Ints[name]
	for _, x := range v {
		t.Data = append(t.Data, int64(x))
	}
	t.Shape = []int{len(t.Data) / max(1, len(v)), len(v)}
	f.Ints[name] = t
}

package parity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrGolden: a golden file does not have the expected content.
var ErrGolden = errors.New("golden case is not valid")

// Golden reads all cases of a folder such as testdata/golden, whose README.md describes
// them: MoL, bilinear forms, the CUR approximation, max-sim, and a retrieval of 2,000
// items. It returns ErrGolden or the system's error. No case is optional.
func Golden(folder string) ([]Subject, error) {
	dirs, err := filepath.Glob(filepath.Join(folder, "mol", "*"))
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%w: %s has no folder mol with cases; --golden names the folder of the golden files", ErrGolden, folder)
	}
	if err != nil {
		return nil, err
	}
	var all []Subject
	for _, dir := range dirs {
		s, err := goldenMoL(dir)
		if err != nil {
			return nil, fmt.Errorf("golden case %s: %w", dir, err)
		}
		all = append(all, s)
	}
	for _, read := range []func(folder string) ([]Subject, error){goldenRetrieval, goldenBilinear, goldenRBE, goldenMaxSim} {
		s, err := read(folder)
		if err != nil {
			return nil, fmt.Errorf("golden cases of %s: %w", folder, err)
		}
		all = append(all, s...)
	}
	return all, nil
}

// tensors is the content of one file of a case.
type tensors struct{ *safetensors.File }

func readTensors(parts ...string) (tensors, error) {
	f, err := safetensors.ReadFile(filepath.Join(parts...))
	return tensors{f}, err
}

// matrix returns a tensor as a matrix. All axes but the first are flattened.
func (f tensors) matrix(name string) (rerank.Matrix, error) {
	t, ok := f.Tensors[name]
	if !ok || len(t.Shape) == 0 || t.Shape[0] == 0 {
		return rerank.Matrix{}, fmt.Errorf("%w: it has no rows %q", ErrGolden, name)
	}
	return rerank.Matrix{Rows: t.Shape[0], Cols: len(t.Data) / t.Shape[0], Data: t.Data}, nil
}

// subject builds a case from the tensors with the base vectors, the queries and the
// expected scores.
func (f tensors) subject(name string, m *model.Model, items, queries, scores string) (s Subject, err error) {
	base, err := f.matrix(items)
	if err != nil {
		return s, err
	}
	queryRows, err := f.matrix(queries)
	if err != nil {
		return s, err
	}
	s = Subject{Name: name, Model: m, Rows: rerank.NewMatrix(base.Rows, m.Spec().Features)}
	if err := m.EncodeItems(s.Rows, base); err != nil {
		return s, err
	}
	for i := range queryRows.Rows {
		q := rerank.Query{Vector: queryRows.Row(i)}
		if ids, ok := f.Ints["user_ids"]; ok && i < len(ids.Data) {
			q.UserID, q.HasUserID = ids.Data[i], true
		}
		s.Queries = append(s.Queries, q)
	}
	if scores == "" {
		return s, nil
	}
	s.Wants, err = f.matrix(scores)
	return s, err
}

// readMoL reads the model in a case's folder. given reports whether the case's inputs are
// components.
func readMoL(dir string) (m *model.Model, given bool, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, false, err
	}
	var c struct {
		Parameters mol.Config `json:"hyper_parameters"`
		Given      bool       `json:"components_given"`
	}
	raw = bytes.ReplaceAll(raw, []byte(": NaN"), []byte(": null")) // Python writes NaN, JSON has none
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, false, fmt.Errorf("%w: config.json: %w", ErrGolden, err)
	}
	c.Parameters.ComponentsGiven = c.Given
	weights, err := readTensors(dir, "weights.safetensors")
	if err != nil {
		return nil, false, err
	}
	m, err = newModel(rerank.KindMoL, c.Parameters, weights.Tensors)
	return m, c.Given, err
}

func goldenMoL(dir string) (s Subject, err error) {
	m, given, err := readMoL(dir)
	if err != nil {
		return s, err
	}
	in, err := readTensors(dir, "inputs.safetensors")
	if err != nil {
		return s, err
	}
	side := "embeddings"
	if given {
		side = "components"
	}
	if s, err = in.subject("golden mol "+filepath.Base(dir), m, "item_"+side, "query_"+side, ""); err != nil {
		return s, err
	}
	out, err := readTensors(dir, "outputs.safetensors")
	if err != nil {
		return s, err
	}
	s.Wants, err = out.matrix("scores")
	return s, err
}

func goldenRetrieval(folder string) ([]Subject, error) {
	m, _, err := readMoL(filepath.Join(folder, "mol", "a_ml1m_8x4x64"))
	if err != nil {
		return nil, err
	}
	f, err := readTensors(folder, "retrieval", "ml1m_2000.safetensors")
	if err != nil {
		return nil, err
	}
	s, err := f.subject("golden retrieval ml1m_2000", m, "item_embeddings", "query_embeddings", "all_scores")
	return []Subject{s}, err
}

func goldenBilinear(folder string) (all []Subject, err error) {
	f, err := readTensors(folder, "bilinear", "rank8.safetensors")
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		form, scores string
		tensors      []string
	}{{"full", "scores_full", []string{"W"}}, {"low_rank", "scores_rank", []string{"P", "Q"}}} {
		set := tensor.Set{}
		for _, name := range c.tensors {
			set[name] = f.Tensors[name]
		}
		dim := f.Tensors["W"].Shape[0]
		m, err := newModel(rerank.KindBilinear, map[string]any{"query_embedding_dim": dim, "item_embedding_dim": dim, "form": c.form}, set)
		if err != nil {
			return nil, err
		}
		s, err := f.subject("golden bilinear "+c.form, m, "documents", "queries", c.scores)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func goldenRBE(folder string) ([]Subject, error) {
	f, err := readTensors(folder, "rbe", "cur.safetensors")
	if err != nil {
		return nil, err
	}
	pinv, err := f.matrix("pinv")
	if err != nil {
		return nil, err
	}
	m, err := newRBE(pinv.Cols, pinv.Rows, func(i, j int) float32 { return pinv.Row(j)[i] })
	if err != nil {
		return nil, err
	}
	s, err := f.subject("golden rbe cur", m, "R_items_supportqueries", "query_embeddings", "approximation")
	return []Subject{s}, err
}

func goldenMaxSim(folder string) ([]Subject, error) {
	f, err := readTensors(folder, "behavioural", "cases.safetensors")
	if err != nil {
		return nil, err
	}
	vectors, err := f.matrix("maxsim.vectors")
	if err != nil {
		return nil, err
	}
	m, err := newModel(rerank.KindMaxSim, map[string]any{"dim": vectors.Cols}, nil)
	if err != nil {
		return nil, err
	}
	s, err := f.subject("golden maxsim", m, "maxsim.vectors", "maxsim.queries", "maxsim.scores")
	for _, owner := range f.Ints["maxsim.owner"].Data {
		s.Owners = append(s.Owners, int(owner))
	}
	return []Subject{s}, err
}

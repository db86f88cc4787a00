package model

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// SelfCheckKey is the provenance key under which a file stores scores of its model, for
// verification.
const SelfCheckKey = "self_check"

const (
	checkQueries = 2
	checkItems   = 3
	// checkTolerance is relative to the stored score, or absolute below 1.
	checkTolerance = 5e-5
)

// SelfCheck returns the scores of fixed queries for fixed items, as [query][item]. Element
// j of query r is sin(r·n + j + 1), of item r cos(r·n + j + 1), where n is the dimension of
// that side. Query r has user id r.
func (m *Model) SelfCheck() ([][]float32, error) {
	spec := m.Spec()
	items := waves(checkItems, spec.ItemDim, math.Cos)
	queries := waves(checkQueries, spec.QueryDim, math.Sin)
	features := rerank.NewMatrix(checkItems, spec.Features)
	if err := m.EncodeItems(features, items); err != nil {
		return nil, err
	}
	scores := make([][]float32, checkQueries)
	for r := range scores {
		e, err := m.Encode(rerank.Query{Vector: queries.Row(r), UserID: int64(r), HasUserID: spec.UserIDs})
		if err != nil {
			return nil, err
		}
		scores[r] = make([]float32, checkItems)
		if err := e.Score(scores[r], rerank.Items{Features: features}); err != nil {
			return nil, err
		}
	}
	return scores, nil
}

func waves(rows, cols int, f func(float64) float64) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(f(float64(i + 1)))
	}
	return m
}

// Embed stores the model's scores in its provenance, so that Verify can compare them.
func (m *Model) Embed() error {
	scores, err := m.SelfCheck()
	if err != nil {
		return err
	}
	text, err := json.Marshal(scores)
	if err != nil {
		return err
	}
	if m.Provenance == nil {
		m.Provenance = map[string]string{}
	}
	m.Provenance[SelfCheckKey] = string(text)
	return nil
}

// Verification is the result of Verify.
type Verification struct {
	Description
	// Digest: the file's SHA-256 equals the one in its header. It is false for a directory,
	// which has none.
	Digest bool `json:"digest"`
	// Scores: the file contains scores, and the model reproduces them. MaxError is the
	// greatest difference.
	Scores   bool    `json:"self_check"`
	MaxError float64 `json:"self_check_max_error"`
}

// Verify reads a model and checks everything that can be checked: the digest of a native
// file, the shapes, that every number is finite, and, if the file contains them, the
// scores. The version is computed from the content. Verify returns the errors of Open, and
// ErrFile for scores that differ.
func Verify(path string) (*Verification, error) {
	m, err := Open(path)
	if err != nil {
		return nil, err
	}
	v := &Verification{Description: m.Describe(), Digest: m.native}
	if err := m.checkFinite(); err != nil {
		return nil, err
	}
	text, ok := m.Provenance[SelfCheckKey]
	if !ok {
		return v, nil
	}
	if v.MaxError, err = m.compareScores(text); err != nil {
		return nil, fmt.Errorf("%w: %s: %s: %w", ErrFile, path, SelfCheckKey, err)
	}
	v.Scores = true
	return v, nil
}

// checkFinite returns ErrFile for a tensor with a number that is not finite.
func (m *Model) checkFinite() error {
	for _, name := range sortedNames(m.tensors) {
		if err := rerank.CheckFinite("tensor "+name, m.tensors[name].Data); err != nil {
			return fmt.Errorf("%w: %w", ErrFile, err)
		}
	}
	return nil
}

func (m *Model) compareScores(text string) (worst float64, err error) {
	var want [][]float64
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		return 0, fmt.Errorf("it is no JSON array of arrays of numbers: %w", err)
	}
	got, err := m.SelfCheck()
	if err != nil {
		return 0, err
	}
	if len(want) != len(got) {
		return 0, fmt.Errorf("it has %d rows, want %d", len(want), len(got))
	}
	for r, row := range got {
		if len(want[r]) != len(row) {
			return 0, fmt.Errorf("row %d has %d scores, want %d", r, len(want[r]), len(row))
		}
		for i, score := range row {
			d := math.Abs(float64(score) - want[r][i])
			if !(d <= checkTolerance*max(1, math.Abs(want[r][i]))) {
				return 0, fmt.Errorf("query %d and item %d score %v, the file says %v: the weights or their meaning changed", r, i, score, want[r][i])
			}
			worst = max(worst, d)
		}
	}
	return worst, nil
}

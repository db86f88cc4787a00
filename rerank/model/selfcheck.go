package model

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// SelfCheckKey is the provenance under which a file carries scores of its own.
const SelfCheckKey = "self_check"

const (
	checkQueries = 2
	checkItems   = 3
	// checkTolerance is relative to the greatest score, or 1.
	checkTolerance = 5e-5
)

// SelfCheck scores fixed queries against fixed items, [query][item]. Element j of
// query r is sin(r·n + j + 1), of item r cos(r·n + j + 1), n the side's dimension;
// query r is of user r.
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

// Embed puts the model's scores into its provenance, so that Verify can compare.
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

// Verification is what Verify found.
type Verification struct {
	Description
	// Digest: the file's SHA-256 agrees with the one in its header. A directory has none.
	Digest bool `json:"digest"`
	// Scores: the file carries scores of its own, and the model gives them, within
	// MaxError.
	Scores   bool    `json:"self_check"`
	MaxError float64 `json:"self_check_max_error"`
}

// Verify reads a model and checks all that can be: the digest of a native file,
// the shapes, that every number is finite, and, where the file carries them, the
// scores that it must give. The version is made anew from what was read. It
// returns the errors of Open, and ErrFile for scores that differ.
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

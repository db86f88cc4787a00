package rerank_test

import (
	"errors"
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestItemsAreChecked: every number of items and of their rows, at its limits.
func TestItemsAreChecked(t *testing.T) {
	rows := rerank.NewMatrix(3, 2)
	single, grouped := rerank.Spec{Features: 2}, rerank.Spec{Features: 2, GroupedRows: true}
	for name, c := range map[string]struct {
		items  rerank.Items
		places int
		spec   rerank.Spec
		ok     bool
	}{
		"rows":                     {rerank.Items{Features: rows}, 3, single, true},
		"none":                     {rerank.Items{}, 0, single, true},
		"places too few":           {rerank.Items{Features: rows}, 2, single, false},
		"places too many":          {rerank.Items{Features: rows}, 4, single, false},
		"rows of another length":   {rerank.Items{Features: rerank.NewMatrix(3, 1)}, 3, single, false},
		"numbers too few":          {rerank.Items{Features: rerank.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 5)}}, 3, single, false},
		"picked":                   {rerank.Items{Features: rows, Rows: []int32{2, 0}}, 2, single, true},
		"picked behind the last":   {rerank.Items{Features: rows, Rows: []int32{3}}, 1, single, false},
		"picked before the first":  {rerank.Items{Features: rows, Rows: []int32{-1}}, 1, single, false},
		"groups":                   {rerank.Items{Features: rows, Starts: []int32{0, 1, 1, 3}}, 3, grouped, true},
		"groups of some rows":      {rerank.Items{Features: rows, Starts: []int32{1, 2}}, 1, grouped, true},
		"groups of a single kind":  {rerank.Items{Features: rows, Starts: []int32{0, 1, 2, 3}}, 3, single, false},
		"a group before the first": {rerank.Items{Features: rows, Starts: []int32{-1, 3}}, 1, grouped, false},
		"a group behind the last":  {rerank.Items{Features: rows, Starts: []int32{0, 4}}, 1, grouped, false},
		"a group that goes back":   {rerank.Items{Features: rows, Starts: []int32{0, 3, 2}}, 2, grouped, false},
		"a group of picked rows":   {rerank.Items{Features: rows, Rows: []int32{2, 0}, Starts: []int32{0, 2}}, 1, grouped, true},
		"more than were picked":    {rerank.Items{Features: rows, Rows: []int32{2, 0}, Starts: []int32{0, 3}}, 1, grouped, false},
	} {
		if err := c.items.Check(c.places, c.spec); (err == nil) != c.ok || err != nil && !errors.Is(err, rerank.ErrItems) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		starts []int32
		rows   int
		ok     bool
	}{
		"whole": {[]int32{0, 1, 3}, 3, true}, "none": {[]int32{0}, 0, true}, "nothing": {nil, 0, false}, "not from the first": {[]int32{1, 3}, 3, false},
		"not to the last": {[]int32{0, 2}, 3, false}, "beyond the last": {[]int32{0, 4}, 3, false}, "an item of no row": {[]int32{0, 3, 3}, 3, false},
	} {
		if err := rerank.CheckStarts(c.starts, c.rows); (err == nil) != c.ok || err != nil && !errors.Is(err, rerank.ErrItems) {
			t.Errorf("starts %s: %v", name, err)
		}
	}
}

// TestQueriesAreChecked: what a model takes, at its limits.
func TestQueriesAreChecked(t *testing.T) {
	vectors := func(rows int, v ...float32) rerank.Query {
		m := rerank.NewMatrix(rows, 2)
		copy(m.Data, v)
		return rerank.Query{Vectors: m}
	}
	nan := float32(math.NaN())
	plain, unit := rerank.Spec{QueryDim: 2}, rerank.Spec{QueryDim: 2, Normalise: true}
	many, manyUnit, users := rerank.Spec{QueryDim: 2, ManyVectors: true}, rerank.Spec{QueryDim: 2, ManyVectors: true, Normalise: true}, rerank.Spec{QueryDim: 2, UserIDs: true}
	for name, c := range map[string]struct {
		spec  rerank.Spec
		query rerank.Query
		ok    bool
	}{
		"a vector":                     {plain, rerank.Query{Vector: []float32{1, 2}}, true},
		"a zero vector":                {plain, rerank.Query{Vector: []float32{0, 0}}, true},
		"a zero vector to normalise":   {unit, rerank.Query{Vector: []float32{0, 0}}, false},
		"one number to normalise":      {unit, rerank.Query{Vector: []float32{0, 1}}, true},
		"too short":                    {plain, rerank.Query{Vector: []float32{1}}, false},
		"too long":                     {plain, rerank.Query{Vector: []float32{1, 2, 3}}, false},
		"no number":                    {plain, rerank.Query{Vector: []float32{1, nan}}, false},
		"without a user":               {users, rerank.Query{Vector: []float32{1, 2}}, false},
		"of user 0":                    {users, rerank.Query{Vector: []float32{1, 2}, HasUserID: true}, true},
		"one vector of many":           {many, rerank.Query{Vector: []float32{1, 2}}, true},
		"many":                         {many, vectors(2, 1), true},
		"many for a model of one":      {plain, vectors(2, 1), false},
		"as many as there may be":      {many, vectors(rerank.MaxQueryVectors, 1), true},
		"one more":                     {many, vectors(rerank.MaxQueryVectors+1, 1), false},
		"one and many":                 {many, rerank.Query{Vector: []float32{1, 2}, Vectors: rerank.NewMatrix(1, 2)}, false},
		"many of another length":       {many, rerank.Query{Vectors: rerank.NewMatrix(2, 3)}, false},
		"many cut off":                 {many, rerank.Query{Vectors: rerank.Matrix{Rows: 2, Cols: 2, Data: make([]float32, 3)}}, false},
		"many with no number":          {many, vectors(2, 1, 1, nan), false},
		"many zeros to normalise":      {manyUnit, vectors(2), false},
		"a zero among some":            {manyUnit, vectors(2, 0, 0, 0, 1), true},
		"many zeros, not to normalise": {many, vectors(2), true},
	} {
		if err := c.spec.CheckQuery(c.query); (err == nil) != c.ok || err != nil && !errors.Is(err, rerank.ErrQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

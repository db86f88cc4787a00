package search

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TestAgree: scores agree within the errors of both sides. A missing hit is no contradiction.
func TestAgree(t *testing.T) {
	one := rerank.UintID(1)
	for name, c := range map[string]struct {
		have, want           float64
		hitError, exactError float64
		same                 bool
	}{
		"equal":                      {2, 2, 0, 0, true},
		"a rounding":                 {2, 2 + 0x1p-23, 0, 0, true},
		"more than a rounding":       {2, 2 + 0x1p-21, 0, 0, false},
		"the error of the answer":    {2, 2.5, 0.5, 0, true},
		"the error of the exact one": {2, 1.5, 0, 0.5, true},
		"both errors":                {2, 3, 0.5, 0.5, true},
		"more than both":             {2, 3.01, 0.5, 0.5, false},
		"not a number":               {2, math.NaN(), 0.5, 0.5, false},
	} {
		hits := []Hit{{ID: one, Score: float32(c.have)}, {ID: rerank.UintID(2), Score: 9}}
		if got := agree(hits, c.hitError, map[rerank.ID]float64{one: c.want}, c.exactError); got != c.same {
			t.Errorf("%s: %t, want %t", name, got, c.same)
		}
	}
}

// TestStoppedBy: an error of a later round keeps the answer of the earlier rounds if time has run
// out or the store gives no deeper lists.
func TestStoppedBy(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	limit := &adapters.LimitError{Limit: "max_depth"}
	for name, c := range map[string]struct {
		ctx   context.Context
		round int
		err   error
		want  rerank.Stop
	}{
		"the first round":        {over, 1, limit, ""},
		"time is over":           {over, 2, errors.New("failed"), rerank.StopDeadline},
		"the store's limit":      {t.Context(), 2, limit, rerank.StopLimit},
		"the store fails":        {t.Context(), 2, adapters.ErrUnavailable, ""},
		"the store is too large": {over, 3, limit, rerank.StopDeadline},
	} {
		if got := stoppedBy(c.ctx, c.round, c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

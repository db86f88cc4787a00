package httprank

import (
	"errors"
	"math"
	"testing"

	"github.com/likenessdb/likeness/sidecar/ranker"
)

func FuzzTEI(f *testing.F) { fuzz(f, TEI, `[{"index":1,"score":0.5},{"index":0,"score":null}]`) }
func FuzzCohere(f *testing.F) {
	fuzz(f, Cohere, `{"id":"x","results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":2}]}`)
}
func FuzzJina(f *testing.F) {
	fuzz(f, Jina, `{"results":[{"index":0,"document":{"text":"x"},"relevance_score":0.5},{"index":1,"relevance_score":1e38}]}`)
}

// fuzz wants of any answer ErrAnswer, or as many scores as texts, none infinite.
func fuzz(f *testing.F, name, seed string) {
	f.Helper()
	f.Add([]byte(seed), 2)
	f.Add([]byte(seed+"x"), 2)
	f.Add([]byte(`null`), 0)
	f.Fuzz(func(t *testing.T, answer []byte, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		scores, err := dialects[name].scores(answer, n)
		if err != nil {
			if !errors.Is(err, ranker.ErrAnswer) {
				t.Errorf("%v is not %v", err, ranker.ErrAnswer)
			}
			return
		}
		if len(scores) != n {
			t.Errorf("%d scores for %d texts", len(scores), n)
		}
		for _, s := range scores {
			if math.IsInf(float64(s), 0) {
				t.Error("an infinite score")
			}
		}
	})
}

// FuzzText wants no panic, and no error but for what is no object.
func FuzzText(f *testing.F) {
	f.Add([]byte(`{"a":"x","b":[1,"y",null,{"c":[]}]}`))
	f.Fuzz(func(_ *testing.T, payload []byte) { _, _ = textOf(payload, []string{"a", "b"}) })
}

package calibrate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestSelfCalibrationOnQdrant: a route of a bilinear form over Qdrant's own index, without a table, calibrates itself on
// two hundred questions, and later questions keep what it promises.
func TestSelfCalibrationOnQdrant(t *testing.T) {
	m, err := model.Open("../../examples/models/banking77-questions-bilinear")
	must(t, err)
	items := vectors(t, "train_vectors.npy", 1)
	r := route.Route{
		Policy: route.Policy{Name: questions, Collection: questions, Vector: "vector", StoreName: "qdrant", Placement: route.PlacementRewrite, EF: 4},
		Parts:  route.Parts{Store: qdrantHNSW(t, items), Model: route.Model{Name: "questions", Version: m.Version, Similarity: m.Similarity}},
	}
	exact := r
	exact.Name, exact.ExactSearch = "exact", true
	keeper, counts := calibrate.Keep("", .01), &counts{}
	r.Promise = keeper
	auditor := calibrate.NewAuditor(calibrate.AuditorOptions{
		Routes: map[string]calibrate.Audits{questions: {Self: true, Every: 1}}, Recorder: counts, Logger: quiet(),
	})
	engine, err := search.New([]*route.Route{&r, &exact}, search.Options{Observer: auditor})
	must(t, err)
	must(t, engine.Open(t.Context()))
	ask := func(name string, q []float32) search.Answer {
		a, err := engine.Search(t.Context(), search.Request{Route: name, Query: rerank.Query{Vector: q}, K: 10})
		must(t, err)
		auditor.AuditDrawn(t.Context(), engine)
		return a
	}
	all := vectors(t, "test_vectors.npy", 1)
	order := rand.New(rand.NewPCG(1, 2)).Perm(all.Rows)
	auditor.AuditDrawn(t.Context(), engine)
	for i, row := range order[:200] {
		if c := ask(questions, all.Row(row)).Certificate; c.Status != rerank.StatusUnknown {
			t.Fatalf("question %d is answered %s", i, c.Status)
		}
	}
	c := ask(questions, all.Row(order[200])).Certificate
	if c.Status != rerank.StatusCalibrated {
		t.Fatalf("after 200 questions: %+v, sampled %d, failed %d", c, counts.of(calibrate.OutcomeSampled), counts.of(calibrate.SkippedFailed))
	}
	kept, later := 0, order[201:501]
	for _, row := range later {
		got, want := ask(questions, all.Row(row)), ask("exact", all.Row(row))
		if want.Certificate.Status != rerank.StatusExact {
			t.Fatalf("an exhaustive search is answered %s", want.Certificate.Status)
		}
		found := map[rerank.ID]bool{}
		for _, h := range got.Hits {
			found[h.ID] = true
		}
		hits := 0
		for _, h := range want.Hits {
			if found[h.ID] {
				hits++
			}
		}
		if float64(hits)/10 >= c.Calibration.Recall-1e-9 {
			kept++
		}
	}
	t.Logf("after 200 questions the route promises recall@10 ≥ %v; %d of %d later questions kept it", c.Calibration.Recall, kept, len(later))
	// A promise that only just holds falls below this in one of a thousand draws.
	if n := float64(len(later)); float64(kept) < .95*n-3.1*math.Sqrt(.95*.05*n) {
		t.Errorf("%d of %d later questions reached the recall %v", kept, len(later), c.Calibration.Recall)
	}
}

package calibrate_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// calibratesItself: a route of a bilinear form over the store's own index, without a table, calibrates itself on two hundred
// questions, and later questions keep what it promises.
func calibratesItself(t *testing.T, store adapters.Store) {
	t.Helper()
	r := route.Route{
		Policy: route.Policy{Name: questions, Collection: questions, Vector: "vector", StoreName: "qdrant", Placement: route.PlacementRewrite, EF: 4},
		Parts:  route.Parts{Store: store, Model: questionsModel(t, "bilinear")},
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
		if recallOf(got, want) >= c.Calibration.Recall-1e-9 {
			kept++
		}
	}
	t.Logf("after 200 questions the route promises recall@10 ≥ %v; %d of %d later questions kept it", c.Calibration.Recall, kept, len(later))
	// A promise that only just holds falls below this in one of a thousand draws.
	if n := float64(len(later)); float64(kept) < .95*n-3.1*math.Sqrt(.95*.05*n) {
		t.Errorf("%d of %d later questions reached the recall %v", kept, len(later), c.Calibration.Recall)
	}
}

// calibratesItselfByAScan: a Mixture-of-Logits without a table has no exact answers. The route reads its collection
// once, and later questions keep what it then promises. given has the table of the collection, which answers exactly.
func calibratesItselfByAScan(t *testing.T, given route.Route) {
	t.Helper()
	withoutTable, scan := given, given
	withoutTable.Head, withoutTable.Depth, withoutTable.Placement, withoutTable.Table = "residual", 100, route.PlacementStored, nil
	scan.Name, scan.Strategy, scan.Head, scan.Placement = "exact", rerank.Scan, "", route.PlacementTable
	withoutTable.Promise = calibrate.Keep("", .01)
	auditor := calibrate.NewAuditor(calibrate.AuditorOptions{
		Routes:   map[string]calibrate.Audits{questions: {Self: true, Every: 1, Scans: calibrate.Scans{RowsPerSecond: 1 << 30}}},
		Recorder: &counts{}, Logger: quiet(),
	})
	engine, err := search.New([]*route.Route{&withoutTable, &scan}, search.Options{Observer: auditor})
	must(t, err)
	must(t, engine.Open(t.Context()))
	auditor.AuditDrawn(t.Context(), engine)
	ask := func(name string, q []float32) search.Answer {
		a, err := engine.Search(t.Context(), search.Request{Route: name, Query: rerank.Query{Vector: q}, K: 10})
		must(t, err)
		auditor.AuditDrawn(t.Context(), engine)
		return a
	}
	all := vectors(t, "test_vectors.npy", 1)
	order := rand.New(rand.NewPCG(1, 2)).Perm(all.Rows)
	for _, row := range order[:209] {
		ask(questions, all.Row(row))
	}
	if !auditor.ScanAt(t.Context(), engine, time.Now()) {
		t.Fatal("the collection was not read")
	}
	c := ask(questions, all.Row(order[209])).Certificate
	if c.Status != rerank.StatusCalibrated {
		t.Fatalf("after the scan: %+v", c)
	}
	kept, later := 0, order[210:510]
	for _, row := range later {
		if recallOf(ask(questions, all.Row(row)), ask("exact", all.Row(row))) >= c.Calibration.Recall-1e-9 {
			kept++
		}
	}
	t.Logf("after one scan the route promises recall@10 ≥ %v; %d of %d later questions kept it", c.Calibration.Recall, kept, len(later))
	// A promise that only just holds falls below this in one of a thousand draws.
	if n := float64(len(later)); float64(kept) < .95*n-3.1*math.Sqrt(.95*.05*n) {
		t.Errorf("%d of %d later questions reached the recall %v", kept, len(later), c.Calibration.Recall)
	}
}

// recallOf returns the share of the exact answer's items that an answer has.
func recallOf(got, exact search.Answer) float64 {
	found, hits := map[rerank.ID]bool{}, 0
	for _, h := range got.Hits {
		found[h.ID] = true
	}
	for _, h := range exact.Hits {
		if found[h.ID] {
			hits++
		}
	}
	return float64(hits) / float64(len(exact.Hits))
}

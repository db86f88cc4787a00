package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Limits of the searches of a shadow step.
const (
	shadowQueries = 200
	shadowK       = 10
)

// shadowReport says how the candidate answered queries that nobody waits for.
type shadowReport struct {
	experiment.Observed
	// Common is the mean number of items that the version in service found too.
	Common float64
	// P99 is the time within which 99 % of the searches ended, on this machine.
	P99 time.Duration
}

// String returns the report in words.
func (s shadowReport) String() string {
	return fmt.Sprintf("shadow: the candidate answered %d of the newest queries; %.1f of %d items are those of the version in service, %d answers failed, %d degraded, %d empty, p99 %s here",
		s.Answers, s.Common, shadowK, s.Errors, s.Degraded, s.Empty, s.P99.Round(10*time.Microsecond))
}

// refusal returns why an experiment would stop the candidate at once, or "". Latency is left to the
// experiment, because a refit is slow on purpose.
func (s shadowReport) refusal(g config.ExperimentGuard) []string {
	return experiment.Guards{Degraded: g.Degraded, Empty: g.Empty, Errors: g.Errors}.Check(s.Observed)
}

// shadow searches the newest queries of the log with the candidate and with the version in service.
func (r *refit) shadow(ctx context.Context) (s shadowReport, err error) {
	queries, err := dataset.OpenVectors(ctx, r.file("test-queries.parquet")+"#vector")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	served, err := r.answers(ctx, "", queries.Matrix)
	if err != nil {
		return s, err
	}
	candidate, err := r.answers(ctx, r.version, queries.Matrix)
	if err != nil {
		return s, err
	}
	return compareAnswers(served, candidate), nil
}

// compareAnswers counts what the candidate answered, beside the answers of the version in service to the same
// queries.
func compareAnswers(served, candidate []shadowAnswer) (s shadowReport) {
	common, took := 0, make([]time.Duration, len(candidate))
	for i, got := range candidate {
		want := served[i].answer.Hits
		took[i] = got.took
		s.Answers++
		switch {
		case got.err != nil:
			s.Errors++
		case got.answer.Degraded != nil:
			s.Degraded++
		case len(got.answer.Hits) == 0 && len(want) > 0:
			s.Empty++
		}
		for _, h := range got.answer.Hits {
			if slices.ContainsFunc(want, func(o search.Hit) bool { return o.ID == h.ID }) {
				common++
			}
		}
	}
	slices.Sort(took)
	s.Common, s.P99 = float64(common)/float64(len(candidate)), took[len(took)*99/100]
	return s
}

// evenly returns at most so many of the given number of rows, at equal distances.
func evenly(rows, most int) []int {
	all := make([]int, min(rows, most))
	for i := range all {
		all[i] = i * rows / len(all)
	}
	return all
}

// shadowAnswer is the answer of one version, or its error, and the time that it took.
type shadowAnswer struct {
	answer search.Answer
	err    error
	took   time.Duration
}

// answers searches with a version of the route, evenly spaced queries.
func (r *refit) answers(ctx context.Context, version string, queries rerank.Matrix) (all []shadowAnswer, err error) {
	parts, err := wiring.Open(ctx, r.config, wiring.Only(r.route, version))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	engine, err := search.New(parts.Routes, search.Options{})
	if err == nil {
		err = engine.Open(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, row := range evenly(queries.Rows, shadowQueries) {
		began := time.Now()
		one := shadowAnswer{}
		one.answer, one.err = engine.Search(ctx, search.Request{Route: r.route, K: shadowK, Query: rerank.Query{Vector: slices.Clone(queries.Row(row))}})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		one.took = time.Since(began)
		all = append(all, one)
	}
	return all, nil
}

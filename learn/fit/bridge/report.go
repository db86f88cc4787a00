package bridge

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/verdict"
)

// Evidence says what the alternatives were judged by.
type Evidence string

// The evidence of a verdict.
const (
	// Pairs are right answers to the queries.
	Pairs Evidence = "pairs"
	// Agreement compares with the new model's own first ten, and cannot tell whether these are
	// right.
	Agreement Evidence = "agreement"
)

// The names of the alternatives.
const (
	KeepOld = "the old model"
	Bridged = "the bridge"
	Lazily  = "the bridge with lazy re-embedding"
	Anew    = "a new index"
)

// Report says what a fit did and which alternative to take.
type Report struct {
	Texts     int    `json:"texts"`
	OldDim    int    `json:"old_dim"`
	NewDim    int    `json:"new_dim"`
	Normalise bool   `json:"normalise"`
	Seed      uint64 `json:"seed"`
	// Ridge is the penalty of the regression.
	Ridge float64 `json:"ridge"`
	// Explained is the share of the variance of new vectors that the map predicts, of texts that it
	// has not seen.
	Explained float64 `json:"explained"`
	// FromQueries reports whether the map has learned from the queries as well as from the texts.
	FromQueries bool `json:"from_queries"`
	// AnswerShare is how far the map draws an item towards the queries that it answers: 0 is not at all.
	AnswerShare float64     `json:"answer_share"`
	Calibration Calibration `json:"calibration"`
	// Lazy is the share of the items embedded again in the alternative Lazily.
	Lazy     float64  `json:"lazy"`
	Evidence Evidence `json:"evidence"`
	// Items and Queries count the texts that were ranked and the queries that judged.
	Items   int `json:"items"`
	Queries int `json:"queries"`
	// Ways holds the alternatives, the cheapest first.
	Ways     []Way       `json:"ways"`
	Segments []Segment   `json:"segments,omitempty"`
	Verdict  fit.Verdict `json:"verdict"`
	Warnings []string    `json:"warnings,omitempty"`
}

// Way is an alternative and its quality.
type Way struct {
	Name   string  `json:"name"`
	NDCG   float64 `json:"ndcg"`   // nDCG@10
	Recall float64 `json:"recall"` // recall of the relevant items at 10
	// Kept is the share of the new index's nDCG@10, with its interval.
	Kept float64 `json:"kept"`
	Low  float64 `json:"kept_low"`
	High float64 `json:"kept_high"`
}

// Segment judges the queries of a segment by themselves.
type Segment struct {
	Name    string      `json:"name"`
	Ways    []Way       `json:"ways"`
	Verdict fit.Verdict `json:"verdict"`
}

// fewSegmentQueries is the number of queries below which a segment is not judged.
const fewSegmentQueries = 20

// judge ranks the items by each alternative, and fills the report.
func (t *trial) judge(ctx context.Context, r *Report) error {
	r.Evidence = Pairs
	if t.relevant == nil {
		r.Evidence = Agreement
		anew, err := rank(ctx, t.nowQueries, t.hidden, t.now, judge.Cutoff)
		if err != nil {
			return err
		}
		t.relevant = rowsOf(anew)
	}
	t.keepAnswerable()
	r.Items, r.Queries = t.old.Rows, len(t.relevant)
	if r.Queries < 2 {
		return fmt.Errorf("%w: %d queries have a right answer among the texts, want 2 at least and a few hundred for a verdict", fit.ErrData, r.Queries)
	}
	bridges := 1
	if r.Evidence == Pairs {
		bridges += len(answerShares)
	}
	done := t.options.Progress.Begin("ranking by the old model, the bridge and the new model", 3+bridges*queryParts)
	answers, err := rank(ctx, t.nowQueries, t.hidden, t.mapped, min(touchDepth, t.old.Rows))
	if err != nil {
		return err
	}
	done(1)
	chosen, err := t.chooseShare(ctx, r.Evidence, answers, done)
	if err != nil {
		return err
	}
	t.served = chosen.served
	r.Ridge, r.AnswerShare, r.Calibration = chosen.served.ridge, chosen.share, t.calibrate(chosen.bridge)
	kept, err := rank(ctx, t.oldQueries, t.hidden, t.old, judge.Cutoff)
	if err != nil {
		return err
	}
	done(1)
	anew, err := rank(ctx, t.nowQueries, t.hidden, t.now, judge.Cutoff)
	if err != nil {
		return err
	}
	done(1)
	all := []marks{t.mark(kept), t.mark(chosen.bridge), t.mark(chosen.lazily), t.mark(anew)}
	everyone := t.everyone()
	r.Ways = t.ways(all, everyone)
	r.Verdict = t.decide(r.Evidence, all, everyone, r.Ways)
	t.judgeSegments(r, all)
	r.warn()
	return nil
}

// everyone returns the numbers of all queries.
func (t *trial) everyone() []int32 {
	all := make([]int32, len(t.relevant))
	for q := range all {
		all[q] = int32(q)
	}
	return all
}

// rowsOf returns the items of a ranking in ascending order.
func rowsOf(r ranking) [][]int32 {
	out := make([][]int32, len(r))
	for q, list := range r {
		out[q] = slices.Sorted(slices.Values(list.Rows))
	}
	return out
}

// judgeSegments judges each segment of enough queries.
func (t *trial) judgeSegments(r *Report, all []marks) {
	members := map[string][]int32{}
	var names []string
	for q, name := range t.segments {
		if members[name] == nil {
			names = append(names, name)
		}
		members[name] = append(members[name], int32(q))
	}
	for _, name := range names {
		own := members[name]
		if len(own) < fewSegmentQueries {
			r.Warnings = append(r.Warnings, fmt.Sprintf("segment %s is not judged: it has %d queries, want %d at least", name, len(own), fewSegmentQueries))
			continue
		}
		ways := t.ways(all, own)
		r.Segments = append(r.Segments, Segment{Name: name, Ways: ways, Verdict: t.decide(r.Evidence, all, own, ways)})
	}
}

// wayNames returns the names of the alternatives, the cheapest first.
func wayNames() []string { return []string{KeepOld, Bridged, Lazily, Anew} }

// ways summarises the marks of some queries.
func (t *trial) ways(all []marks, queries []int32) []Way {
	anew := pick(all[3].ndcg, queries)
	best := judge.Mean(anew, nil)
	var out []Way
	for i, name := range wayNames() {
		own := pick(all[i].ndcg, queries)
		w := Way{Name: name, NDCG: judge.Mean(own, nil), Recall: judge.Mean(pick(all[i].recall, queries), nil)}
		if best > 0 {
			w.Kept = w.NDCG / best
			rest := make([]float64, len(own)) // what an answer of this kept share would have
			for q, v := range anew {
				rest[q] = w.Kept * v
			}
			d := t.difference(own, rest, queries)
			w.Low, w.High = w.Kept+d.Low/best, w.Kept+d.High/best
		}
		out = append(out, w)
	}
	return out
}

// difference compares two alternatives on some queries. Queries with the same first right answer win and
// lose together.
func (t *trial) difference(a, b []float64, queries []int32) verdict.Difference {
	o := judge.Outcomes{Scores: a, Baseline: b, Items: make([]int32, len(queries))}
	for i, q := range queries {
		o.Items[i] = t.relevant[q][0]
	}
	c := judge.Compare(o)
	return verdict.NewDifference(c.Gain, c.StandardError, c.Queries, t.options.Confidence)
}

// decide takes the cheapest alternative that is as good as the best and better than the old model.
func (t *trial) decide(e Evidence, all []marks, queries []int32, ways []Way) fit.Verdict {
	best, last := 1, 3
	if e == Agreement {
		last = 2 // the new model agrees with itself
	}
	for i := 1; i <= last; i++ {
		if ways[i].NDCG > ways[best].NDCG {
			best = i
		}
	}
	c := verdict.Comparison{Metric: "ndcg@10", Plain: KeepOld, PlainValue: ways[0].NDCG}
	if e == Agreement {
		c.Metric = "agreement with the new model"
	}
	for i := 1; i <= last; i++ {
		own := pick(all[i].ndcg, queries)
		c.Models = append(c.Models, verdict.Model{
			Name: ways[i].Name, Value: ways[i].NDCG,
			Gain: t.difference(own, pick(all[0].ndcg, queries), queries), ToBest: t.difference(own, pick(all[best].ndcg, queries), queries),
		})
	}
	rule := verdict.Rule{Confidence: t.options.Confidence}
	if gain := ways[best].NDCG - ways[0].NDCG; gain > 0 {
		rule.Margin = t.options.Tolerance * ways[best].NDCG / gain
	}
	d := verdict.Decide(c, rule)
	v := fit.NewVerdict(d, len(queries), KeepOld)
	if d.Choice >= 0 {
		v.Choose = ways[d.Choice+1].Name
	}
	if e == Agreement && v.Answer == verdict.Yes && ways[d.Choice+1].Low < 1-t.options.Tolerance {
		v.Answer, v.Choose = verdict.Unclear, KeepOld
		v.Text = []string{
			fmt.Sprintf("Cannot tell without pairs: keep %s until they judge.", KeepOld),
			fmt.Sprintf("%s agrees with the new model's first ten by %.4f, and %s by %.4f; what the rest costs only right answers to queries can say.",
				ways[d.Choice+1].Name, ways[d.Choice+1].NDCG, KeepOld, ways[0].NDCG),
		}
	}
	return v
}

// warn adds warnings to the report.
func (r *Report) warn() {
	if r.Texts < 3*r.OldDim {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d texts are few for a map of vectors of %d numbers; bring %d or more", r.Texts, r.OldDim, 3*r.OldDim))
	}
	if r.Evidence == Agreement {
		r.Warnings = append(r.Warnings, "there are no pairs: agreement with the new model says nothing about whether the new model is better than the old one")
	}
	if math.Abs(r.Calibration.Slope-1) > 0.5 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the bridge's scores are far from the new model's: the slope between them is %.2f", r.Calibration.Slope))
	}
}

package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/route"
)

// fullDim is the dimension up to which a full matrix is fitted. Beyond it a trial fits a
// matrix of low rank, to take minutes.
const (
	fullDim = 512
	lowRank = 64
)

// learn fits a bilinear form, and judges it.
func (t *trial) learn(ctx context.Context, k *task) (*model.Model, error) {
	if t.look.field.Metric == adapters.L2 && !t.sample.unit {
		return nil, &RefusalError{fmt.Sprintf("%s of collection %q is compared by L2, and its vectors have norms from %.3g to %.3g: a learned similarity is an inner product, and follows from L2 for vectors of norm 1 only; use a cosine field, or write unit vectors",
			t.look.Vector.phrase(), t.Collection, t.sample.least, t.sample.most), nil}
	}
	o := t.fitOptions(k)
	fitted, err := fitbilinear.Fit(ctx, k.teach, o)
	if errors.Is(err, fit.ErrData) {
		return nil, &RefusalError{err.Error(), err}
	}
	if err != nil {
		return nil, err
	}
	m, err := t.newModel(fitted, k)
	if err != nil {
		return nil, err
	}
	judgment, err := t.judge(ctx, m, k)
	if err != nil {
		return nil, err
	}
	t.report.Learned = &Learned{From: fmt.Sprintf("%s; %s chose the settings", k.from, o.Measure.Name()), Judgment: judgment}
	return m, nil
}

// fitOptions returns the options of the fit.
func (t *trial) fitOptions(k *task) fitbilinear.Options {
	o := fitbilinear.DefaultOptions()
	o.Normalise = t.normalises()
	o.Seed, o.Cold, o.ColdShare = t.Seed, fit.ColdIgnore, 0
	o.PairsPerQuery = k.pairsPerQuery
	o.Measure = fit.MeasureFor(t.metricOf(k))
	o.Progress = fit.Progress(t.Progress)
	if dim := t.look.field.Dim; dim > fullDim {
		o.Form, o.Rank = bilinear.IdentityLowRank, min(lowRank, dim)
	}
	return o
}

// metricOf returns the metric of the verdict: the one of the options, or the task's own.
func (t *trial) metricOf(k *task) string { return cmp.Or(t.Metric, k.metric) }

// normalises reports whether vectors are compared as unit vectors.
func (t *trial) normalises() bool {
	return t.look.field.Metric == adapters.Cosine || t.sample.unit
}

func (t *trial) newModel(fitted *fitbilinear.Fitted, k *task) (*model.Model, error) {
	config, err := json.Marshal(fitted.Config)
	if err != nil {
		return nil, err
	}
	fitted.Report.Spectrum = nil
	var report bytes.Buffer
	if err := json.NewEncoder(&report).Encode(fitted.Report); err != nil {
		return nil, err
	}
	m, err := model.New(model.Parameters{
		Kind: rerank.KindBilinear, Name: modelName, Config: config, Tensors: fitted.Tensors,
		Provenance: map[string]string{
			"tool": "likeness try", "data.items": "collection " + t.Collection, "data.from": k.from, "fit.report": strings.TrimSpace(report.String()),
		},
	})
	if err != nil {
		return nil, err
	}
	return m, m.Embed()
}

// judge compares the model with the database's own similarity, on queries from which
// nothing was learned.
func (t *trial) judge(ctx context.Context, m *model.Model, k *task) (*eval.Report, error) {
	name := "cosine"
	if !t.normalises() {
		name = "dot"
	}
	plain, err := dot.New(dot.Config{Dim: t.look.field.Dim, Normalise: t.normalises()}, nil)
	if err != nil {
		return nil, err
	}
	traits, err := eval.TraitsOf(m, true)
	if err != nil {
		return nil, err
	}
	in, err := t.judgingInput(k)
	if err != nil {
		return nil, err
	}
	in.Model, in.Traits = route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, traits
	in.Baseline = route.Model{Name: name, Similarity: plain}
	r, err := eval.Run(ctx, in)
	if errors.Is(err, eval.ErrInput) {
		return nil, &RefusalError{err.Error(), err}
	}
	return r, err
}

// judgingInput returns the evaluation by the judges of a task, without the models.
func (t *trial) judgingInput(k *task) (eval.Input, error) {
	pairs, err := eval.NewWeightedPairs(k.relevant, k.weights)
	return eval.Input{
		Items: k.items, ItemIDs: k.itemIDs, Queries: k.queries, QueryIDs: k.queryIDs, Pairs: pairs, Popularity: k.popularity,
		K: t.K, Metric: t.metricOf(k), Seed: t.Seed, Progress: t.Progress,
	}, err
}

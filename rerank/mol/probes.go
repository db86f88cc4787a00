package mol

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

const notLinear = "the item side of the model is not linear, so no probe can be moved onto them; " +
	"write a companion collection with `likeness index`, or use the strategy distilled"

// Probes implements rerank.Encoded (RAILS, section 4: TopKPerEmbd, TopKAvg and CombTopK).
// For the stored vectors the probes are transformed (pulled back): ⟨f, A_j x + b_j⟩ =
// ⟨A_jᵀf, x⟩ + ⟨f, b_j⟩. If the model normalises item components, the transformed probe
// cannot include the norm, so its lists suggest candidates and bound nothing.
func (e *encoded) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	switch p.Strategy {
	case rerank.Scan:
		return nil, nil
	case rerank.Distilled:
		return asList(e.s.probes.Probe(e.vector, p))
	case rerank.Companion:
		return asList(e.s.learned.Probe(e.QueryFeatures(), p))
	case rerank.PerEmbedding:
		return e.perEmbedding(p)
	case rerank.Average:
		return asList(e.averageProbe(p, p.Depth))
	case rerank.Combined:
		probes, err := e.perEmbedding(p)
		if err != nil {
			return nil, err
		}
		average, err := e.averageProbe(p, p.AverageDepth)
		return append(probes, average), err
	default:
		return nil, fmt.Errorf("%w: %q is none of %q", rerank.ErrStrategy, p.Strategy, rerank.Strategies())
	}
}

func asList(p rerank.Probe, err error) ([]rerank.Probe, error) {
	if err != nil {
		return nil, err
	}
	return []rerank.Probe{p}, nil
}

func (e *encoded) perEmbedding(p rerank.Plan) ([]rerank.Probe, error) {
	c := e.c
	probes := make([]rerank.Probe, 0, c.pairs())
	for i := range c.PairsQuery {
		for j := range c.PairsItem {
			f := e.components.Row(i)
			probe := rerank.Probe{Field: component(j), Vector: f, Target: rerank.TargetLogit}
			if !p.Derived {
				var err error
				if probe, err = e.storedProbe(placeComponent(f, j, c.PairsItem), p.Strategy, rerank.TargetLogit); err != nil {
					return nil, err
				}
			}
			probe.Pair, probe.Depth, probe.Scale = i*c.PairsItem+j, p.Depth, 1
			probes = append(probes, probe)
		}
	}
	return probes, nil
}

// placeComponent returns a concatenation of zero components with f as component j.
func placeComponent(f []float32, j, components int) []float32 {
	w := make([]float32, components*len(f))
	copy(w[j*len(f):], f)
	return w
}

// averageProbe returns the averaged probe ⟨Σ_i f_i, Σ_j g_j / P_X⟩, or, with gate weights, Σ_ij
// π_ij(q, x̄)⟨f_i, g_j⟩ for the mean item x̄.
func (e *encoded) averageProbe(p rerank.Plan, depth int) (rerank.Probe, error) {
	weights, err := e.pairWeights(p.Weights)
	if err != nil {
		return rerank.Probe{}, err
	}
	w := e.weightedSum(weights)
	probe := rerank.Probe{Field: FieldConcat, Vector: w}
	switch {
	case !p.Derived:
		if probe, err = e.storedProbe(w, p.Strategy, rerank.TargetNone); err != nil {
			return rerank.Probe{}, err
		}
	case p.Weights != rerank.GateWeights:
		sum := make([]float32, e.c.Dim)
		for i := range e.c.PairsQuery {
			for k, v := range e.components.Row(i) {
				sum[k] += v
			}
		}
		probe = rerank.Probe{Field: FieldMean, Vector: sum}
	}
	probe.Depth, probe.Scale = depth, 1
	return probe, nil
}

// pairWeights returns the weights of the pairs in an averaged probe.
func (e *encoded) pairWeights(w rerank.Weights) ([]float32, error) {
	weights := make([]float32, e.c.pairs())
	switch w {
	case "", rerank.UniformWeights:
		for l := range weights {
			weights[l] = 1 / float32(e.c.PairsItem)
		}
		return weights, nil
	case rerank.GateWeights:
		if e.s.meanItem == nil {
			return nil, fmt.Errorf("%w: weights %s need the mean item, tensor \"probe.mean_item\", which the model lacks; use weights %s",
				rerank.ErrStrategy, w, rerank.UniformWeights)
		}
		sc := e.s.borrow()
		defer e.s.scratch.Put(sc)
		e.gateInputs(weights, sc, rerank.Items{Features: rowOf(e.s.meanItem)}, 0)
		e.c.toProbabilities(weights)
		return weights, nil
	default:
		return nil, fmt.Errorf("%w: weights %q are neither %q nor %q", rerank.ErrStrategy, w, rerank.UniformWeights, rerank.GateWeights)
	}
}

// storedProbe returns the probe that computes Σ_j ⟨w_j, g_j⟩ on the stored vector.
func (e *encoded) storedProbe(w []float32, strategy rerank.Strategy, target rerank.Target) (rerank.Probe, error) {
	vector, offset, ok := e.s.pullBack(w)
	if !ok {
		return rerank.Probe{}, fmt.Errorf("%w: %s on the stored vectors: %s", rerank.ErrStrategy, strategy, notLinear)
	}
	return rerank.Probe{Vector: vector, Offset: offset, Target: e.s.pulledTarget(target)}, nil
}

// pulledTarget returns what a pulled-back probe still measures of target t.
func (s *Similarity) pulledTarget(t rerank.Target) rerank.Target {
	if s.c.hasUnitComponents() {
		return rerank.TargetNone
	}
	return t
}

// pullsBack reports whether probes can be transformed to search the stored vector.
func (s *Similarity) pullsBack() bool { return s.c.ComponentsGiven || s.item.isLinear() }

// pullBack transforms Σ_j ⟨w_j, A_j x + b_j⟩ into ⟨vector, x⟩ + offset: vector = Σ_j A_jᵀ
// w_j, summed in float64 and rounded once, and offset = Σ_j ⟨w_j, b_j⟩. It reports false if
// the item side is not linear.
func (s *Similarity) pullBack(w []float32) (vector []float32, offset float32, ok bool) {
	if s.c.ComponentsGiven {
		return w, 0, true
	}
	if !s.pullsBack() {
		return nil, 0, false
	}
	sums := make([]float64, s.c.ItemDim)
	var bias float64
	for r, v := range w {
		if v == 0 {
			continue // the probe of one pair has a single nonzero component
		}
		for k, a := range s.item.out.w.Row(r) {
			sums[k] += float64(v) * float64(a)
		}
		bias += float64(v) * float64(s.item.out.bias[r])
	}
	vector = make([]float32, len(sums))
	for k, v := range sums {
		vector[k] = float32(v)
	}
	return vector, float32(bias), true
}

// Bound implements rerank.Encoded.
//
// An item in no list has every logit at or below the threshold t_ij of that pair's list,
// and φ is a weighted mean of logits over τ. So U = max t_ij / τ if the lists cover every
// pair. U never exceeds 1/τ for normalised components; it is +Inf if neither limit applies,
// and −Inf if a list is exhausted, because that list contains every item. If an item has one
// component, every list limits every logit (otherLimits).
//
// Epsilon is the lists' greatest Epsilon over τ (doubled for a pulled-back probe, whose
// elements and offset were rounded a second time) plus the bound of Score's rounding, for
// the feature rows that this query's Score has read.
func (e *encoded) Bound(probes []rerank.Probe, lists []rerank.List) rerank.Bound {
	tau := e.c.Temperature
	n := min(len(probes), len(lists))
	thresholds := make([]float64, e.c.pairs())
	for l := range thresholds {
		thresholds[l] = math.Inf(1)
	}
	ceiling, listed := float64(e.s.spec.MaxScore), 0.0
	for i, l := range lists[:n] {
		if l.Exhausted {
			ceiling = math.Inf(-1)
		}
		if p := probes[i]; p.Target == rerank.TargetLogit && p.Pair >= 0 && p.Pair < len(thresholds) {
			t := float64(l.Threshold()) + float64(p.Offset)
			thresholds[p.Pair] = min(thresholds[p.Pair], t/tau)
			listed = max(listed, (float64(l.Epsilon)*roundings(p)+math.Abs(float64(p.Offset))*0x1p-24)/tau)
		}
		for pair, limit := range e.otherLimits(probes[i], l) {
			thresholds[pair] = min(thresholds[pair], limit/tau)
		}
	}
	top := math.Inf(-1)
	for _, t := range thresholds {
		top = max(top, t)
	}
	return rerank.Bound{Max: float32(min(ceiling, top)), Epsilon: above(listed + e.scoreError()), Lists: above(listed)}
}

// otherLimits bounds ⟨f_i, g⟩, for every i, of an item with one normalised component g that is
// missing from an exact list over g: of the averaged probe, or of another f. Such an item has
// ⟨F, g⟩ ≤ t for the probe's vector F and the list's threshold t. With the cosine c of f_i and
// F, and s = t/‖F‖, the largest ⟨f_i, g⟩ is ‖f_i‖ if s ≥ c, and otherwise lies where
// ⟨F, g⟩ = t: ‖f_i‖·(c·s + √(1−c²)·√(1−s²)). otherLimits returns nil for other lists: of
// several components, one can make up for another.
func (e *encoded) otherLimits(p rerank.Probe, l rerank.List) []float64 {
	length := rerank.Norm(p.Vector)
	if p.Field == "" || e.c.PairsItem > 1 || !e.c.hasUnitComponents() || length == 0 {
		return nil
	}
	const margin = 1e-6 // far above the roundings of float64 and of the norm of g
	s := max(-1, (float64(l.Threshold())+float64(l.Epsilon))/length+margin)
	limits := make([]float64, e.c.PairsQuery)
	for i := range limits {
		f := e.components.Row(i)
		norm := rerank.Norm(f)
		limits[i] = norm
		if c := kernel.DotWide(f, p.Vector) / (norm * length); s < c && c <= 1 {
			limits[i] = norm * (c*s + math.Sqrt((1-c*c)*(1-s*s)))
		}
		limits[i] += margin
	}
	return limits
}

// roundings returns how often a probe's elements were rounded.
func roundings(p rerank.Probe) float64 {
	if p.Field == "" {
		return 2
	}
	return 1
}

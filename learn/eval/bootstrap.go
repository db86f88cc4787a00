package eval

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// Interval is a confidence interval of a mean.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Paired is the mean difference between two rankings of the same queries.
type Paired struct {
	Difference float64 `json:"difference"`
	Interval
	// Positive is the share of the bootstrap samples in which the difference is above
	// 0.
	Positive float64 `json:"positive"`
	// Wins, Ties and Losses are shares of the queries, of the traffic, or of the weighed clicks.
	Wins   float64 `json:"wins"`
	Ties   float64 `json:"ties"`
	Losses float64 `json:"losses"`
}

// series holds one number for each query, and optionally limits the mean to some
// queries.
type series struct {
	values  []float64
	members []bool    // queries that count; nil: all
	weights []float64 // of the queries; nil: all 1
}

// weight returns how much query i counts.
func (s series) weight(i int) float64 {
	switch {
	case s.members != nil && !s.members[i]:
		return 0
	case s.weights != nil:
		return s.weights[i]
	default:
		return 1
	}
}

// mean returns the mean over the member queries, and their weight.
func (s series) mean() (mean, weight float64) {
	var sum float64
	for i, v := range s.values {
		w := s.weight(i)
		sum += w * v
		weight += w
	}
	if weight == 0 {
		return 0, 0
	}
	return sum / weight, weight
}

func subtract(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

// sampler draws bootstrap samples of queries. Queries with equal vectors form a
// cluster, which is drawn as a whole because its queries win and lose together.
type sampler struct {
	cluster    []int     // cluster number of each query
	weights    []float64 // of each query; nil: all 1
	clusters   int
	resamples  int
	confidence float64
	seed       uint64
}

// maxDraws limits the total number of draws.
const maxDraws = 2e7

func newSampler(queries []rerank.Query, in *Input) *sampler {
	s := &sampler{cluster: make([]int, len(queries)), confidence: in.Confidence, seed: in.Seed, resamples: in.Resamples}
	seen := map[string]int{}
	var key []byte
	for i, q := range queries {
		key = binary.LittleEndian.AppendUint64(key[:0], uint64(q.UserID))
		for _, v := range q.Vector {
			key = binary.LittleEndian.AppendUint32(key, math.Float32bits(v))
		}
		c, ok := seen[string(key)]
		if !ok {
			c = len(seen)
			seen[string(key)] = c
		}
		s.cluster[i] = c
	}
	s.clusters = len(seen)
	s.resamples = min(s.resamples, max(200, int(maxDraws)/max(1, s.clusters)))
	return s
}

// resample returns the mean of each series in each bootstrap sample, NaN if the sample
// has no member query. The seed and the sample's number determine the draws.
func (s *sampler) resample(ctx context.Context, all []series) ([][]float64, error) {
	width := 2 * len(all)
	sums := make([]float64, s.clusters*width) // for each cluster, a sum and a count for each series
	for n, x := range all {
		for i, v := range x.values {
			at, w := s.cluster[i]*width+2*n, x.weight(i)
			sums[at] += w * v
			sums[at+1] += w
		}
	}
	means := make([][]float64, len(all))
	for n := range means {
		means[n] = make([]float64, s.resamples)
	}
	err := runParallel(ctx, s.resamples, func(_, b int) error {
		rng := rand.New(rand.NewPCG(s.seed, uint64(b)))
		total := make([]float64, width)
		for range s.clusters {
			row := sums[rng.IntN(s.clusters)*width:][:width]
			for i, v := range row {
				total[i] += v
			}
		}
		for n := range all {
			means[n][b] = total[2*n] / total[2*n+1]
		}
		return nil
	})
	return means, err
}

// percentileInterval returns the percentiles of the resampled means.
func (s *sampler) percentileInterval(means []float64) Interval {
	sorted := slices.DeleteFunc(slices.Clone(means), math.IsNaN)
	if len(sorted) == 0 {
		return Interval{}
	}
	slices.Sort(sorted)
	tail := (1 - s.confidence) / 2
	at := func(p float64) float64 { // interpolates linearly between the nearest two means
		x := p * float64(len(sorted)-1)
		i := int(x)
		if i+1 >= len(sorted) {
			return sorted[len(sorted)-1]
		}
		return sorted[i] + (x-float64(i))*(sorted[i+1]-sorted[i])
	}
	return Interval{Low: at(tail), High: at(1 - tail)}
}

// summarisePaired summarises a series of differences with its resampled means.
func (s *sampler) summarisePaired(d series, means []float64) Paired {
	p := Paired{Interval: s.percentileInterval(means)}
	var total float64
	p.Difference, total = d.mean()
	for i, v := range d.values {
		switch w := d.weight(i); {
		case v > 0:
			p.Wins += w
		case v < 0:
			p.Losses += w
		default:
			p.Ties += w
		}
	}
	total = max(total, math.SmallestNonzeroFloat64)
	p.Wins, p.Ties, p.Losses = p.Wins/total, p.Ties/total, p.Losses/total
	for _, m := range means {
		if m > 0 {
			p.Positive++
		}
	}
	p.Positive /= float64(max(1, len(means)))
	return p
}

// compareSeries resamples the differences a − b of two series with equal weights.
func (s *sampler) compareSeries(ctx context.Context, a, b series) (Paired, error) {
	d := series{values: subtract(a.values, b.values), weights: a.weights}
	means, err := s.resample(ctx, []series{d})
	if err != nil {
		return Paired{}, err
	}
	return s.summarisePaired(d, means[0]), nil
}

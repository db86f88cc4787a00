package eval

import (
	"cmp"
	"slices"
)

// Segment is the quality on some of the queries. A query belongs to the segment that
// contains most of its relevant items.
type Segment struct {
	// Name is head, torso or tail by the items' popularity, warm or cold, or, of queries, seen
	// before or new.
	Name string `json:"name"`
	// Items counts the items of the segment, which have at least From and fewer than
	// Below pairs each. If Below is 0, there is no upper limit.
	Items   int     `json:"items"`
	From    float64 `json:"popularity_from"`
	Below   float64 `json:"popularity_below,omitempty"`
	Queries int     `json:"queries"`
	// Metric is the model's metric of the verdict on these queries, Baseline the baseline's.
	Metric   float64  `json:"metric"`
	Interval Interval `json:"interval"`
	Baseline *float64 `json:"baseline,omitempty"`
	Gain     *Paired  `json:"gain,omitempty"`

	members []bool // marks the queries of the segment
}

// plural returns what the segment consists of, such as "head items" or "queries seen before".
func (s Segment) plural() string {
	if s.Name == segmentSeen || s.Name == segmentNew {
		return "queries " + s.Name
	}
	return s.Name + " items"
}

// divideQueries divides the queries. Head, torso and tail get about a third of the pairs
// each, by the popularity of the items; items of equal popularity stay together.
// Without a training log no item is known to be cold.
func (in *Input) divideQueries(rows []int) []Segment {
	popularity := in.Popularity
	if popularity == nil {
		popularity = make([]float64, in.Items.Rows)
		for _, q := range rows {
			for at, item := range in.Pairs.relevant[q] {
				popularity[item] += in.Pairs.weightOf(q, at)
			}
		}
	}
	head, torso := popularityThirds(popularity)
	found := in.assignQueries(rows, popularity, []Segment{
		{Name: "head", From: head}, {Name: "torso", From: torso, Below: head}, {Name: "tail", Below: torso},
	})
	if len(found) < 2 {
		found = nil // all items are equally popular
	}
	if in.Popularity != nil {
		least := 1.0
		for _, p := range popularity {
			if p > 0 {
				least = min(least, p)
			}
		}
		found = append(found, in.assignQueries(rows, popularity, []Segment{{Name: "warm", From: least}, {Name: "cold", Below: least}})...)
	}
	return found
}

// popularityThirds returns the least popularity of an item of the head and of the torso.
func popularityThirds(popularity []float64) (head, torso float64) {
	sorted := slices.Clone(popularity)
	slices.SortFunc(sorted, func(a, b float64) int { return cmp.Compare(b, a) })
	var total, sum float64
	for _, p := range sorted {
		total += p
	}
	for _, p := range sorted {
		sum += p
		if head == 0 && sum >= total/3 {
			head = p
		}
		if sum >= 2*total/3 {
			return head, p
		}
	}
	return head, head
}

// assignQueries assigns the queries to the segments and drops segments without queries.
func (in *Input) assignQueries(rows []int, popularity []float64, all []Segment) []Segment {
	has := func(s *Segment, p float64) bool { return p >= s.From && (s.Below == 0 || p < s.Below) }
	for n := range all {
		s := &all[n]
		s.members = make([]bool, len(rows))
		for _, p := range popularity {
			if has(s, p) {
				s.Items++
			}
		}
	}
	for i, q := range rows {
		weights := make([]float64, len(all))
		for at, item := range in.Pairs.relevant[q] {
			for n := range all {
				if has(&all[n], popularity[item]) {
					weights[n] += in.Pairs.weightOf(q, at)
				}
			}
		}
		best := 0
		for n, w := range weights {
			if w >= weights[best] { // on a tie, the less popular segment
				best = n
			}
		}
		all[best].members[i] = true
		all[best].Queries++
	}
	return slices.DeleteFunc(all, func(s Segment) bool { return s.Queries == 0 })
}

package eval

import (
	"fmt"
	"slices"
)

// Traffic is the quality on a part of the traffic: each query counts as often as it was asked
// (MVG, table 3).
type Traffic struct {
	// Name is all, seen before (memorisation) or new (generalisation).
	Name string `json:"name"`
	// Share is the part's share of the traffic, Queries the number of its query rows.
	Share    float64 `json:"share"`
	Queries  int     `json:"queries"`
	Metrics  Metrics `json:"metrics"`
	Baseline Metrics `json:"baseline,omitempty"`
}

// Names of the segments of queries that the training log has and has not.
const (
	segmentSeen = "seen before"
	segmentNew  = "new"
)

// TrafficMetrics names the metrics that a table of traffic shows.
func TrafficMetrics(k int) []string {
	return []string{fmt.Sprintf("mrr@%d", k), fmt.Sprintf("map@%d", k), fmt.Sprintf("recall@%d", k)}
}

// askedOf returns how often each of the query rows was asked.
func (in *Input) askedOf(rows []int) []float64 {
	asked := make([]float64, len(rows))
	for i, q := range rows {
		asked[i] = 1
		if in.Asked != nil {
			asked[i] = in.Asked[q]
		}
	}
	return asked
}

// divideSeen divides the queries into those that the training log has and new ones.
func (in *Input) divideSeen(rows []int) []Segment {
	if in.SeenBefore == nil {
		return nil
	}
	parts := []Segment{{Name: segmentSeen}, {Name: segmentNew}}
	for n := range parts {
		s := &parts[n]
		s.members = make([]bool, len(rows))
		items := map[int32]bool{}
		for i, q := range rows {
			if in.SeenBefore[q] != (s.Name == segmentSeen) {
				continue
			}
			s.members[i] = true
			s.Queries++
			for _, x := range in.Pairs.relevant[q] {
				items[x] = true
			}
		}
		s.Items = len(items)
	}
	return slices.DeleteFunc(parts, func(s Segment) bool { return s.Queries == 0 })
}

// measureTraffic weighs the metrics by how often each query was asked. It returns nil if
// nobody knows which queries were seen before.
func (j *measureModel) measureTraffic(values, baseline map[string][]float64) []Traffic {
	if j.in.SeenBefore == nil {
		return nil
	}
	asked := j.in.askedOf(j.rows)
	means := func(values map[string][]float64, members []bool) Metrics {
		if values == nil {
			return nil
		}
		m := Metrics{}
		for name, v := range values {
			m[name], _ = series{values: v, members: members, weights: asked}.mean()
		}
		return m
	}
	parts := append([]Segment{{Name: "all", Queries: len(j.rows)}}, j.in.divideSeen(j.rows)...)
	var total float64
	for _, n := range asked {
		total += n
	}
	found := make([]Traffic, len(parts))
	for n, p := range parts {
		var sum float64
		for i, a := range asked {
			if p.members == nil || p.members[i] {
				sum += a
			}
		}
		found[n] = Traffic{Name: p.Name, Share: sum / total, Queries: p.Queries, Metrics: means(values, p.members), Baseline: means(baseline, p.members)}
	}
	return found
}

package clicks

import "slices"

// Choice is an item that was chosen for a query, and how much that counts.
type Choice struct {
	Query, Item int32
	Weight      float32
	Time        int64 // of the last choice
}

// Corrected are the choices of some answers, corrected for where the items were shown.
type Corrected struct {
	// Choices lists each pair once, by query and then by item.
	Choices []Choice
	// Passed[q] holds the items that were shown for query q and looked at once or more, as far as
	// the curve tells, but never chosen for it; ascending.
	Passed [][]int32
	// Clipped counts choices whose weight was cut to the greatest.
	Clipped int
	// EffectiveSize is the number of choices of equal weight that would teach as much:
	// (Σ weights)² / Σ weights², over single choices.
	EffectiveSize float64
}

// Correct divides the weight of each choice by the propensity of its position, and by no less than
// 1/clip. queries is the number of query rows.
func (c *Curve) Correct(answers []Answer, queries int, clip float64) *Corrected {
	r := &Corrected{Passed: make([][]int32, queries)}
	type seen struct {
		looks, weight float64
		time          int64
	}
	byQuery := make([]map[int32]seen, queries)
	var sum, squares float64
	for _, a := range answers {
		if byQuery[a.Query] == nil {
			byQuery[a.Query] = map[int32]seen{}
		}
		for i, x := range a.Items {
			p := c.At(a.Positions[i])
			s := byQuery[a.Query][x]
			s.looks += p
			if a.Weights[i] > 0 {
				inverse := 1 / p
				if inverse > clip {
					inverse = clip
					r.Clipped++
				}
				w := float64(a.Weights[i]) * inverse
				s.weight, s.time = s.weight+w, max(s.time, a.Time)
				sum, squares = sum+w, squares+w*w
			}
			byQuery[a.Query][x] = s
		}
	}
	for q, items := range byQuery {
		rows := make([]int32, 0, len(items))
		for x := range items {
			rows = append(rows, x)
		}
		slices.Sort(rows)
		for _, x := range rows {
			switch s := items[x]; {
			case s.weight > 0:
				r.Choices = append(r.Choices, Choice{int32(q), x, float32(s.weight), s.time})
			case s.looks >= 1:
				r.Passed[q] = append(r.Passed[q], x)
			}
		}
	}
	if squares > 0 {
		r.EffectiveSize = sum * sum / squares
	}
	return r
}

package clicks

import (
	"cmp"
	"slices"
)

// Look says how often people looked at an item, in looks at the first position of a list.
type Look struct {
	Item  int32
	Times float32 // above 0 and finite
}

// Choice is an item that was chosen for a query.
type Choice struct {
	Query, Item int32
	// Weight sums the weights of all choices of the item for the query. Inverse is their mean inverse
	// propensity: how many choices at the first position one of them stands for.
	Weight  float32
	Inverse float64
	Time    int64 // of the last choice
}

// Corrected are the choices of some answers, and how often people looked at what was shown.
type Corrected struct {
	// Choices lists each pair once, by query and then by item.
	Choices []Choice
	// Looks[q] holds the items that were shown for query q, ascending, chosen or not. It is nil if
	// the curve is Uncorrected: then nobody knows who looked.
	Looks [][]Look
	// Clipped counts choices whose inverse propensity was cut to the greatest.
	Clipped int
	// EffectiveSize is the number of equally weighted choices with the same statistical weight as
	// these, where w is a choice's inverse propensity: (Σ w)² / Σ w².
	EffectiveSize float64
}

// Report says how the choices of answers were corrected.
type Report struct {
	Curve
	// Text says how sure the curve is.
	Text    string `json:"text"`
	Answers int    `json:"answers"`
	// EffectiveSize and Clipped are copied from Corrected.
	EffectiveSize float64 `json:"effective_size"`
	Clipped       int     `json:"clipped"`
}

// Report returns the report of a correction by the curve.
func (c *Curve) Report(answers []Answer, corrected *Corrected) Report {
	return Report{Curve: *c, Text: c.Text(), Answers: len(answers), EffectiveSize: corrected.EffectiveSize, Clipped: corrected.Clipped}
}

// Correct finds the choices and the looks of answers. Propensities below 1/clip count as 1/clip.
// queries is the number of query rows.
func (c *Curve) Correct(answers []Answer, queries int, clip float64) *Corrected {
	r := &Corrected{}
	type sums struct {
		looks, weight, inverse float64
		time                   int64
	}
	byQuery := make([]map[int32]sums, queries)
	var sum, squares float64
	for _, a := range answers {
		if byQuery[a.Query] == nil {
			byQuery[a.Query] = map[int32]sums{}
		}
		for i, x := range a.Items {
			p, w := c.At(a.Positions[i]), float64(a.Weights[i])
			if p*clip < 1 {
				p = 1 / clip
				if w > 0 {
					r.Clipped++
				}
			}
			s := byQuery[a.Query][x]
			s.looks += p
			if w > 0 {
				s.weight, s.inverse, s.time = s.weight+w, s.inverse+w/p, max(s.time, a.Time)
				sum, squares = sum+w/p, squares+w/p*w/p
			}
			byQuery[a.Query][x] = s
		}
	}
	if squares > 0 {
		r.EffectiveSize = sum * sum / squares
	}
	if c.Method != Uncorrected {
		r.Looks = make([][]Look, queries)
	}
	for q, items := range byQuery {
		first := len(r.Choices)
		for x, s := range items {
			if s.weight > 0 {
				r.Choices = append(r.Choices, Choice{int32(q), x, float32(s.weight), s.inverse / s.weight, s.time})
			}
			if r.Looks != nil {
				r.Looks[q] = append(r.Looks[q], Look{x, float32(s.looks)})
			}
		}
		slices.SortFunc(r.Choices[first:], func(a, b Choice) int { return cmp.Compare(a.Item, b.Item) })
		if r.Looks != nil {
			slices.SortFunc(r.Looks[q], func(a, b Look) int { return cmp.Compare(a.Item, b.Item) })
		}
	}
	return r
}

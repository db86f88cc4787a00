// Command advice says how often the advice of a fit is right. It reads on stdin how well each
// of several similarities answered each test query. It draws held-out queries from them again
// and again, lets the judge of `likeness fit` decide by those, and compares the decision with
// the one that all test queries lead to.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// draws is how often the held-out queries are drawn.
const draws = 200

// Found holds the results of similarities for test queries.
type Found struct {
	Models []Model `json:"models"` // the plain similarity first
	Wanted []int32 `json:"wanted"` // item of each query
	// HeldOut is how many queries judge a fit.
	HeldOut int `json:"held_out"`
}

// Model is a similarity.
type Model struct {
	Name    string    `json:"name"`
	Numbers int       `json:"numbers"` // that it stores
	Ranks   []float64 `json:"ranks"`   // reciprocal rank of each query's item
}

// Counts says what the advice was in all draws.
type Counts struct {
	Draws   int            `json:"draws"`
	HeldOut int            `json:"held_out"`
	Right   int            `json:"right"` // of those that name a similarity
	Wrong   int            `json:"wrong"`
	Unclear int            `json:"unclear"` // the advice was that it cannot tell
	Advised map[string]int `json:"advised"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "advice:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var f Found
	if err := json.NewDecoder(in).Decode(&f); err != nil {
		return fmt.Errorf("what was found: %w", err)
	}
	for _, m := range f.Models {
		if len(m.Ranks) != len(f.Wanted) || len(f.Wanted) == 0 {
			return fmt.Errorf("%s has ranks of %d queries, want %d and 1 at least", m.Name, len(m.Ranks), len(f.Wanted))
		}
	}
	counts, err := f.count(draws)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(counts)
}

// count compares the advice of some draws with the truth.
func (f Found) count(draws int) (Counts, error) {
	c := Counts{Draws: draws, HeldOut: f.HeldOut, Advised: map[string]int{}}
	random := rand.New(rand.NewPCG(1, 2))
	for range draws {
		d, order, err := f.decide(random)
		if err != nil {
			return c, err
		}
		name := f.Models[0].Name
		if d.Choice >= 0 {
			name = order[d.Choice].Name
		}
		switch {
		case d.Answer == verdict.Unclear:
			name = "cannot tell"
			c.Unclear++
		case f.isRight(name):
			c.Right++
		default:
			c.Wrong++
		}
		c.Advised[name]++
	}
	return c, nil
}

// decide lets the judge of a fit decide by queries drawn with replacement.
func (f Found) decide(random *rand.Rand) (verdict.Decision, []judge.Rival, error) {
	drawn := make([]int, f.HeldOut)
	items := int32(0)
	for i := range drawn {
		drawn[i] = random.IntN(len(f.Wanted))
		items = max(items, f.Wanted[drawn[i]]+1)
	}
	log := &samples.Log{Items: rerank.NewMatrix(int(items), 1), Queries: rerank.NewMatrix(len(drawn), 1)}
	queries := make([]int32, len(drawn))
	for i, q := range drawn {
		queries[i], log.Relevant = int32(i), append(log.Relevant, []int32{f.Wanted[q]})
	}
	rivals := make([]judge.Rival, len(f.Models))
	for n, m := range f.Models {
		rivals[n] = judge.Rival{Name: m.Name, Numbers: m.Numbers, Marks: func(j *judge.Judge) ([]float64, error) {
			ranks := make([]float64, len(j.Queries))
			for i, q := range j.Queries {
				ranks[i] = m.Ranks[drawn[q]]
			}
			return ranks, nil
		}}
	}
	o, err := judge.Decide(judge.New(log, fit.MRR, queries, nil), rivals[0], rivals[1:], verdict.DefaultRule())
	if err != nil {
		return verdict.Decision{}, nil, err
	}
	return o.Decision, o.Rivals, nil
}

// isRight reports whether all test queries say that a similarity is to be taken: it loses
// no more than the margin of the best one's gain, and, if it is not the plain one, gains; the plain one is
// right where no other gains what is worth having.
func (f Found) isRight(name string) bool {
	plain, best, own := mean(f.Models[0].Ranks), 0.0, 0.0
	for _, m := range f.Models {
		v := mean(m.Ranks)
		best = max(best, v)
		if m.Name == name {
			own = v
		}
	}
	if name == f.Models[0].Name {
		return best-plain < verdict.LeastGainOf(plain)
	}
	return own > plain && own >= best-verdict.DefaultMargin*(best-plain)
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

package train

import (
	"math"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// Excluded is a logit that no softmax sees.
const Excluded = -1e30

// CrossEntropy is the loss of pairs among candidates: the mean cross-entropy of
// softmax(Scale·score) to the pair's own item.
//
// A candidate that is there by chance is corrected by the log of that chance (logQ:
// Bengio and Senécal 2003; Yi et al. 2019). The pair's own item is always there and
// is not corrected. Other items and twins of the same query, and items that were seen
// before it, are no wrong answers.
//
// Where the log says how often people looked at the items of a query, its logarithm is added to the
// logits: a choice then tells how much the item was preferred to the others, given where
// they stood. An item that no answer showed could hardly be chosen, so it is hardly a wrong answer.
type CrossEntropy struct {
	Log   *samples.Log
	Scale float64
	// MeanWeight is the mean weight of a pair in the whole log.
	MeanWeight float64
}

// Apply returns the loss of a batch and replaces the scores by the gradient of the
// loss. scores has a row for each pair and a column for each candidate.
func (e CrossEntropy) Apply(scores rerank.Matrix, batch []samples.Pair, c *Candidates) float64 {
	losses := make([]float64, len(batch))
	share := 1 / (e.MeanWeight * float64(len(batch)))
	linalg.Parallel(len(batch), 16, func(from, to int) {
		for b := from; b < to; b++ {
			row, target := scores.Row(b), c.Columns[batch[b].Item]
			c.makeLogits(row, float32(e.Scale), target)
			c.exclude(row, e.Log.Relevant[batch[b].Query], target)
			if e.Log.Twins != nil {
				c.exclude(row, e.Log.Twins[batch[b].Query], target)
			}
			if e.Log.Seen != nil {
				c.exclude(row, e.Log.Seen[batch[b].Query], target)
			}
			if e.Log.Looks != nil {
				c.addLooks(row, e.Log.Looks[batch[b].Query])
			}
			linalg.Softmax(row)
			weight := share * float64(batch[b].Weight)
			losses[b] = -weight * math.Log(max(float64(row[target]), math.SmallestNonzeroFloat32))
			row[target]--
			slope := float32(weight * e.Scale)
			for i := range row {
				row[i] *= slope
			}
		}
	})
	var sum float64
	for _, l := range losses {
		sum += l
	}
	return sum
}

// makeLogits scales the scores and corrects all but the target's.
func (c *Candidates) makeLogits(row []float32, scale float32, target int32) {
	for i := range row {
		row[i] *= scale
	}
	if c.Correction == nil {
		return
	}
	own := row[target]
	for i, correction := range c.Correction {
		row[i] += correction
	}
	row[target] = own
}

// unshownLooks is the weight of an item that no answer showed as a wrong answer, as a share of the weight
// of the shown item that people looked at least often. The old ranking had a reason to leave the item out;
// without this weight a fit could raise such items at will, because the log says nothing about them.
const unshownLooks = 0.01

// addLooks adds the logarithm of the looks to the logits of all candidates.
func (c *Candidates) addLooks(row []float32, looks []clicks.Look) {
	least := float32(math.Inf(1))
	for _, l := range looks {
		least = min(least, l.Times)
	}
	for _, l := range looks { // relative to an item that was not shown
		if column := c.Columns[l.Item]; column >= 0 {
			row[column] += float32(math.Log(float64(l.Times / (unshownLooks * least))))
		}
	}
}

// exclude hides items other than the target from the softmax.
func (c *Candidates) exclude(row []float32, items []int32, target int32) {
	for _, x := range items {
		if column := c.Columns[x]; column >= 0 && column != target {
			row[column] = Excluded
		}
	}
}

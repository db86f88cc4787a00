package fit

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// excluded is a logit that no softmax sees.
const excluded = -1e30

// crossEntropy replaces the inner products s, one row a pair of the batch and
// one column a candidate, by the gradient of the batch's weighted mean
// cross-entropy, and returns that mean; unit is the mean weight of the whole log. The logits are scale·s; a candidate that is there by chance
// is corrected by the log of that chance (logQ: Bengio and Senécal 2003; Yi et
// al. 2019), all but the pair's own item, which is always there. Other items of
// the same query are no negatives.
func crossEntropy(s rerank.Matrix, batch []pair, c *candidates, p *problem, scale, unit float64) float64 {
	losses := make([]float64, len(batch))
	share := 1 / (unit * float64(len(batch)))
	exclude := func(row []float32, items []int32, target int32) {
		for _, x := range items {
			if col := c.column[x]; col >= 0 && col != target {
				row[col] = excluded
			}
		}
	}
	spread(len(batch), 16, func(from, to int) {
		for b := from; b < to; b++ {
			row, target := s.Row(b), c.column[batch[b].item]
			logits(row, float32(scale), target, c.correction)
			exclude(row, p.relevant[batch[b].query], target)
			if p.own != nil {
				exclude(row, p.own[batch[b].query], target)
			}
			kernel.Softmax(row)
			part := share * float64(batch[b].weight)
			losses[b] = -part * math.Log(max(float64(row[target]), math.SmallestNonzeroFloat32))
			row[target]--
			weight := float32(part * scale)
			for i := range row {
				row[i] *= weight
			}
		}
	})
	var sum float64
	for _, l := range losses {
		sum += l
	}
	return sum
}

func logits(row []float32, scale float32, target int32, correction []float32) {
	for i := range row {
		row[i] *= scale
	}
	if correction == nil {
		return
	}
	own := row[target]
	for i, c := range correction {
		row[i] += c
	}
	row[target] = own
}

package train

import (
	"fmt"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

const (
	// maxRoundPairs is the most pairs that a round draws.
	maxRoundPairs = 1 << 14
	// minRoundSteps is the fewest steps of a round: a short log is learned in small
	// batches and gone through more than once.
	minRoundSteps = 20
	minBatch      = 32
)

// BatchSize returns the size of a batch of queries and the number of steps of a round,
// for a log of the given size. most is the size that the options ask for.
func BatchSize(most, queries, pairs int) (size, steps int) {
	size = min(most, queries, max(minBatch, pairs/minRoundSteps))
	return size, max(minRoundSteps, (min(pairs, maxRoundPairs)+size-1)/size)
}

// Batches draws batches of pairs: queries in random order, each with one of its
// items. Every query counts the same, however many items it has, as it does in the
// means that judge the fit.
type Batches struct {
	// Size is the number of pairs of a batch, Steps the number of batches of a round.
	Size, Steps int
	// MeanWeight is the mean weight of a pair.
	MeanWeight float64
	// Random is the source of all that a step draws.
	Random *rand.Rand

	generator *rand.PCG
	pairs     []samples.Pair // query by query
	starts    []int          // where the pairs of each query begin, and where all end
	order     []int32        // of the queries
	next      int            // place in order
	batch     []samples.Pair
}

// NewBatches makes batches of pairs, which are sorted by query. BatchSize turns size, which the options ask for, into
// the size of a batch.
func NewBatches(pairs []samples.Pair, size int, generator *rand.PCG) *Batches {
	b := &Batches{generator: generator, Random: rand.New(generator), pairs: pairs, starts: samples.PairStarts(pairs)}
	queries := len(b.starts) - 1
	for i := range queries {
		b.order = append(b.order, int32(i))
	}
	b.next = queries
	b.Size, b.Steps = BatchSize(size, queries, len(pairs))
	b.batch = make([]samples.Pair, b.Size)
	for _, p := range pairs {
		b.MeanWeight += float64(p.Weight) / float64(len(pairs))
	}
	return b
}

// Next draws a batch, which is valid until the next call.
func (b *Batches) Next() []samples.Pair {
	if b.next+b.Size > len(b.order) {
		b.Random.Shuffle(len(b.order), func(i, j int) { b.order[i], b.order[j] = b.order[j], b.order[i] })
		b.next = 0
	}
	for i, q := range b.order[b.next : b.next+b.Size] {
		from, to := b.starts[q], b.starts[q+1]
		if to-from > 1 {
			from += b.Random.IntN(to - from)
		}
		b.batch[i] = b.pairs[from]
	}
	b.next += b.Size
	return b.batch
}

// BatchPosition says which batch comes next.
type BatchPosition struct {
	Order  []int32
	Next   int
	Random []byte
}

// Position returns the position after the last batch. Order is the one in use.
func (b *Batches) Position() BatchPosition {
	random, _ := b.generator.MarshalBinary() // a PCG always encodes
	return BatchPosition{Order: b.order, Next: b.next, Random: random}
}

// Resume continues from a position. It returns fit.ErrCheckpoint if the position
// belongs to other pairs.
func (b *Batches) Resume(p BatchPosition) error {
	if len(p.Order) != len(b.order) || p.Next < 0 || b.generator.UnmarshalBinary(p.Random) != nil {
		return fmt.Errorf("%w: it names %d queries, the fit has %d", fit.ErrCheckpoint, len(p.Order), len(b.order))
	}
	copy(b.order, p.Order)
	b.next = p.Next
	return nil
}

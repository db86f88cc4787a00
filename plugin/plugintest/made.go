package plugintest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// ordinaryItems is the number of items in an ordinary call.
const ordinaryItems = 24

var vocabulary = strings.Fields("card payment transfer pending balance account exchange rate refund cash lost new pin top up limit fee")

func (k *kit) makeQuery() plugin.Query {
	rng := rand.New(rand.NewPCG(1, 1))
	return plugin.Query{Vector: unit(rng, k.options.Dim), Text: "why is my card payment still pending"}
}

func (k *kit) makeItems(n int) []plugin.Item {
	rng := rand.New(rand.NewPCG(2, 2))
	items := make([]plugin.Item, n)
	for i := range items {
		items[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: k.payload(sentence(rng, 3+i%9), i)}
		if k.description.Vectors {
			items[i].Vector = unit(rng, k.options.Dim)
		}
	}
	return items
}

// payload returns an object with the fields that the scorer reads, all of them text, or nil
// if it reads none.
func (k *kit) payload(text string, number int) json.RawMessage {
	object := map[string]any{}
	for _, field := range k.description.PayloadFields {
		object[field] = text
	}
	if k.description.Payload {
		object["text"], object["title"], object["number"] = text, text, number
	}
	if len(object) == 0 {
		return nil
	}
	b, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return b
}

func sentence(rng *rand.Rand, words int) string {
	out := make([]string, words)
	for i := range out {
		out[i] = vocabulary[rng.IntN(len(vocabulary))]
	}
	return strings.Join(out, " ")
}

func unit(rng *rand.Rand, dim int) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	rerank.Normalise(v)
	return v
}

// valid checks that there is one score per item, each a finite number or NaN.
func valid(scores []float32, items int) error {
	if len(scores) != items {
		return fmt.Errorf("%d scores for %d items", len(scores), items)
	}
	for i, s := range scores {
		if math.IsInf(float64(s), 0) {
			return fmt.Errorf("score %d is %v; NaN says that there is none", i, s)
		}
	}
	return nil
}

// same compares scores with earlier scores of the same items.
func (k *kit) same(got, want []float32) error {
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if math.IsNaN(g) != math.IsNaN(w) || math.Abs(g-w) > k.options.Tolerance*max(1, math.Abs(g), math.Abs(w)) {
			return fmt.Errorf("item %d has the score %v, and had %v", i, g, w)
		}
	}
	return nil
}

// Package fittest makes data for the tests of fits.
package fittest

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// NormalMatrix returns a matrix of standard normal numbers.
func NormalMatrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// AllRows returns the numbers from 0 to n.
func AllRows(n int) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	return rows
}

// RandomData returns random vectors and a random log, in which each query chose one or
// two items.
func RandomData(queries, items, dim int) fit.Data {
	rng := rand.New(rand.NewPCG(3, 4))
	d := fit.Data{Items: NormalMatrix(rng, items, dim), Queries: NormalMatrix(rng, queries, dim)}
	for q := range queries {
		first := rng.IntN(items - 1)
		d.Relevant = append(d.Relevant, []int32{int32(first)})
		if q%3 == 0 {
			d.Relevant[q] = append(d.Relevant[q], int32(first+1))
		}
	}
	return d
}

// FlippedData returns data that a bilinear form can learn and the inner product cannot:
// each query is near its item with every other axis flipped.
func FlippedData() fit.Data {
	rng := rand.New(rand.NewPCG(21, 22))
	d := fit.Data{Items: NormalMatrix(rng, 50, 12), Queries: NormalMatrix(rng, 600, 12)}
	for q := range d.Queries.Rows {
		x := rng.IntN(50)
		for i, v := range d.Items.Row(x) {
			d.Queries.Row(q)[i] += v * float32(1-2*(i%2))
		}
		d.Relevant = append(d.Relevant, []int32{int32(x)})
	}
	return d
}

// root is the root of the repository, from the folder of a kind of fit.
const root = "../../.."

// OpenVectors opens the named vectors of BANKING77, for the test of a kind.
func OpenVectors(t testing.TB, name string) rerank.Matrix {
	t.Helper()
	m, err := npy.Open(filepath.Join(root, "examples", "data", "banking77", name+"_vectors.npy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.Matrix
}

// OpenIntents returns a part of BANKING77, train or test: its questions as queries, the 77
// intents as items.
func OpenIntents(t testing.TB, part string) fit.Data {
	t.Helper()
	d := fit.Data{Items: OpenVectors(t, "items"), Queries: OpenVectors(t, part)}
	f, err := os.Open(filepath.Join(root, "examples", "data", "banking77", part+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row struct {
			Item int32 `json:"item"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		d.Relevant = append(d.Relevant, []int32{row.Item})
	}
	return d
}

// WithoutLogs returns the data without the pairs of some random items, and marks these
// items. Each query of the data must have one item.
func WithoutLogs(d fit.Data, seed uint64, items int) (fit.Data, []bool) {
	without := make([]bool, d.Items.Rows)
	for _, x := range rand.New(rand.NewPCG(seed, 1)).Perm(len(without))[:items] {
		without[x] = true
	}
	out := d
	out.Relevant = make([][]int32, len(d.Relevant))
	for q, items := range d.Relevant {
		if !without[items[0]] {
			out.Relevant[q] = items
		}
	}
	return out, without
}

// SkipUnderRace skips a test of figures under the race detector. `make test` runs it
// without as well.
func SkipUnderRace(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
}

// Checkpoint is a fit.Checkpoint in memory.
type Checkpoint struct{ State []byte }

var _ fit.Checkpoint = (*Checkpoint)(nil)

// Load implements fit.Checkpoint.
func (c *Checkpoint) Load() ([]byte, error) { return c.State, nil }

// Save implements fit.Checkpoint.
func (c *Checkpoint) Save(state []byte) error {
	c.State = slices.Clone(state)
	return nil
}

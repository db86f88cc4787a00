package embedded_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Kit{
		Store:   "embedded",
		Version: "-",
		Open: func(*testing.T) adapters.Store {
			return embedded.New(embedded.WithLimits(adapters.Limits{MaxDepth: 100_000, MaxVectorFields: 64}))
		},
		IDs: []adaptertest.IDSet{
			{Name: "unsigned 64-bit", IDs: []rerank.ID{rerank.UintID(0), rerank.UintID(1<<63 - 1), rerank.UintID(1 << 63), rerank.UintID(1<<64 - 1)}},
			{Name: "negative", IDs: []rerank.ID{rerank.IntID(-1), rerank.IntID(-1 << 63), rerank.IntID(5)}},
			{Name: "any text", Text: true, IDs: []rerank.ID{rerank.TextID("7"), rerank.TextID("漢字🙂"), rerank.TextID("a\"b\\c\n"), rerank.TextID("\x00")}},
		},
		BadIDs: []adaptertest.BadID{
			{Name: "a text among numbers", ID: rerank.TextID("7")},
			{Name: "a number among texts", Text: true, ID: rerank.UintID(7)},
			{Name: "no id", ID: rerank.ID{}},
		},
		Filters:       adaptertest.QdrantFilters(),
		BadFilters:    append(adaptertest.BadQdrantFilters(), `{"must": [{"has_vector": "vec"}]}`, `{"must": [{"key": "label", "match": {"phrase": "x"}}]}`),
		TooManyFields: 65,
		TooDeep:       100_001,
		Large:         true,
	})
}

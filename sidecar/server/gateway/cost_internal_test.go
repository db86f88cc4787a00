package gateway

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/cost"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// jsonCost bounds the memory for reading the JSON of a request.
var jsonCost = cost.Bound{Fixed: 24 << 20, PerByte: 25}

// JSON of the API is read in memory in proportion to its length.
func TestCostOfJSON(t *testing.T) {
	constant := func(part string) func(int) string { return func(int) string { return part } }
	families := map[string]func(length int) []byte{
		"searches": cost.Repeated(`{"searches":[`, constant("{}"), "]}"), "queries": cost.Repeated(`{"searches":[`, constant(`{"query":{}}`), "]}"),
		"numbers": cost.Repeated(`{"searches":[{"query":{"vector":[`, constant("0"), "]}}]}"), "texts": cost.Repeated(`{"searches":[{"payload":{"fields":[`, constant(`""`), "]}}]}"),
		"pairs":  cost.Repeated(`{"searches":[{"query":{"context":{`, func(i int) string { return `"` + strings.Repeat("k", i%7) + `":0` }, "}}}]}"),
		"levels": func(n int) []byte { return bytes.Repeat([]byte(`{"searches":[`), n/13) }, "escapes": func(n int) []byte { return []byte(`{"searches":[{"route":"` + strings.Repeat(`\u0041`, n/6) + `"}]}`) },
		"a long number": func(n int) []byte { return []byte(`{"searches":[{"k":` + strings.Repeat("1", n) + `}]}`) },
	}
	for family, input := range families {
		cost.Linear(t, family, jsonCost, func(length int) []byte { return input(8 * length) }, func(data []byte) { _ = decode(data, &likenessv1.SearchBatchRequest{}) })
	}
	err := decode(families["searches"](1<<20), &likenessv1.SearchBatchRequest{})
	if err == nil || !strings.Contains(err.Error(), "at most 65536; split the batch") {
		t.Error(err)
	}
	honest := cost.Repeated(`{"searches":[`, constant(`{"route":"r","k":10,"query":{"vector":[1,2,3],"context":{"a":1,"b":2}}}`), "]}")
	if err := decode(honest(1<<20), &likenessv1.SearchBatchRequest{}); err != nil {
		t.Error(err)
	}
}

// The JSON of a rerank call is read in memory in proportion to its length, also where it has more
// documents than a call takes.
func TestCostOfDocuments(t *testing.T) {
	constant := func(part string) func(int) string { return func(int) string { return part } }
	for family, input := range map[string]func(length int) []byte{
		"numbers": cost.Repeated(`{"query":"q","documents":[`, constant("0"), "]}"), "texts": cost.Repeated(`{"query":"q","texts":[`, constant(`""`), "]}"),
		"objects": cost.Repeated(`{"query":"q","documents":[`, constant("{}"), "]}"), "lists": cost.Repeated(`{"query":"q","documents":[[`, constant("[]"), "]]}"),
	} {
		cost.Linear(t, family, jsonCost, func(length int) []byte { return input(8 * length) }, func(data []byte) {
			_ = (&rerankRequest{}).parse(data, false)
		})
	}
}

func decode(data []byte, m proto.Message) error {
	from := &body{Reader: bytes.NewReader(data), data: data, inTurn: func(parse func() error) error { return parse() }}
	return newCodec().NewDecoder(from).Decode(m)
}

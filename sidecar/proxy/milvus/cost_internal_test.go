package milvus

import (
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/internal/wirecount/families"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// Bounds on the memory for reading a message. The limits on decoded contents allow for the fixed
// part.
var (
	searchCost = cost.Bound{Fixed: 24 << 20, PerByte: 12}
	textCost   = cost.Bound{Fixed: 1 << 20, PerByte: 96} // an id of two bytes takes forty in memory
)

// Searches and writes, whatever is in them, take memory in proportion to their length.
func TestCostOfMessages(t *testing.T) {
	for family, input := range families.Messages((&milvuspb.SearchRequest{}).ProtoReflect().Descriptor(), 2) {
		cost.Linear(t, "search, "+family, searchCost, input, func(b []byte) {
			_, _ = locate(b)
			m := &milvuspb.SearchRequest{}
			if routing.Decode(b, m) == nil {
				_, _ = read(m)
			}
		})
	}
	for family, input := range families.Messages((&milvuspb.HybridSearchRequest{}).ProtoReflect().Descriptor(), 2) {
		cost.Linear(t, "hybrid, "+family, searchCost, input, func(b []byte) {
			h := &milvuspb.HybridSearchRequest{}
			if routing.Decode(b, h) == nil {
				_, _, _ = fused(h, func(string) bool { return true })
			}
		})
	}
	of := adapters.Identity{Collection: "c", Key: "id"}
	for method, w := range methodsThatWrite() {
		for _, m := range []proto.Message{&milvuspb.UpsertRequest{}, &milvuspb.DeleteRequest{}} {
			for family, input := range families.Messages(m.ProtoReflect().Descriptor(), 2) {
				cost.Linear(t, method+", "+family, searchCost, input, func(b []byte) {
					if read := w.read(b).Read; read != nil {
						read(t.Context(), of)
					}
				})
			}
		}
	}
	for family, input := range families.Messages((&schemapb.SearchResultData{}).ProtoReflect().Descriptor(), 1) {
		cost.Linear(t, "answer, "+family, searchCost, input, func(b []byte) { _, _ = readStatus(b) })
	}
}

// So do expressions, templates, parameters and placeholders.
func TestCostOfTexts(t *testing.T) {
	long := func(part string) cost.Family {
		return func(n int) []byte { return []byte(strings.Repeat(part, n/len(part))) }
	}
	hard := cost.JSON()
	hard["ids"] = cost.Repeated("id in [", cost.Constant("1"), "]")
	hard["texts"] = cost.Repeated("id in [", cost.Constant(`"a"`), "]")
	hard["names"] = long("{a}")
	hard["braces"] = long("{")
	hard["escapes"] = long(`\\"`)
	for family, input := range hard {
		cost.Linear(t, "expression, "+family, textCost, input, func(b []byte) { _, _ = keysOf(string(b), "id") })
		cost.Linear(t, "parameters, "+family, textCost, input, func(b []byte) {
			_, _ = read(&milvuspb.SearchRequest{Dsl: string(b), DslType: commonpb.DslType_BoolExprV1, SearchParams: []*commonpb.KeyValuePair{{Key: "params", Value: string(b)}, {Key: "topk", Value: string(b)}}})
		})
		cost.Linear(t, "placeholders, "+family, textCost, input, func(b []byte) { _, _ = read(&milvuspb.SearchRequest{PlaceholderGroup: b, Nq: 1}) })
	}
}

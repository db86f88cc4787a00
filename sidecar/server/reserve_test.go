package server_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/server"
)

// TestLongAnswersAreCounted: a short request whose answer would take more than all memory for answers is refused before anything is
// scored, and other requests are answered.
func TestLongAnswersAreCounted(t *testing.T) {
	w := start(t, func(o *server.Options) {
		o.Gate = gate.New(gate.Options{Limits: gate.Limits{Routes: map[string]gate.Limit{"things": {}}}, ReceivedBytes: 64 << 10})
	})
	ids := func(items int) *likenessv1.ItemIds {
		return &likenessv1.ItemIds{Ids: slices.Repeat([]*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 1}}}, items)}
	}
	explain := func(items int) error {
		_, err := w.search.Explain(t.Context(), &likenessv1.ExplainRequest{Route: "things", Query: question().GetQuery(), Items: &likenessv1.ExplainRequest_Ids{Ids: ids(items)}})
		return err
	}
	score := func(items int) error {
		_, err := w.search.Score(t.Context(), &likenessv1.ScoreRequest{Route: "things", Query: question().GetQuery(), Items: &likenessv1.ScoreRequest_Ids{Ids: ids(items)}})
		return err
	}
	batch := func(k int32) error {
		one := question()
		one.K, one.Explain = k, true
		_, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: slices.Repeat([]*likenessv1.SearchRequest{one}, 8)})
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"explained":                  {explain(20), codes.OK},
		"too many explained":         {explain(100), codes.ResourceExhausted},
		"scored":                     {score(500), codes.OK},
		"too many read to be scored": {score(2100), codes.ResourceExhausted},
		"a batch":                    {batch(3), codes.OK},
		"a batch with many items":    {batch(15), codes.ResourceExhausted},
		"a batch of more than there": {batch(1 << 30), codes.ResourceExhausted},
	} {
		if code := status.Code(c.err); code != c.want || c.want != codes.OK && !strings.Contains(c.err.Error(), "ask for fewer items") {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
}

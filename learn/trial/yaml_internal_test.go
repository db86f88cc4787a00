package trial

import (
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
)

// TestConfiguration reads the ports in the written text, and finds no proxy for a field of distances, whose searches it
// would pass on.
func TestConfiguration(t *testing.T) {
	for metric, proxied := range map[adapters.Metric]bool{adapters.Cosine: true, adapters.InnerProduct: true, adapters.L2: false} {
		tried := &trial{look: &Look{Server: Server{Kind: milvusKind}, field: adapters.VectorField{Metric: metric}}, sample: &sample{}}
		text, err := tried.configuration()
		if err != nil {
			t.Fatal(err)
		}
		for part, want := range map[string]bool{
			"grpc: 127.0.0.1:7600": true, "rest: 127.0.0.1:7602": true, "admin: 127.0.0.1:7601": true, "proxy:": proxied, "The proxy answers": proxied,
		} {
			if got := strings.Contains(string(text), part); got != want {
				t.Errorf("%s: %q is in the text: %t, want %t\n%s", metric, part, got, want, text)
			}
		}
	}
}

package route

import (
	"context"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// probeText is embedded to learn the length of an embedder's vectors.
const probeText = "How long is a vector?"

// probeTimeout bounds how much later a route opens because its embedder does not answer.
const probeTimeout = time.Second

// checkEmbedder embeds a text and checks that the model takes the vector. If the embedder does not
// answer, the route opens all the same: queries with a vector need no embedder, and Embed checks
// again.
func (c *Checked) checkEmbedder(ctx context.Context) error {
	if c.Embedder == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	vectors, err := c.Embedder.Embed(ctx, []string{probeText})
	if err != nil {
		return nil // the route opens all the same
	}
	return c.checkEmbedded(vectors)
}

func (c *Checked) checkEmbedded(vectors [][]float32) error {
	for _, v := range vectors {
		if len(v) != c.Spec.QueryDim {
			return c.wrong("embedder %q makes vectors of %d elements and its model takes %d; name the embedder that embedded the collection",
				c.EmbedderName, len(v), c.Spec.QueryDim)
		}
	}
	return nil
}

// Embed returns the vectors of queries and of documents, as the route's model takes them. It returns the
// errors of the embedder, ErrSetup if the model does not take its vectors, or the context's error.
func (c *Checked) Embed(ctx context.Context, queries, documents []string) ([][]float32, error) {
	vectors, err := c.Embedder.Embed(ctx, queries, documents...)
	if err != nil {
		return nil, fmt.Errorf("route %q: %w", c.Name, err)
	}
	return vectors, c.checkEmbedded(vectors)
}

// NeedsEmbedder reports whether the route's embedder makes the vector of a query: it has text and no
// vector.
func (c *Checked) NeedsEmbedder(q rerank.Query) bool {
	return c.Embedder != nil && len(q.Vector) == 0 && q.Text != ""
}

package route

import (
	"context"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// probeText is embedded to learn the length of an embedder's vectors.
const probeText = "How long is a vector?"

// probeTimeout bounds how long opening a route waits for its embedder.
const probeTimeout = time.Second

// checkEmbedder embeds a text and checks that the model takes the vector. If the embedder does not
// answer, the route opens all the same: queries with a vector need no embedder, and Embed checks
// again.
func (c *checking) checkEmbedder(ctx context.Context) error {
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
	dim, takes := c.Spec.QueryDim, "its model takes"
	if c.SupportItems() > 0 {
		dim, takes = c.Field.Dim, "its collection has"
	}
	if n := c.QueryFeatures(); n > 0 {
		dim, takes = n, "its model reads"
	}
	for _, v := range vectors {
		if dim > 0 && len(v) != dim {
			return c.wrong("embedder %q makes vectors of %d elements and %s %d; name the embedder that embedded the collection",
				c.EmbedderName, len(v), takes, dim)
		}
	}
	return nil
}

// Embed returns the vectors of queries and of documents, as the route's model takes them. If the
// model takes a ranker's scores, the vectors are comparable with the collection's instead. It
// returns the errors of the embedder, ErrSetup if the model does not take its vectors, or the
// context's error.
func (c *Checked) Embed(ctx context.Context, queries, documents []string) ([][]float32, error) {
	vectors, err := c.Embedder.Embed(ctx, queries, documents...)
	if err != nil {
		return nil, fmt.Errorf("route %q: %w", c.Name, err)
	}
	return vectors, c.checkEmbedded(vectors)
}

// NeedsEmbedder reports whether the route's embedder makes the vector of a query: it has text and no
// vector, and the model takes no ranker's scores.
func (c *Checked) NeedsEmbedder(q rerank.Query) bool {
	return c.Embedder != nil && len(q.Vector) == 0 && q.Text != "" && c.SupportItems() == 0
}

// EmbedsBesideScores reports whether the route's embedder makes a query's own vector although the
// model takes a ranker's scores. The vector searches the store for a share of the ranker's first
// round, or the model reads it beside the scores.
func (c *Checked) EmbedsBesideScores(q rerank.Query, mix float64) bool {
	return c.Embedder != nil && q.Text != "" && c.SupportItems() > 0 && (mix > 0 || c.QueryFeatures() > 0)
}

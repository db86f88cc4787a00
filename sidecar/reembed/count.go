package reembed

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
)

// countRows is how many items CountItems and Put read at once.
const countRows = 512

// Count says how many items of a route have a new vector, and what the others lack. New, Bridged, Changed,
// NoText and NoVector add up to Items.
type Count struct {
	Items int64 `json:"items"`
	New   int64 `json:"new"`
	// Bridged counts items that were never embedded again. Changed counts items that were, and whose rows
	// were written afterwards, so that their new vectors are out of date.
	Bridged int64 `json:"bridged"`
	Changed int64 `json:"changed"`
	// NoText counts items that have neither a new vector nor a text to embed. Untold holds the ids of
	// at most maxUntold of these items.
	NoText int64 `json:"no_text"`
	// NoVector counts items without a vector of the old model, which the companion leaves out.
	NoVector int64       `json:"no_vector"`
	Untold   []rerank.ID `json:"no_text_ids,omitempty"`
}

// maxUntold bounds Count.Untold.
const maxUntold = 10

// CountItems reads all items of a route that embeds its items again. It tells done how many items it has
// read since the last call. It changes nothing.
func CountItems(ctx context.Context, r *route.Route, done func(n int)) (Count, error) {
	var c Count
	can := adapters.AbilitiesOf(r.Store)
	request := adapters.ScanRequest{
		Collection: r.Collection, Vectors: []string{r.Vector}, Payload: true, PayloadFields: []string{r.Reembed.Text}, Batch: countRows,
	}
	err := can.Scan.Scan(ctx, request, func(rows adapters.Rows, _ string) error {
		marks, err := marksOf(ctx, r, rows.IDs)
		if err != nil {
			return err
		}
		for i, id := range rows.IDs {
			text := derive.TextOf(rows.Payloads[i], r.Reembed.Text)
			switch mark := marks[id]; {
			case rerank.CheckFinite("vector", rows.Vectors[0].Row(i)) != nil: // absent
				c.NoVector++
			case mark == derive.SourceDigest(rows.Vectors[0].Row(i), text):
				c.New++
			case text == "":
				if c.NoText++; len(c.Untold) < maxUntold {
					c.Untold = append(c.Untold, id)
				}
			case mark != "":
				c.Changed++
			default:
				c.Bridged++
			}
		}
		c.Items += int64(len(rows.IDs))
		done(len(rows.IDs))
		return nil
	})
	return c, err
}

// marksOf returns the marks of items in the companion. The mark of an item with a new vector is the
// derive.SourceDigest of the row that the vector was made from; items without one have "".
func marksOf(ctx context.Context, r *route.Route, ids []rerank.ID) (map[rerank.ID]string, error) {
	have, err := adapters.AbilitiesOf(r.Store).Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: r.Companion, IDs: ids, Payload: true, PayloadFields: []string{derive.SourceField}, Consistency: r.Consistency,
	})
	if err != nil {
		return nil, fmt.Errorf("companion %q: %w", r.Companion, err)
	}
	marks := make(map[rerank.ID]string, len(have.IDs))
	for i, id := range have.IDs {
		marks[id] = derive.MarkOf(have.Payloads[i])
	}
	return marks, nil
}

// Vectors holds new vectors of items that were made elsewhere, such as in a file. Row i belongs to IDs[i].
type Vectors struct {
	IDs  []rerank.ID
	Rows rerank.Matrix
}

// Put writes new vectors to the companion of a route, as vectors of the items as they are now. It returns
// how many items got one; the collection lacks the others. The ids are distinct.
func Put(ctx context.Context, r *route.Route, all Vectors, write func(ctx context.Context, r *route.Route, vectors []follow.NewVector) (int, error), done func(n int)) (written int, err error) {
	for from := 0; from < len(all.IDs); from += countRows {
		ids := all.IDs[from:min(from+countRows, len(all.IDs))]
		vectors := make([]follow.NewVector, len(ids))
		for i, id := range ids {
			vectors[i] = follow.NewVector{ID: id, Vector: all.Rows.Row(from + i)}
		}
		n, err := write(ctx, r, vectors)
		if written += n; err != nil {
			return written, err
		}
		done(len(ids))
	}
	return written, nil
}

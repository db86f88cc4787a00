package rank

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// readItems returns items as the ranker reads them, in the order of ids. It fetches their rows if
// the ranker reads more than ids, and leaves out items that the collection does not have.
func (s *Spending) readItems(ctx context.Context, ids []rerank.ID) ([]plugin.Item, error) {
	v, wants := s.view, s.wants
	payload := wants.Payload || len(wants.PayloadFields) > 0
	items := make([]plugin.Item, 0, len(ids))
	if !payload && !wants.Vectors {
		for _, id := range ids {
			items = append(items, plugin.Item{ID: id})
		}
		return items, nil
	}
	if v.StoreCan.Fetch == nil {
		return nil, fmt.Errorf("%w: ranker %q reads the items' rows, and store %q cannot fetch rows by id", adapters.ErrUnsupported, v.RankerName, v.StoreName)
	}
	owner := v.OwnerIn(v.Collection)
	var fields []string
	if wants.Vectors {
		fields = []string{v.Vector}
	}
	rows, err := v.StoreCan.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: v.Collection, IDs: ids, Vectors: fields, Owner: owner, Payload: payload, PayloadFields: wants.PayloadFields, Consistency: v.Consistency,
	})
	if err != nil {
		return nil, fmt.Errorf("rows for ranker %q: %w", v.RankerName, err)
	}
	have, starts, _, err := retrieve.Align(rows, ids, fields, owner)
	if err != nil {
		return nil, err
	}
	payloads := rows.Payloads
	if !payload {
		payloads = make([]json.RawMessage, len(rows.IDs))
	}
	if len(payloads) != len(rows.IDs) {
		return nil, fmt.Errorf("%w: store %q returned %d payloads of %d rows", adapters.ErrStore, v.StoreName, len(payloads), len(rows.IDs))
	}
	for i, id := range have {
		row := i
		if starts != nil {
			row = int(starts[i]) // of an item with several rows the ranker reads the first
		}
		item := plugin.Item{ID: id, Payload: payloads[row]}
		if wants.Vectors {
			item.Vector = rows.Vectors[0].Row(row)
		}
		items = append(items, item)
	}
	return items, nil
}

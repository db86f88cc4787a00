package qdrant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// find asks the database for the rows that a query with prefetches finds, with the caller's rights.
func (c *restCall) find(ctx context.Context, o object, rows int) (ids []rerank.ID, err error) {
	o = append(object(nil), o...).without("offset").without("score_threshold").
		with("limit", strconv.AppendInt(nil, int64(rows), 10)).with("with_payload", []byte("false")).with("with_vector", []byte("false"))
	body := o.bytes()
	if c.batch {
		body = object{{"searches", writeArray([]json.RawMessage{body})}}.bytes()
	}
	answer := c.forward(ctx, c.path(), body)
	if answer.Status != http.StatusOK || answer.Cut {
		return nil, errFind
	}
	lists, err := c.lists(answer.Body)
	if err != nil || len(lists) != 1 {
		return nil, errFind
	}
	err = eachObject(lists[0], func(point object) error {
		var id rerank.ID
		err := id.UnmarshalJSON(point.get("id"))
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, errFind
	}
	return ids, nil
}

// Limits beyond which a prefetch passes. Each level is read once more than the level around it, so
// a limited number of levels keeps reading linear.
const (
	maxPrefetches     = 256 // of one query
	maxPrefetchLevels = 8
)

// prefetches reads the elements of a prefetch, which is one object or an array of them.
func prefetches(raw []byte) (all []object, err error) {
	if len(raw) > 0 && raw[0] == '{' {
		all = make([]object, 1)
		all[0], err = readObject(raw)
	} else {
		all, err = readObjects(raw, maxPrefetches)
	}
	switch {
	case errors.Is(err, errElements):
		return nil, routing.Pass(passesPrefetch)
	case errors.Is(err, errKeys):
		return nil, routing.Pass("unknown-field")
	case err != nil:
		return nil, routing.Pass("malformed")
	}
	return all, nil
}

// checkPrefetch returns the Pass of a prefetch that cannot be answered: it has an unknown key at
// some level, a query that is neither a vector (dense or sparse) nor a fusion, or too many levels.
// It stops when ctx ends.
func checkPrefetch(ctx context.Context, raw []byte, levels int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if levels == 0 {
		return routing.Pass(passesPrefetch)
	}
	all, err := prefetches(raw)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.unknown("prefetch", "query", "using", "filter", "params", "score_threshold", "limit", "lookup_from") {
			return routing.Pass("unknown-field")
		}
		if q, err := readObject(o.get("query")); err == nil && q.unknown("nearest", "fusion", "indices", "values") || errors.Is(err, errKeys) {
			return routing.Pass(passesPrefetch)
		}
		if err := readParams(o, &routing.Search{}); err != nil {
			return err
		}
		if o.has(passesPrefetch) {
			if err := checkPrefetch(ctx, o.get(passesPrefetch), levels-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// fused turns a fusion whose prefetches search by the same dense vector into a nearest-neighbour
// query by that vector. It returns any other query unchanged.
func fused(o object) object {
	q, err := readObject(o.get("query"))
	if err != nil || !q.has("fusion") || q.unknown("fusion") {
		return o
	}
	all, err := prefetches(o.get(passesPrefetch))
	if err != nil {
		return o
	}
	var dense object
	for _, p := range all {
		vector := p.get("query")
		if nested, err := readObject(vector); err == nil {
			vector = nested.get("nearest")
		}
		if _, ok := readVector(vector); !ok {
			continue
		}
		if dense != nil && (!bytes.Equal(p.get("query"), dense.get("query")) || !bytes.Equal(p.get("using"), dense.get("using"))) {
			return o
		}
		dense = p
	}
	if dense == nil {
		return o
	}
	o = append(object(nil), o...).without("using").with("query", dense.get("query"))
	if dense.has("using") {
		o = o.with("using", dense.get("using"))
	}
	return o
}

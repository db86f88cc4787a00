package qdrant

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// find asks the database, as the caller, what a query with a prefetch finds.
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
	points, ok := readObjects(lists[0])
	if !ok {
		return nil, errFind
	}
	for _, p := range points {
		var id rerank.ID
		if err := id.UnmarshalJSON(p.get("id")); err != nil {
			return nil, errFind
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// prefetches are the elements of a prefetch, which is one or an array of them.
func prefetches(raw []byte) (all []object, err error) {
	if one, err := readObject(raw); err == nil {
		return []object{one}, nil
	}
	all, ok := readObjects(raw)
	if !ok {
		return nil, routing.Pass("malformed")
	}
	return all, nil
}

// knownPrefetch: a prefetch has known keys only, at any depth; its queries are
// vectors, dense or sparse, and fusions.
func knownPrefetch(raw []byte) error {
	all, err := prefetches(raw)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.unknown("prefetch", "query", "using", "filter", "params", "score_threshold", "limit", "lookup_from") {
			return routing.Pass("unknown-field")
		}
		if q, err := readObject(o.get("query")); err == nil && q.unknown("nearest", "fusion", "indices", "values") {
			return routing.Pass(passesPrefetch)
		}
		if err := readParams(o, &routing.Search{}); err != nil {
			return err
		}
		if o.has(passesPrefetch) {
			if err := knownPrefetch(o.get(passesPrefetch)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fused makes a fusion a query near to the vector of its prefetches, if those with a
// dense one agree; any other query is returned as it is.
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

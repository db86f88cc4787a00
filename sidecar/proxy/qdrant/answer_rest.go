package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// narrow restricts the body to the hits. It keeps payload and vector selectors, filter and caller,
// so that the database returns what this caller may see.
func (q request) narrow(whole object, searches []object, all []routing.Ranked) []byte {
	narrowed := make([]json.RawMessage, len(searches))
	for i, o := range searches {
		ids := make([]json.RawMessage, len(all[i].Hits))
		for j, h := range all[i].Hits {
			ids[j] = idText(h.ID)
		}
		must := []json.RawMessage{object{{"has_id", writeArray(ids)}}.bytes()}
		if o.has("filter") {
			must = append(must, o.get("filter"))
		}
		if !all[i].StoreScores {
			o = o.without("score_threshold")
		}
		if o.has(passesPrefetch) { // the hits replace the candidates of its prefetches
			o = fused(o).without(passesPrefetch)
		}
		o = append(object(nil), o...).without("offset").with("limit", strconv.AppendInt(nil, int64(max(1, len(ids))), 10)).
			with("filter", object{{"must", writeArray(must)}}.bytes()).with("params", json.RawMessage(`{"exact":true}`))
		narrowed[i] = o.bytes()
	}
	if !q.batch {
		return narrowed[0]
	}
	return append(object(nil), whole...).with("searches", writeArray(narrowed)).bytes()
}

var errUnexpected = errors.New("an answer of another form")

// lists returns the lists of points in an answer.
func (q request) lists(body []byte) ([]json.RawMessage, error) {
	o, err := readDocument(body)
	if err != nil {
		return nil, err
	}
	lists := []json.RawMessage{o.get("result")}
	if q.batch {
		if lists, err = readArray(o.get("result"), routing.MaxBatch); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnexpected, err)
		}
	}
	if q.groups {
		return groupHits(o.get("result"))
	}
	for i := range lists {
		if !q.query {
			continue
		}
		o, err := readObject(lists[i])
		if err != nil {
			return nil, err
		}
		lists[i] = o.get("points")
	}
	return lists, nil
}

// groupHits returns the hits of all groups of a result as one list.
func groupHits(result json.RawMessage) ([]json.RawMessage, error) {
	o, err := readObject(result)
	if err != nil {
		return nil, err
	}
	var all []json.RawMessage
	err = eachObject(o.get("groups"), func(group object) error {
		return eachObject(group.get("hits"), func(hit object) error {
			all = append(all, hit.bytes())
			return nil
		})
	})
	return []json.RawMessage{writeArray(all)}, err
}

// rebuild returns the answer with its confirmed points in the order of the hits and with their
// scores.
func (q request) rebuild(ctx context.Context, body []byte, all []routing.Ranked, took time.Duration) ([]byte, error) {
	o, err := readDocument(body)
	if err != nil {
		return nil, err
	}
	lists := []json.RawMessage{o.get("result")}
	if q.batch {
		if lists, err = readArray(o.get("result"), routing.MaxBatch); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnexpected, err)
		}
	}
	if len(lists) != len(all) {
		return nil, errUnexpected
	}
	for i := range lists {
		if lists[i], err = q.reorder(ctx, lists[i], &all[i]); err != nil {
			return nil, err
		}
	}
	result := lists[0]
	if q.batch {
		result = writeArray(lists)
	}
	return o.with("result", result).with("time", strconv.AppendFloat(nil, took.Seconds(), 'f', -1, 64)).bytes(), nil
}

func (q request) reorder(ctx context.Context, list json.RawMessage, r *routing.Ranked) (json.RawMessage, error) {
	if !q.query {
		return reorderJSON(ctx, list, r)
	}
	o, err := readObject(list)
	if err != nil {
		return nil, err
	}
	points, err := reorderJSON(ctx, o.get("points"), r)
	return o.with("points", points).bytes(), err
}

// vectorIn returns a point's dense vector of a field, or nil if the point came without it.
func vectorIn(point object, field string) []float32 {
	raw := point.get("vector")
	if field != "" {
		named, err := readObject(raw)
		if err != nil {
			return nil
		}
		raw = named.get(field)
	}
	v, ok := readVector(raw)
	if !ok {
		return nil
	}
	return v
}

// reorderJSON is reorder for JSON.
func reorderJSON(ctx context.Context, list json.RawMessage, r *routing.Ranked) (json.RawMessage, error) {
	found := map[string]object{}
	err := eachObject(list, func(point object) error {
		found[string(point.get("id"))] = point
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnexpected, err)
	}
	page, err := r.Page(ctx, func(id rerank.ID) routing.Row {
		o := found[string(idText(id))]
		return routing.Row{IsThere: o != nil, Vector: vectorIn(o, r.Vector)}
	})
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, len(page))
	for i, h := range page {
		o := found[string(idText(h.ID))]
		if !r.StoreScores {
			o = o.with("score", scoreText(h.Score))
		}
		out[i] = o.bytes()
	}
	return writeArray(out), nil
}

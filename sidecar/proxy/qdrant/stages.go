package qdrant

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
	"github.com/likenessdb/likeness/sidecar/search"
)

// stage is a query with its prefetches. The database answers the prefetches first, and the
// query then orders or fuses their rows.
type stage struct {
	search int     // the index of the stage's search in its call, or passesAsIs
	legs   []stage // its prefetches, in order
}

// passesAsIs is the index of a stage that is sent unchanged: a fusion, or a search of a field
// without a route.
const passesAsIs = -1

// Variants of a Query, other than nearest, whose rows depend on no vector field.
const (
	orderByField = 5
	fusionField  = 6
	sampleField  = 7
	formulaField = 8
	rrfField     = 10
)

// readStages reads a query with prefetches.
func (found *located) readStages(message []byte, l layout, routed func(field string) bool) error {
	if found.queries == nil { // every query so far is one search
		for i := range found.searches {
			found.queries = append(found.queries, stage{search: i})
		}
	}
	first, offset := len(found.searches), uint64(0)
	query, err := found.readStage(message, l, routed, maxPrefetchLevels+1)
	if err != nil || len(found.searches) == first {
		return errors.Join(errOther, err) // then no search of it is rewritten
	}
	found.queries = append(found.queries, query)
	err = wire.Walk(message, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others cross unread
		case l.timeout:
			found.timeout, err = f.Uint()
		case l.offset:
			offset, err = f.Uint()
		}
		return err
	})
	for i := range found.searches[first:] {
		found.searches[first+i].Offset = offset
	}
	return err
}

// readStage reads a query or a prefetch together with its own prefetches, which may have at most
// the given number of levels.
func (found *located) readStage(message []byte, l layout, routed func(field string) bool, levels int) (s stage, err error) {
	if levels == 0 {
		return s, errOther
	}
	s.search = passesAsIs
	own, err := isRewritable(message, l, routed)
	if err != nil {
		return s, err
	}
	if own {
		plain := l
		plain.prefetch = 0
		one, _, err := locateOne(message, plain)
		if err != nil {
			return s, err
		}
		// Prefetches supply the rows of this search, or a fusion takes them.
		one.Staged, one.Narrowed, one.Exact = true, true, false
		s.search = len(found.searches)
		if err := found.add(one); err != nil {
			return s, err
		}
	}
	err = wire.Walk(message, func(f wire.Field) error {
		if f.Number != l.prefetch {
			return nil
		}
		prefetch, err := f.Message()
		if err != nil || len(s.legs) == maxPrefetches {
			return errors.Join(errOther, err)
		}
		leg, err := found.readStage(prefetch, prefetchLayout, routed, levels-1)
		s.legs = append(s.legs, leg)
		return err
	})
	return s, err
}

// isRewritable reports whether the search of a stage is rewritten: it is by a dense vector, and its
// field has a route. It returns errOther for a stage that uses a routed field in another way, and
// for a formula, whose terms are the scores of its prefetches.
func isRewritable(message []byte, l layout, routed func(field string) bool) (own bool, err error) {
	var query []byte
	name, queries := "", 0
	err = wire.Walk(message, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others cross unread
		case l.query:
			queries++
			query, err = f.Message()
		case l.name:
			var text []byte
			text, err = f.Message()
			name = string(text)
		}
		return err
	})
	switch {
	case err != nil:
		return false, err
	case queries > 1:
		return false, wire.ErrRepeated
	case len(query) == 0:
		return false, nil
	}
	variant, _, _ := protowire.ConsumeTag(query)
	if err := onlyField(query, variant); err != nil {
		return false, err
	}
	switch variant { //nolint:exhaustive // all other variants search a vector field
	case fusionField, rrfField, orderByField, sampleField:
		return false, nil
	case formulaField:
		return false, errOther
	}
	if !routed(name) {
		return false, nil
	}
	_, err = readVectorAt(message, l.vector)
	return err == nil, err
}

// append appends a stage to out with each of its searches replaced by its counterpart in all.
func (s stage) append(out, message []byte, l layout, all []routing.Replacement) (_ []byte, err error) {
	if s.search != passesAsIs {
		if message, err = appendSearch(nil, message, l, all[s.search]); err != nil {
			return out, err
		}
	}
	leg := 0
	return wire.Edit(out, message, func(out []byte, f wire.Field) ([]byte, error) {
		if f.Number != l.prefetch {
			return append(out, f.Raw...), nil
		}
		leg++
		return wire.AppendMessage(out, f.Number, len(f.Value), func(out []byte) ([]byte, error) {
			return s.legs[leg-1].append(out, f.Value, prefetchLayout, all)
		})
	})
}

// lastStages returns, for each query, the mapping of its rows' scores. A query that is a fusion
// keeps its scores.
func lastStages(queries []stage, all []routing.Replacement) []routing.Replacement {
	if queries == nil {
		return all
	}
	last := make([]routing.Replacement, len(queries))
	for i, q := range queries {
		last[i].Scale = 1
		if q.search != passesAsIs {
			last[i] = all[q.search]
		}
	}
	return last
}

// hitsOfStages returns the rows of each search, from the rows of each query. It has no rows for
// prefetches, because answers do not show them.
func hitsOfStages(queries []stage, rows [][]search.Hit, searches int) [][]search.Hit {
	if queries == nil {
		return rows
	}
	hits := make([][]search.Hit, searches)
	for i, q := range queries {
		if q.search != passesAsIs {
			hits[q.search] = rows[i]
		}
	}
	return hits
}

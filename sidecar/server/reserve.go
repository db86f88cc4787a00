package server

import (
	"context"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Memory that an answer takes while it is made and sent, about, in bytes.
const (
	itemBytes    = 512 // an item with its id, score and payload
	termBytes    = 256 // a term of an explanation
	elementBytes = 8   // an element of an item's vector, read or embedded, and its copy
)

// reserve takes the memory of the answers to searches of one call, before they are made, until the call ends. It returns a
// *gate.RefusedError or the context's error.
func (s *services) reserve(ctx context.Context, searches ...*likenessv1.SearchRequest) error {
	if !s.gate.CountsBytes() {
		return nil
	}
	bytes := int64(0)
	for _, r := range searches {
		rt, err := s.searcher.Route(r.GetRoute())
		if err != nil {
			continue // the search returns the error
		}
		items := max(min(int64(r.GetK()), int64(rt.MaxK)), 0)
		bytes += items * itemBytes
		if r.GetExplain() {
			bytes += items * termsOf(rt, len(r.GetQuery().GetVectors())) * termBytes
		}
	}
	return s.gate.Reserve(ctx, bytes)
}

// reserveScores takes the memory of the answer to a call that scores items, as reserve does.
func (s *services) reserveScores(ctx context.Context, r search.ScoreRequest) error {
	if !s.gate.CountsBytes() {
		return nil
	}
	rt, err := s.searcher.Route(r.Route)
	if err != nil {
		return err
	}
	read := int64(len(r.Documents))
	if rt.Placement.ScoresStored() {
		read += int64(len(r.IDs))
	}
	bytes := read * int64(rt.Model.Similarity.Spec().ItemDim) * elementBytes
	if r.Explain {
		items := int64(len(r.IDs) + r.Vectors.Rows)
		bytes += items * (itemBytes + termsOf(rt, r.Query.Vectors.Rows)*termBytes)
	}
	return s.gate.Reserve(ctx, bytes)
}

// termsOf returns how many terms an item's score has for a query of so many vectors.
func termsOf(rt *route.Route, vectors int) int64 {
	spec := rt.Model.Similarity.Spec()
	return int64(max(spec.PairsQuery*spec.PairsItem, vectors))
}

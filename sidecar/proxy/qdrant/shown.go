package qdrant

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// An answer of ids, scores and versions is made from hits that the database has shown,
// without another read.

// wantsIDsOnly reports whether an answer by these selectors shows neither payload nor
// vectors.
func wantsIDsOnly(payload *qdrant.WithPayloadSelector, vectors *qdrant.WithVectorsSelector) bool {
	p, isSwitch := payload.GetSelectorOptions().(*qdrant.WithPayloadSelector_Enable)
	if payload.GetSelectorOptions() != nil && !(isSwitch && !p.Enable) {
		return false
	}
	v, isSwitch := vectors.GetSelectorOptions().(*qdrant.WithVectorsSelector_Enable)
	return vectors.GetSelectorOptions() == nil || isSwitch && !v.Enable
}

// wantsIDsOnly reports whether an answer to a search in JSON shows neither payload nor vectors.
func (o object) wantsIDsOnly() bool {
	for _, key := range []string{"with_payload", "with_vector"} {
		if o.has(key) && string(o.get(key)) != "false" {
			return false
		}
	}
	return true
}

// isPresent makes Ranked.Page treat every hit as present.
func isPresent(rerank.ID) routing.Row { return routing.Row{IsThere: true} }

// makeAnswer builds the answer from hits that the database has shown to this caller.
func (c *call) makeAnswer(ctx context.Context, all []routing.Ranked) (r rawgrpc.Reply, err error) {
	lists := make([]*qdrant.BatchResult, len(all))
	for i := range all {
		page, err := all[i].Page(ctx, isPresent)
		if err != nil {
			return r, err
		}
		lists[i] = &qdrant.BatchResult{}
		for _, h := range page {
			lists[i].Result = append(lists[i].Result, &qdrant.ScoredPoint{Id: pointID(h.ID), Score: h.Score, Version: h.Version})
		}
	}
	var answer proto.Message
	switch took := time.Since(c.began).Seconds(); c.request.(type) {
	case *qdrant.SearchPoints:
		answer = &qdrant.SearchResponse{Result: lists[0].GetResult(), Time: took}
	case *qdrant.QueryPoints:
		answer = &qdrant.QueryResponse{Result: lists[0].GetResult(), Time: took}
	case *qdrant.SearchBatchPoints:
		answer = &qdrant.SearchBatchResponse{Result: lists, Time: took}
	case *qdrant.QueryBatchPoints:
		answer = &qdrant.QueryBatchResponse{Result: lists, Time: took}
	default:
		return r, errConfirm
	}
	r.Message, err = proto.Marshal(answer)
	return r, err
}

// makeAnswer builds the answer from hits that the database has shown to this caller.
func (c *restCall) makeAnswer(ctx context.Context, all []routing.Ranked) (rest.Answer, error) {
	lists := make([]json.RawMessage, len(all))
	for i := range all {
		page, err := all[i].Page(ctx, isPresent)
		if err != nil {
			return rest.Answer{}, err
		}
		points := make([]json.RawMessage, len(page))
		for i, h := range page {
			points[i] = object{{"id", idText(h.ID)}, {"version", strconv.AppendUint(nil, h.Version, 10)}, {"score", scoreText(h.Score)}}.bytes()
		}
		if lists[i] = writeArray(points); c.query {
			lists[i] = object{{"points", lists[i]}}.bytes()
		}
	}
	result := lists[0]
	if c.batch {
		result = writeArray(lists)
	}
	took := strconv.AppendFloat(nil, time.Since(c.began).Seconds(), 'f', -1, 64)
	return rest.Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: object{{"result", result}, {"status", json.RawMessage(`"ok"`)}, {"time", took}}.bytes(),
	}, nil
}

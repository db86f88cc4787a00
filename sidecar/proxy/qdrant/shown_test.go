package qdrant_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy/recording"
)

// bare returns calls that ask only for ids, scores and versions. With payload they also ask for a
// field that no point has.
func bare(payload bool) []asking {
	vec, field := proto.String("vec"), ""
	var selector *client.WithPayloadSelector
	if payload {
		field, selector = `,"with_payload":["absent"]`, client.NewWithPayloadInclude("absent")
	}
	search := func() *client.SearchPoints {
		return &client.SearchPoints{CollectionName: "routed", Vector: asked, VectorName: vec, Limit: 3, Offset: proto.Uint64(2), Filter: byNumber(), WithPayload: selector}
	}
	query := func() *client.QueryPoints {
		return &client.QueryPoints{CollectionName: "routed", Query: client.NewQueryDense(asked), Using: vec, Limit: proto.Uint64(4), WithPayload: selector}
	}
	restSearch, restQuery := `{"vector":{"name":"vec","vector":[1,-2,0.5,3]},"limit":3,"offset":1`+field+`}`, `{"query":[1,-2,0.5,3],"using":"vec","filter":`+byNumberJSON+field+`}`
	return []asking{
		{method: client.Points_Search_FullMethodName, request: search()},
		{method: client.Points_Query_FullMethodName, request: query()},
		{method: client.Points_SearchBatch_FullMethodName, request: &client.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*client.SearchPoints{search(), search()}}},
		{method: client.Points_QueryBatch_FullMethodName, request: &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{query(), query()}}},
		{path: "search", body: restSearch},
		{path: "query", body: restQuery},
		{path: "search/batch", body: `{"searches":[` + restSearch + `,` + restSearch + `]}`},
		{path: "query/batch", body: `{"searches":[` + restQuery + `]}`},
	}
}

// TestIDsAloneNeedNoOtherRead: an answer without payload and vectors equals the answer that the
// database would confirm, and needs no confirming read.
func TestIDsAloneNeedNoOtherRead(t *testing.T) {
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) {
			db := servers.QdrantForTest(t, version, servers.Options{})
			fillQdrant(t, db)
			made, confirming := rescoredAnswers(t, db, bare(false))
			if confirming != 0 {
				t.Errorf("%d confirming reads of ids alone, want none", confirming)
			}
			confirmed, confirming := rescoredAnswers(t, db, bare(true))
			if confirming != len(confirmed) {
				t.Errorf("%d confirming reads of %d calls that show payload", confirming, len(confirmed))
			}
			for i, a := range bare(false) {
				if made[i] != confirmed[i] || !strings.Contains(made[i], "version") {
					t.Errorf("%s:\n%s, confirmed\n%s", a.name(), made[i], confirmed[i])
				}
			}
		})
	}
}

// rescoredAnswers makes calls on a route. It returns the answers without their times and empty
// payloads, and the number of confirming reads.
func rescoredAnswers(t *testing.T, db *servers.Server, calls []asking) (answers []string, confirming int) {
	t.Helper()
	requests := before(t, db, "exact_search: true", func(_ *recording.Upstream, conn *grpc.ClientConn, rest string) {
		accept(t.Context(), t, conn)
		for _, a := range calls {
			var answer, status string
			if a.path == "" {
				message, trailer := invoke(t, conn, a)
				answer, status = prototext.MarshalOptions{}.Format(message), strings.Join(trailer.Get("likeness-status"), ",")
			} else {
				body, header := post(t, rest, a)
				answer, status = strings.ReplaceAll(body, `,"payload":{}`, ""), header.Get("Likeness-Status")
			}
			if answers = append(answers, answer); !strings.HasPrefix(status, "rescored; ") {
				t.Errorf("%s: status %q", a.name(), status)
			}
		}
	})
	for _, all := range requests {
		for _, e := range all {
			if isConfirm := func(a asking) bool {
				return a.path == "" && a.isConfirm(e) || a.path != "" && strings.HasSuffix(e.Call, "/"+a.path) && bytes.Contains(e.Body, []byte("has_id"))
			}; slices.ContainsFunc(calls, isConfirm) {
				confirming++
			}
		}
	}
	return answers, confirming
}

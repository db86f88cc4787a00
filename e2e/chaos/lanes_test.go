package chaos_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// lane is a way to search.
type lane struct {
	name  string
	side  *sidecar
	store string // store that it needs: qdrant, milvus or ""
	api   bool   // the sidecar's timeout applies
	ask   func(ctx context.Context, q []float32) (answer, error)
	check func(got []hit, q []float32) string
}

// answer is an answer, with its own reason for being incomplete.
type answer struct {
	hits []hit
	flag string
}

func (w *world) lanes() []*lane {
	var all []*lane
	for _, s := range []*sidecar{w.one, w.two} {
		all = append(all,
			&lane{s.name + " api stored", s, "qdrant", true, api(s, "stored"), w.oracle.check},
			&lane{s.name + " api ranked", s, "qdrant", true, api(s, "ranked"), w.oracle.checkRanked},
			&lane{s.name + " api scan", s, "", true, api(s, "scan"), w.oracle.check},
			&lane{s.name + " qdrant grpc", s, "qdrant", false, qdrantGRPC(s), w.oracle.check},
			&lane{s.name + " qdrant rest", s, "qdrant", false, qdrantREST(s), w.oracle.check})
	}
	return append(all,
		&lane{"three api stored", w.three, "milvus", true, api(w.three, "stored"), w.oracle.check},
		&lane{"three milvus grpc", w.three, "milvus", false, milvusGRPC(w.three), w.oracle.check})
}

// Limits of calls in case an answer never comes; answers of the API are due much earlier.
const (
	apiBackstop   = 10 * time.Second
	proxyBackstop = time.Second
)

// search makes a call on a lane and checks its answer.
func (w *world) search(ctx context.Context, l *lane, n int) bench.Outcome {
	q := vector(rand.New(rand.NewPCG(uint64(n), 2)))
	limit := proxyBackstop
	if l.api {
		limit = apiBackstop
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before, began := l.side.epoch.Load(), time.Now()
	a, err := l.ask(ctx, q)
	took := time.Since(began)
	if l.api && before%2 == 0 && before == l.side.epoch.Load() {
		w.ledger.overdue(l.name, max(took-timeout, 0), took < apiBackstop)
	}
	v, detail := right, ""
	switch {
	case err != nil:
		v = refused
	case a.flag != "":
		v = flagged
	default:
		if detail = l.check(a.hits, q); detail != "" {
			v = wrong
		}
	}
	w.ledger.answer(l.name, began, v, detail)
	return map[verdict]bench.Outcome{right: bench.Good, flagged: bench.Degraded, refused: bench.Refused, wrong: bench.Failed}[v]
}

func api(s *sidecar, route string) func(context.Context, []float32) (answer, error) {
	return apiWithin(s, route, timeout)
}

func apiWithin(s *sidecar, route string, timeout time.Duration) func(context.Context, []float32) (answer, error) {
	c := likenessv1.NewSearchServiceClient(s.conn)
	return func(ctx context.Context, q []float32) (answer, error) {
		r, err := c.Search(ctx, &likenessv1.SearchRequest{Route: route, Query: &likenessv1.Query{Vector: q}, K: wanted, Timeout: durationpb.New(timeout)})
		if err != nil {
			return answer{}, err
		}
		a := answer{}
		for _, h := range r.GetHits() {
			a.hits = append(a.hits, hit{h.GetId().GetNumber(), float64(h.GetScore())})
			if route == "ranked" && !h.GetRanked() {
				a.flag = "not ranked"
			}
		}
		switch {
		case r.GetDegraded() != nil:
			a.flag = r.GetDegraded().GetReason()
		case r.GetRanking().GetReason() != "":
			a.flag = r.GetRanking().GetReason()
		case r.GetNotFinite() > 0:
			a.flag = "not finite"
		case route != "ranked" && r.GetCertificate().GetProof() == likenessv1.Proof_PROOF_UNSPECIFIED:
			a.flag = "certificate " + r.GetCertificate().String()
		}
		return a, nil
	}
}

// flagOf evaluates likeness-status: an answer counts as unflagged if it is rescored and proved, for
// the collection or for a table.
func flagOf(status string) string {
	if strings.HasPrefix(status, "rescored;") && (strings.Contains(status, "certificate=exact") || strings.Contains(status, "certificate=snapshot")) {
		return ""
	}
	return "status " + status
}

func qdrantGRPC(s *sidecar) func(context.Context, []float32) (answer, error) {
	c := qdrant.NewPointsClient(s.proxy)
	return func(ctx context.Context, q []float32) (answer, error) {
		var trailer metadata.MD
		r, err := c.Query(ctx, &qdrant.QueryPoints{CollectionName: fixed, Query: qdrant.NewQueryDense(q), Limit: qdrant.PtrOf(uint64(wanted))}, grpc.Trailer(&trailer))
		if err != nil {
			return answer{}, err
		}
		a := answer{flag: flagOf(strings.Join(trailer.Get("likeness-status"), " "))}
		for _, p := range r.GetResult() {
			a.hits = append(a.hits, hit{p.GetId().GetNum(), float64(p.GetScore())})
		}
		return a, nil
	}
}

func qdrantREST(s *sidecar) func(context.Context, []float32) (answer, error) {
	return func(ctx context.Context, q []float32) (answer, error) {
		var got struct {
			Result struct {
				Points []struct {
					ID    uint64
					Score float64
				}
			}
		}
		header, err := s.post(ctx, http.MethodPost, "/collections/"+fixed+"/points/query", map[string]any{"query": q, "limit": wanted}, &got)
		if err != nil {
			return answer{}, err
		}
		a := answer{flag: flagOf(header.Get("Likeness-Status"))}
		for _, p := range got.Result.Points {
			a.hits = append(a.hits, hit{p.ID, p.Score})
		}
		return a, nil
	}
}

// post sends JSON to the REST port of the proxy.
func (s *sidecar) post(ctx context.Context, method, path string, body, into any) (http.Header, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.rest+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	return response.Header, json.Unmarshal(text, into)
}

func milvusGRPC(s *sidecar) func(context.Context, []float32) (answer, error) {
	c := milvuspb.NewMilvusServiceClient(s.proxy)
	return func(ctx context.Context, q []float32) (answer, error) {
		var trailer metadata.MD
		r, err := c.Search(ctx, milvusSearch(q), grpc.Trailer(&trailer))
		if err == nil && r.GetStatus().GetCode() != 0 {
			err = fmt.Errorf("status %d: %s", r.GetStatus().GetCode(), r.GetStatus().GetReason())
		}
		if err != nil {
			return answer{}, err
		}
		a := answer{flag: flagOf(strings.Join(trailer.Get("likeness-status"), " "))}
		ids := r.GetResults().GetIds().GetIntId().GetData()
		for i, score := range r.GetResults().GetScores() {
			if i < len(ids) {
				a.hits = append(a.hits, hit{uint64(ids[i]), float64(score)})
			}
		}
		return a, nil
	}
}

func milvusSearch(q []float32) *milvuspb.SearchRequest {
	var b []byte
	for _, x := range q {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	group, _ := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{
		{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{b}}}})
	r := &milvuspb.SearchRequest{CollectionName: fixed, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: group, Nq: 1, UseDefaultConsistency: true}
	for key, value := range map[string]string{"anns_field": "vec", "topk": strconv.Itoa(wanted), "metric_type": "IP", "params": "{}", "round_decimal": "-1"} {
		r.SearchParams = append(r.SearchParams, &commonpb.KeyValuePair{Key: key, Value: value})
	}
	return r
}

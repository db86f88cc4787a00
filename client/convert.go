package client

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// word returns an enum's value without its prefix, in lower case. An unspecified value
// is empty, and a value of a later version is its number.
func word(value fmt.Stringer, prefix string) string {
	w := strings.ToLower(strings.TrimPrefix(value.String(), prefix))
	if w == "unspecified" {
		return ""
	}
	return w
}

// small converts a number to the schema's int32. A number out of range becomes one
// that the sidecar also rejects.
func small(n int) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }

// unknownStrategy is a value that the sidecar rejects with a list of the known
// strategies.
const unknownStrategy = -1

func (s Strategy) proto() likenessv1.Strategy {
	if s == "" {
		return likenessv1.Strategy_STRATEGY_UNSPECIFIED
	}
	if n, ok := likenessv1.Strategy_value["STRATEGY_"+strings.ToUpper(string(s))]; ok {
		return likenessv1.Strategy(n)
	}
	return unknownStrategy
}

func (q Query) proto() *likenessv1.Query {
	out := &likenessv1.Query{Vector: q.Vector, UserId: q.UserID, Context: q.Context, Text: q.Text}
	for _, v := range q.Vectors {
		out.Vectors = append(out.Vectors, &likenessv1.Vector{Values: v})
	}
	for i := range q.Items {
		out.ItemIds = append(out.ItemIds, &likenessv1.WeightedItem{Id: q.Items[i].ID.proto(), Weight: &q.Items[i].Weight})
	}
	return out
}

func (s *Search) proto() *likenessv1.SearchRequest {
	r := &likenessv1.SearchRequest{
		Route: s.Route, Query: s.Query.proto(), K: small(s.K), Filter: s.Filter, Strategy: s.Strategy.proto(),
		Depth: small(s.Depth), AverageDepth: small(s.AverageDepth), MaxGap: s.MaxGap, Explain: s.Explain, Head: s.Head, Rounds: small(s.Rounds),
		RequireExact: s.RequireExact, ExcludeIds: protoIDs(s.ExcludeIDs), Mix: s.Mix, StoredVector: s.StoredVector, IncludeItemIds: s.IncludeItems, User: s.User,
	}
	if s.Timeout > 0 {
		r.Timeout = durationpb.New(s.Timeout)
	}
	if s.Payload || len(s.PayloadFields) > 0 {
		r.Payload = &likenessv1.PayloadSelector{Fields: s.PayloadFields}
	}
	if s.Calls != nil {
		calls := small(*s.Calls)
		r.Calls = &calls
	}
	return r
}

func protoIDs(ids []ID) []*likenessv1.ItemId {
	out := make([]*likenessv1.ItemId, len(ids))
	for i, id := range ids {
		out[i] = id.proto()
	}
	return out
}

func (i Items) ids() *likenessv1.ItemIds { return &likenessv1.ItemIds{Ids: protoIDs(i.IDs)} }

func (i Items) vectors() *likenessv1.Vectors {
	out := &likenessv1.Vectors{}
	for _, v := range i.Vectors {
		out.Vectors = append(out.Vectors, &likenessv1.Vector{Values: v})
	}
	return out
}

func fromSearch(m *likenessv1.SearchResponse, requestID string) *Answer {
	a := &Answer{
		Hits: make([]Hit, len(m.GetHits())), Certificate: fromCertificate(m.GetCertificate()),
		Model: m.GetModel().GetName(), ModelVersion: m.GetModel().GetVersion(),
		Strategy: Strategy(word(m.GetStrategy(), "STRATEGY_")), Plan: m.GetPlan(),
		NotFinite: int(m.GetNotFinite()), NotIndexed: int(m.GetNotIndexed()), RequestID: requestID, AnswerID: m.GetAnswerId(),
		Reembedded: m.Reembedded,
	}
	for i, h := range m.GetHits() {
		a.Hits[i] = Hit{ID: fromID(h.GetId()), Score: h.GetScore(), Ranked: h.GetRanked(), Terms: fromTerms(h.GetExplanation())}
		if h.GetPayloadJson() != "" {
			a.Hits[i].Payload = json.RawMessage(h.GetPayloadJson())
		}
	}
	if d := m.GetDegraded(); d != nil {
		a.Degraded = &Degraded{Reason: d.GetReason(), Detail: d.GetDetail()}
	}
	if t := m.GetTimings(); t != nil {
		a.Timings = Timings{
			Embed: t.GetEmbed().AsDuration(), Encode: t.GetEncode().AsDuration(), Retrieve: t.GetRetrieve().AsDuration(), Score: t.GetScore().AsDuration(),
			Certify: t.GetCertify().AsDuration(), Rank: t.GetRank().AsDuration(), Total: t.GetTotal().AsDuration(),
		}
	}
	if r := m.GetRanking(); r != nil {
		a.Ranking = &Ranking{
			Ranker: r.GetRanker(), Version: r.GetVersion(), Calls: int(r.GetCalls()), Budget: int(r.GetBudget()), Rounds: int(r.GetRounds()),
			Cut: int(r.GetCut()), Reason: r.GetReason(),
		}
	}
	return a
}

func fromTerms(e *likenessv1.Explanation) []Term {
	var out []Term
	for _, t := range e.GetTerms() {
		out = append(out, Term{
			QueryComponent: int(t.GetQueryComponent()), ItemComponent: int(t.GetItemComponent()), Dot: t.GetDot(), Logit: t.GetLogit(), Gate: t.GetGate(),
		})
	}
	return out
}

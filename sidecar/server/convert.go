package server

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

var strategies = map[likenessv1.Strategy]rerank.Strategy{
	likenessv1.Strategy_STRATEGY_PER_EMBEDDING: rerank.PerEmbedding,
	likenessv1.Strategy_STRATEGY_AVERAGE:       rerank.Average,
	likenessv1.Strategy_STRATEGY_COMBINED:      rerank.Combined,
	likenessv1.Strategy_STRATEGY_DISTILLED:     rerank.Distilled,
	likenessv1.Strategy_STRATEGY_COMPANION:     rerank.Companion,
	likenessv1.Strategy_STRATEGY_SCAN:          rerank.Scan,
}

var weights = map[likenessv1.Weights]rerank.Weights{
	likenessv1.Weights_WEIGHTS_UNIFORM: rerank.UniformWeights,
	likenessv1.Weights_WEIGHTS_GATES:   rerank.GateWeights,
}

var certificateStatuses = map[likenessv1.CertificateStatus]rerank.Status{
	likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT:      rerank.StatusExact,
	likenessv1.CertificateStatus_CERTIFICATE_STATUS_CALIBRATED: rerank.StatusCalibrated,
	likenessv1.CertificateStatus_CERTIFICATE_STATUS_UNKNOWN:    rerank.StatusUnknown,
	likenessv1.CertificateStatus_CERTIFICATE_STATUS_SNAPSHOT:   rerank.StatusSnapshot,
}

var proofs = map[likenessv1.Proof]rerank.Proof{
	likenessv1.Proof_PROOF_UNSPECIFIED:   rerank.ProofNone,
	likenessv1.Proof_PROOF_INNER_PRODUCT: rerank.ProofInnerProduct,
	likenessv1.Proof_PROOF_TABLE_SCAN:    rerank.ProofScan,
	likenessv1.Proof_PROOF_BOUND_CLOSED:  rerank.ProofBound,
	likenessv1.Proof_PROOF_EXHAUSTED:     rerank.ProofExhausted,
}

var stops = map[likenessv1.Stop]rerank.Stop{
	likenessv1.Stop_STOP_GAP_REACHED: rerank.StopGap,
	likenessv1.Stop_STOP_FIXED_DEPTH: rerank.StopFixed,
	likenessv1.Stop_STOP_DEADLINE:    rerank.StopDeadline,
	likenessv1.Stop_STOP_DEPTH_LIMIT: rerank.StopLimit,
	likenessv1.Stop_STOP_EXHAUSTED:   rerank.StopExhausted,
	likenessv1.Stop_STOP_NO_BOUND:    rerank.StopUnbounded,
}

// enumOf returns the proto value for a word, or the unspecified value for an unknown word.
func enumOf[E, W comparable](words map[E]W, word W) E {
	for e, w := range words {
		if w == word {
			return e
		}
	}
	var unspecified E
	return unspecified
}

func fieldError(field, format string, args ...any) error {
	return &plan.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

func toQuery(q *likenessv1.Query) (rerank.Query, error) {
	out := rerank.Query{Vector: q.GetVector(), UserID: q.GetUserId(), Text: q.GetText(), Context: q.GetContext()}
	out.HasUserID = q != nil && q.UserId != nil
	var err error
	out.Vectors, err = toMatrix("query.vectors", q.GetVectors())
	return out, err
}

func toRequest(r *likenessv1.SearchRequest) (search.Request, error) {
	query, err := toQuery(r.GetQuery())
	out := search.Request{
		Route:         r.GetRoute(),
		Query:         query,
		K:             int(r.GetK()),
		Filter:        r.GetFilter(),
		Strategy:      strategies[r.GetStrategy()],
		Depth:         int(r.GetDepth()),
		AverageDepth:  int(r.GetAverageDepth()),
		Weights:       weights[r.GetWeights()],
		Head:          r.GetHead(),
		MaxGap:        r.MaxGap,
		Explain:       r.GetExplain(),
		Payload:       r.GetPayload() != nil,
		PayloadFields: r.GetPayload().GetFields(),
		Rounds:        int(r.GetRounds()),
		RequireExact:  r.GetRequireExact(),
		Exclude:       toIDs(r.GetExcludeIds()),
		StoredVector:  r.GetStoredVector(),
		History:       toHistory(r.GetQuery().GetItemIds()),
		KeepHistory:   r.GetIncludeItemIds(),
		Shown:         true,
		User:          r.GetUser(),
	}
	if r.Calls != nil {
		calls := int(r.GetCalls())
		out.Calls = &calls
	}
	if r.Mix != nil {
		mix := float64(r.GetMix())
		out.Mix = &mix
	}
	return out, err
}

func toID(id *likenessv1.ItemId) rerank.ID {
	switch v := id.GetId().(type) {
	case *likenessv1.ItemId_Number:
		return rerank.UintID(v.Number)
	case *likenessv1.ItemId_Negative:
		return rerank.IntID(v.Negative)
	default:
		return rerank.TextID(id.GetText())
	}
}

func toHistory(items []*likenessv1.WeightedItem) []plan.WeightedID {
	if len(items) == 0 {
		return nil
	}
	out := make([]plan.WeightedID, len(items))
	for i, it := range items {
		out[i] = plan.WeightedID{ID: toID(it.GetId()), Weight: 1}
		if it.Weight != nil {
			out[i].Weight = float64(it.GetWeight())
		}
	}
	return out
}

func toIDs(ids []*likenessv1.ItemId) []rerank.ID {
	if len(ids) == 0 {
		return nil
	}
	out := make([]rerank.ID, len(ids))
	for i, id := range ids {
		out[i] = toID(id)
	}
	return out
}

func fromID(id rerank.ID) *likenessv1.ItemId {
	if n, ok := id.Uint64(); ok {
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: n}}
	}
	if n, ok := id.Int64(); ok {
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Negative{Negative: n}}
	}
	text, _ := id.Text()
	return &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: utf8(text)}}
}

func fromIDs(ids []rerank.ID) []*likenessv1.ItemId {
	out := make([]*likenessv1.ItemId, len(ids))
	for i, id := range ids {
		out[i] = fromID(id)
	}
	return out
}

// scoring has the fields that ScoreRequest and ExplainRequest have in common.
type scoring interface {
	GetRoute() string
	GetQuery() *likenessv1.Query
	GetIds() *likenessv1.ItemIds
	GetVectors() *likenessv1.Vectors
}

func toScoreRequest(r scoring, explain bool) (search.ScoreRequest, error) {
	query, err := toQuery(r.GetQuery())
	if err != nil {
		return search.ScoreRequest{}, err
	}
	req := search.ScoreRequest{Route: r.GetRoute(), Query: query, History: toHistory(r.GetQuery().GetItemIds()), Explain: explain}
	req.IDs = toIDs(r.GetIds().GetIds())
	if with, ok := r.(interface{ GetDocuments() *likenessv1.Documents }); ok {
		req.Documents = toDocuments(with.GetDocuments().GetDocuments())
	}
	req.Vectors, err = toMatrix("vectors.vectors", r.GetVectors().GetVectors())
	return req, err
}

func toDocuments(documents []*likenessv1.Document) []search.Document {
	if len(documents) == 0 {
		return nil
	}
	out := make([]search.Document, len(documents))
	for i, d := range documents {
		switch v := d.GetDocument().(type) {
		case *likenessv1.Document_Number:
			out[i].ID = rerank.UintID(v.Number)
		case *likenessv1.Document_Negative:
			if v.Negative < 0 { // the rule of the field; otherwise the document names nothing
				out[i].ID = rerank.IntID(v.Negative)
			}
		case *likenessv1.Document_Id:
			out[i].ID = rerank.TextID(v.Id)
		case *likenessv1.Document_Text:
			out[i].Text = v.Text
		}
	}
	return out
}

// toMatrix converts vectors of the given field. It returns a *plan.FieldError unless all have one length.
func toMatrix(field string, vectors []*likenessv1.Vector) (rerank.Matrix, error) {
	if len(vectors) == 0 {
		return rerank.Matrix{}, nil
	}
	dim := len(vectors[0].GetValues())
	m := rerank.Matrix{Rows: len(vectors), Cols: dim}
	for i, v := range vectors {
		if len(v.GetValues()) != dim {
			return m, fieldError(fmt.Sprintf("%s[%d].values", field, i),
				"has %d elements, the first vector %d; give vectors of one length", len(v.GetValues()), dim)
		}
	}
	m.Data = make([]float32, 0, len(vectors)*dim)
	for _, v := range vectors {
		m.Data = append(m.Data, v.GetValues()...)
	}
	return m, nil
}

func fromAnswer(a search.Answer) *likenessv1.SearchResponse {
	r := &likenessv1.SearchResponse{
		Hits:        make([]*likenessv1.Hit, len(a.Hits)),
		Certificate: fromCertificate(a.Certificate),
		Model:       &likenessv1.ModelRef{Name: a.Model, Version: a.Version},
		Strategy:    enumOf(strategies, a.Strategy),
		Timings:     fromTimings(a.Timings),
		NotFinite:   int32(a.NotFinite),
		NotIndexed:  int32(a.NotIndexed),
		Plan:        a.Plan,
		AnswerId:    a.ID,
		Ranking:     fromRanking(a.Ranking),
	}
	for i, h := range a.Hits {
		r.Hits[i] = &likenessv1.Hit{
			Id: fromID(h.ID), Score: h.Score, PayloadJson: utf8(string(h.Payload)), Explanation: fromExplanation(h.Explanation), Ranked: h.Ranked,
		}
	}
	if a.Reembedded != nil {
		r.Reembedded = proto.Float32(float32(a.Reembedded.Share()))
	}
	if a.Degraded != nil {
		r.Degraded = &likenessv1.Degraded{Reason: a.Degraded.Reason, Detail: utf8(a.Degraded.Detail)}
	}
	return r
}

func fromRanking(r *rank.Ranking) *likenessv1.Ranking {
	if r == nil {
		return nil
	}
	return &likenessv1.Ranking{
		Ranker: utf8(r.Ranker), Version: utf8(r.Version), Calls: int32(r.Calls), Budget: int32(r.Budget), Rounds: int32(r.Rounds),
		Cut: int32(r.Cut), Reason: r.Reason,
	}
}

func fromTimings(t search.Timings) *likenessv1.Timings {
	d := durationpb.New
	return &likenessv1.Timings{
		Embed: d(t.Embed), Encode: d(t.Encode), Retrieve: d(t.Retrieve), Score: d(t.Score), Certify: d(t.Certify), Rank: d(t.Rank), Total: d(t.Total),
	}
}

func fromExplanation(e *rerank.Explanation) *likenessv1.Explanation {
	if e == nil {
		return nil
	}
	out := &likenessv1.Explanation{Score: e.Score, Terms: make([]*likenessv1.Term, len(e.Terms))}
	for i, t := range e.Terms {
		out.Terms[i] = &likenessv1.Term{
			QueryComponent: int32(t.QueryComponent), ItemComponent: int32(t.ItemComponent), Dot: t.Dot, Logit: t.Logit, Gate: t.Gate,
		}
	}
	return out
}

func fromCertificate(c rerank.Certificate) *likenessv1.Certificate {
	return &likenessv1.Certificate{
		Status:       enumOf(certificateStatuses, c.Status),
		Proof:        enumOf(proofs, c.Proof),
		Gap:          knownOrNil(c.Gap),
		Bound:        knownOrNil(c.Max),
		KthScore:     knownOrNil(c.KthScore),
		Epsilon:      c.Epsilon,
		Calibration:  fromCalibration(c.Calibration),
		Measured:     fromMeasured(c.Measured),
		Stop:         enumOf(stops, c.Stop),
		Depth:        int32(c.Depth),
		Rounds:       int32(c.Rounds),
		Candidates:   int64(c.Candidates),
		Uncalibrated: utf8(c.Uncalibrated),
		Tied:         c.Tied,
		Ordered:      c.Ordered,
		AsOf:         fromTime(c.AsOf),
		RowsVerified: c.RowsVerified,
	}
}

// knownOrNil returns x for an optional field, or nil if x means "not known".
func knownOrNil(x float32) *float32 {
	if f := float64(x); math.IsInf(f, 0) || math.IsNaN(f) {
		return nil
	}
	return &x
}

func fromMeasured(m *rerank.Measured) *likenessv1.MeasuredError {
	if m == nil {
		return nil
	}
	return &likenessv1.MeasuredError{Pairs: int64(m.Pairs), Error: m.Error}
}

func fromCalibration(c *rerank.Calibration) *likenessv1.Calibration {
	if c == nil {
		return nil
	}
	return &likenessv1.Calibration{
		Recall: c.Recall, Share: c.Share, Alpha: c.Alpha, Queries: int64(c.Queries), K: int32(c.K),
		Depth: int32(c.Rule.Depth), AverageDepth: int32(c.Rule.AverageDepth), Made: fromTime(c.Made),
		Excluding: c.Excluding,
	}
}

// fromTime converts a time. The zero time becomes an unset field.
func fromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

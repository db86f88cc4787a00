package client_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/likenessdb/likeness/client"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// hearing is a sidecar that keeps what it is asked, and answers.
type hearing struct {
	likenessv1.UnimplementedSearchServiceServer
	likenessv1.UnimplementedFeedbackServiceServer
	feedback *likenessv1.FeedbackRequest
	search   *likenessv1.SearchRequest
	score    *likenessv1.ScoreRequest
	explain  *likenessv1.ExplainRequest
	answer   *likenessv1.SearchResponse
	batches  []int         // the searches of each batch
	left     time.Duration // the time of the last search
	refuses  error         // of every search; in a batch by its status
	calls    int
}

func (h *hearing) Search(ctx context.Context, r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	h.search, h.calls = r, h.calls+1
	deadline, _ := ctx.Deadline()
	h.left = time.Until(deadline)
	if h.refuses != nil {
		return nil, h.refuses
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if ids := md.Get("x-request-id"); len(ids) > 0 {
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", ids[0]))
	}
	return h.answer, nil
}

func (h *hearing) SearchBatch(_ context.Context, r *likenessv1.SearchBatchRequest) (*likenessv1.SearchBatchResponse, error) {
	h.search, h.batches = r.GetSearches()[0], append(h.batches, len(r.GetSearches()))
	answer := &likenessv1.SearchBatchResponse{}
	for range r.GetSearches() {
		if st, ok := status.FromError(h.refuses); ok && h.refuses != nil {
			answer.Results = append(answer.Results, &likenessv1.SearchResult{Result: &likenessv1.SearchResult_Error{Error: &likenessv1.Error{Code: int32(st.Code()), Message: st.Message()}}})
			continue
		}
		answer.Results = append(answer.Results, &likenessv1.SearchResult{Result: &likenessv1.SearchResult_Response{Response: h.answer}})
	}
	return answer, nil
}

func (h *hearing) Score(_ context.Context, r *likenessv1.ScoreRequest) (*likenessv1.ScoreResponse, error) {
	h.score = r
	return &likenessv1.ScoreResponse{}, nil
}

func (h *hearing) Explain(_ context.Context, r *likenessv1.ExplainRequest) (*likenessv1.ExplainResponse, error) {
	h.explain = r
	return &likenessv1.ExplainResponse{}, nil
}

func (h *hearing) Feedback(_ context.Context, r *likenessv1.FeedbackRequest) (*likenessv1.FeedbackResponse, error) {
	h.feedback = r
	return &likenessv1.FeedbackResponse{Accepted: 1, Known: 2, Refused: []*likenessv1.FeedbackRefusal{{Index: 3, Reason: "ANSWER_EXPIRED", Message: "late"}}}, nil
}

func startHearing(t *testing.T) (*hearing, *client.Client) {
	t.Helper()
	h, address := listenHearing(t)
	return h, dial(t, address, client.Options{})
}

func listenHearing(t *testing.T) (*hearing, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, h, well := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20)), &hearing{answer: &likenessv1.SearchResponse{}}, health.NewServer()
	well.SetServingStatus(likenessv1.SearchService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	likenessv1.RegisterSearchServiceServer(server, h)
	likenessv1.RegisterFeedbackServiceServer(server, h)
	grpc_health_v1.RegisterHealthServer(server, well)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return h, listener.Addr().String()
}

// unsetFields returns the fields of a message that are not set.
func unsetFields(m proto.Message) (names []string) {
	r := m.ProtoReflect()
	for i := range r.Descriptor().Fields().Len() {
		if f := r.Descriptor().Fields().Get(i); !r.Has(f) && f.ContainingOneof() == nil {
			names = append(names, string(f.Name()))
		}
	}
	return names
}

// TestEveryFieldReachesTheSidecar: each field of a search changes what the sidecar is
// asked, alone and in a batch, and each field of the API is one of a search.
func TestEveryFieldReachesTheSidecar(t *testing.T) {
	h, c := startHearing(t)
	gap, calls, user := float32(0.5), 14, int64(7)
	whole := func() client.Search {
		return client.Search{
			Route: "things", Query: client.Query{Vector: []float32{1, 2}, Vectors: [][]float32{{3, 4}, {5, 6}}, UserID: &user, Context: map[string]float32{"hour": 3}, Text: "words", Items: []client.WeightedItem{{ID: client.Number(18), Weight: 0.5}}},
			IncludeItems: true, User: "ann",
			K: 11, Filter: "f", Strategy: client.Combined, Depth: 12, AverageDepth: 13, MaxGap: &gap, Timeout: 40 * time.Second, Explain: true,
			Payload: true, PayloadFields: []string{"n"}, Head: "head", Calls: &calls, Rounds: 15, RequireExact: true, Mix: &gap, StoredVector: []float32{4},
			ExcludeIDs: []client.ID{client.Number(16), client.Text("sku")},
		}
	}
	want := &likenessv1.SearchRequest{
		Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 2}, Vectors: []*likenessv1.Vector{{Values: []float32{3, 4}}, {Values: []float32{5, 6}}}, UserId: proto.Int64(7), Context: map[string]float32{"hour": 3}, Text: "words",
			ItemIds: []*likenessv1.WeightedItem{{Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 18}}, Weight: proto.Float32(0.5)}}},
		IncludeItemIds: true, User: "ann",
		K: 11, Filter: "f", Strategy: likenessv1.Strategy_STRATEGY_COMBINED, Depth: 12, AverageDepth: 13, MaxGap: proto.Float32(0.5),
		Timeout: durationpb.New(40 * time.Second), Explain: true, Payload: &likenessv1.PayloadSelector{Fields: []string{"n"}}, Head: "head", Calls: proto.Int32(14), Rounds: 15, RequireExact: true, Mix: proto.Float32(0.5), StoredVector: []float32{4},
		ExcludeIds: []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 16}}, {Id: &likenessv1.ItemId_Text{Text: "sku"}}},
	}
	if names := append(unsetFields(want), unsetFields(want.GetQuery())...); strings.Join(names, ",") != "weights" { // for which the client has no word
		t.Fatalf("the test does not set %q", names)
	}
	ask := map[string]func(s client.Search) *likenessv1.SearchRequest{
		"alone": func(s client.Search) *likenessv1.SearchRequest {
			if _, err := c.Search(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			return h.search
		},
		"in a batch": func(s client.Search) *likenessv1.SearchRequest {
			if _, err := c.SearchBatch(t.Context(), []client.Search{s}); err != nil {
				t.Fatal(err)
			}
			return h.search
		},
	}
	for way, ask := range ask {
		if got := ask(whole()); !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", way, got, want)
		}
		for i := range reflect.TypeFor[client.Search]().NumField() {
			s := whole()
			f := reflect.ValueOf(&s).Elem().Field(i)
			name := reflect.TypeFor[client.Search]().Field(i).Name
			if f.IsZero() {
				t.Errorf("the test does not set %s", name)
			}
			f.SetZero()
			if name == "Payload" {
				s.PayloadFields = nil // which ask for the payload too
			}
			if got := ask(s); proto.Equal(got, want) {
				t.Errorf("%s: nothing depends on %s", way, name)
			}
		}
	}
	q := whole().Query
	if _, err := c.Score(t.Context(), "things", q, client.Items{IDs: []client.ID{client.Number(3)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Explain(t.Context(), "things", q, client.Items{Vectors: [][]float32{{1, 2}}}); err != nil {
		t.Fatal(err)
	}
	if h.score.GetRoute() != "things" || !proto.Equal(h.score.GetQuery(), want.GetQuery()) || h.score.GetIds().GetIds()[0].GetNumber() != 3 {
		t.Errorf("scores are asked by %v", h.score)
	}
	if h.explain.GetRoute() != "things" || !proto.Equal(h.explain.GetQuery(), want.GetQuery()) || len(h.explain.GetVectors().GetVectors()) != 1 {
		t.Errorf("explanations are asked by %v", h.explain)
	}
}

// TestFeedback: each field of an event reaches the sidecar, those that are not set stay so, and the caller finds
// what became of each.
func TestFeedback(t *testing.T) {
	h, c := startHearing(t)
	weight, at := 0.5, time.Unix(1700000000, 5)
	got, err := c.Feedback(t.Context(), "things", []client.Event{
		{AnswerID: "a", Item: client.Number(7), Kind: "click", Weight: &weight, Time: at, ID: "e"}, {AnswerID: "b", Item: client.Text("sku"), Kind: "add"},
	})
	want := &likenessv1.FeedbackRequest{Route: "things", Events: []*likenessv1.FeedbackEvent{
		{AnswerId: "a", Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 7}}, Kind: "click", Weight: &weight, Time: timestamppb.New(at), EventId: "e"},
		{AnswerId: "b", Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: "sku"}}, Kind: "add"},
	}}
	if err != nil || !proto.Equal(h.feedback, want) {
		t.Errorf("%v: sent %v, want %v", err, h.feedback, want)
	}
	if receipt := (&client.Receipt{Accepted: 1, Known: 2, Refused: []client.Refusal{{Index: 3, Reason: "ANSWER_EXPIRED", Message: "late"}}}); !reflect.DeepEqual(got, receipt) {
		t.Errorf("the receipt is %+v, want %+v", got, receipt)
	}
}

// TestEveryFieldOfAnAnswerIsRead: a caller finds everything that the sidecar says.
func TestEveryFieldOfAnAnswerIsRead(t *testing.T) {
	h, c := startHearing(t)
	seconds := durationpb.New(time.Second)
	h.answer = &likenessv1.SearchResponse{
		Hits: []*likenessv1.Hit{{Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 3}}, Score: 1, PayloadJson: `{"n":1}`, Ranked: true,
			Explanation: &likenessv1.Explanation{Score: 1, Terms: []*likenessv1.Term{{QueryComponent: 1, ItemComponent: 2, Dot: 3, Logit: 4, Gate: 5}}}}},
		Certificate: &likenessv1.Certificate{
			Status: likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT, Proof: likenessv1.Proof_PROOF_TABLE_SCAN, Gap: proto.Float32(1), Bound: proto.Float32(2),
			KthScore: proto.Float32(3), Epsilon: 4, Stop: likenessv1.Stop_STOP_DEADLINE, Depth: 5, Rounds: 6, Candidates: 7, Uncalibrated: "why", Tied: true, Ordered: true,
			AsOf: timestamppb.New(time.Unix(9, 0)), RowsVerified: true,
			Calibration: &likenessv1.Calibration{Recall: 1, Share: 2, Alpha: 3, Queries: 4, K: 5, Depth: 6, AverageDepth: 7, Made: timestamppb.New(time.Unix(8, 0)), Excluding: true},
			Measured:    &likenessv1.MeasuredError{Pairs: 9, Error: 10},
		},
		Degraded: &likenessv1.Degraded{Reason: "r", Detail: "d"}, Model: &likenessv1.ModelRef{Name: "m", Version: "v"}, Strategy: likenessv1.Strategy_STRATEGY_SCAN,
		Timings:   &likenessv1.Timings{Embed: seconds, Encode: seconds, Retrieve: seconds, Score: seconds, Certify: seconds, Rank: seconds, Total: seconds},
		NotFinite: 11, NotIndexed: 12, Plan: "plan", AnswerId: "answer", Reembedded: proto.Float32(0.5),
		Ranking: &likenessv1.Ranking{Ranker: "r", Version: "1", Calls: 1, Budget: 2, Rounds: 3, Cut: 4, Reason: "deadline"},
	}
	for name, m := range map[string]proto.Message{
		"answer": h.answer, "hit": h.answer.GetHits()[0], "certificate": h.answer.GetCertificate(), "calibration": h.answer.GetCertificate().GetCalibration(),
		"measured": h.answer.GetCertificate().GetMeasured(), "ranking": h.answer.GetRanking(), "timings": h.answer.GetTimings(),
		"term": h.answer.GetHits()[0].GetExplanation().GetTerms()[0], "degraded": h.answer.GetDegraded(), "model": h.answer.GetModel(),
	} {
		if names := unsetFields(m); len(names) > 0 {
			t.Fatalf("the test does not set %q of the %s", names, name)
		}
	}
	a, err := c.Search(client.WithRequestID(t.Context(), "mine"), things(1))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Pointer:
			walk(v.Elem(), path)
		case reflect.Slice:
			if v.Len() > 0 {
				walk(v.Index(0), path)
			}
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if !f.IsExported() {
					continue
				}
				if v.Field(i).IsZero() {
					t.Errorf("%s.%s is not read", path, f.Name)
				}
				walk(v.Field(i), path+"."+f.Name)
			}
		}
	}
	walk(reflect.ValueOf(a), "answer")
}

// TestTimesAndSizesOfACall: a call without a deadline has the client's, messages have the
// client's limit in both directions, and an answer has the id of its call.
func TestTimesAndSizesOfACall(t *testing.T) {
	h, address := listenHearing(t)
	for o, want := range map[time.Duration]time.Duration{0: client.DefaultTimeout, time.Minute: time.Minute} {
		if _, err := dial(t, address, client.Options{Timeout: o}).Search(t.Context(), things(1)); err != nil || h.left <= want-5*time.Second || h.left > want {
			t.Errorf("timeout %s: a call has %s, %v", o, h.left, err)
		}
	}
	c := dial(t, address, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Search(ctx, things(1)); err != nil || h.left < 50*time.Minute {
		t.Errorf("a call with an hour of its own has %s, %v", h.left, err)
	}
	a, err := c.Search(client.WithRequestID(t.Context(), "mine"), things(1))
	if err != nil || a.RequestID != "mine" {
		t.Errorf("an answer has the id %q, %v", a.RequestID, err)
	}
	large := things(1)
	large.Query.Vector = make([]float32, 2<<20) // 8 MiB
	h.answer = &likenessv1.SearchResponse{Plan: strings.Repeat("x", 8<<20)}
	if a, err := c.Search(t.Context(), large); err != nil || len(a.Plan) != 8<<20 {
		t.Errorf("8 MiB there and back: %v", err)
	}
	small := dial(t, address, client.Options{MaxMessageBytes: 1 << 20})
	h.answer = &likenessv1.SearchResponse{}
	if _, err := small.Search(t.Context(), large); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("8 MiB there, of one at most: %v", err)
	}
	h.answer = &likenessv1.SearchResponse{Plan: strings.Repeat("x", 8<<20)}
	if _, err := small.Search(t.Context(), things(1)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("8 MiB back, of one at most: %v", err)
	}
}

// TestNoRetry: a call is sent up to three times, or once where that is asked for or the sidecar has too many calls.
func TestNoRetry(t *testing.T) {
	h, address := listenHearing(t)
	h.refuses = status.Error(codes.Unavailable, "later")
	for once, want := range map[bool]int{true: 1, false: 3} {
		h.calls = 0
		if _, err := dial(t, address, client.Options{NoRetry: once}).Search(t.Context(), things(1)); !errors.Is(err, client.ErrUnavailable) || h.calls != want {
			t.Errorf("NoRetry %t: sent %d times, want %d; %v", once, h.calls, want, err)
		}
	}
	h.calls, h.refuses = 0, status.Error(codes.ResourceExhausted, "too many")
	if _, err := dial(t, address, client.Options{}).Search(t.Context(), things(1)); err == nil || h.calls != 1 {
		t.Errorf("an overload: sent %d times, want 1; %v", h.calls, err)
	}
}

// TestErrorsInABatch: an overload of the sidecar is one, and no message that is too large.
func TestErrorsInABatch(t *testing.T) {
	h, c := startHearing(t)
	for code, want := range map[codes.Code]error{codes.ResourceExhausted: client.ErrOverloaded, codes.NotFound: client.ErrNotFound} {
		h.refuses = status.Error(code, "text")
		results, err := c.SearchBatch(t.Context(), []client.Search{things(1)})
		if err != nil || len(results) != 1 || !errors.Is(results[0].Err, want) || errors.Is(results[0].Err, client.ErrTooLarge) {
			t.Errorf("%s: %+v, %v", code, results, err)
		}
	}
}

// TestEachSearch: a sequence is sent in batches of the size, the last one shorter.
func TestEachSearch(t *testing.T) {
	h, c := startHearing(t)
	n := 0
	for i, r := range c.Each(t.Context(), slices.Values(slices.Repeat([]client.Search{things(1)}, 7)), 3) {
		if i != n || r.Err != nil || r.Answer == nil {
			t.Errorf("result %d: %+v", i, r)
		}
		n++
	}
	if n != 7 || !slices.Equal(h.batches, []int{3, 3, 1}) {
		t.Errorf("%d results of 7 in batches of %v", n, h.batches)
	}
}

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// fill gives every field of a struct, and of the structs in it, a value that is not its
// zero value. It leaves interfaces and functions alone.
func fill(v reflect.Value, depth int) {
	if words := map[string]string{
		"rerank.Strategy": string(rerank.Combined), "rerank.Weights": string(rerank.GateWeights), "rerank.Status": string(rerank.StatusExact),
		"rerank.Proof": string(rerank.ProofScan), "rerank.Stop": string(rerank.StopGap),
	}; words[v.Type().String()] != "" {
		v.SetString(words[v.Type().String()])
		return
	}
	switch v.Interface().(type) {
	case rerank.ID:
		v.Set(reflect.ValueOf(rerank.UintID(7)))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(7, 7)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint('7')
	case reflect.Float32, reflect.Float64:
		v.SetFloat(.5)
	case reflect.String:
		v.SetString("seven")
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth)
		fill(value, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth)
			}
		}
	}
}

// filled returns a value whose fields are all set.
func filled[T any](t *testing.T) (v T) {
	t.Helper()
	fill(reflect.ValueOf(&v).Elem(), 4)
	return v
}

// unset returns the fields of a message, and of those in it, that have no value.
func unset(m protoreflect.Message) (names []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.ContainingOneof() != nil && !f.HasOptionalKeyword():
			if m.WhichOneof(f.ContainingOneof()) == nil {
				names = append(names, string(f.FullName()))
			}
		case !m.Has(f):
			names = append(names, string(f.FullName()))
		case f.IsList() && f.Message() != nil:
			names = append(names, unset(m.Get(f).List().Get(0).Message())...)
		case f.Message() != nil && f.Message().ParentFile().Package() == m.Descriptor().ParentFile().Package() && !f.IsMap() && !f.IsList():
			names = append(names, unset(m.Get(f).Message())...)
		}
	}
	return names
}

type calibrated struct{ made *rerank.Calibration }

func (c calibrated) Calibration() (made *rerank.Calibration, void string) { return c.made, "void" }
func (calibrated) Opened(*route.Route, map[string]string)                 {}

// TestAnswersAreWhole: every field of an answer reaches the client.
func TestAnswersAreWhole(t *testing.T) {
	shown := filled[route.Route](t)
	shown.Policy = filled[route.Policy](t)
	shown.Parts = route.Parts{Model: route.Model{Name: "m", Version: "v"}, Promise: calibrated{new(filled[rerank.Calibration](t))}}
	mol, err := model.Open("../../examples/models/banking77-mol")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		message proto.Message
		none    []string // fields that this answer cannot have
	}{
		"search":     {fromAnswer(filled[search.Answer](t)), nil},
		"route":      {fromRoute(&shown), []string{"likeness.v1.Route.table_items"}},
		"model":      {fromModel(mol), []string{"likeness.v1.Model.user_ids", "likeness.v1.Model.single_inner_product"}},
		"version":    {fromVersion(filled[rollout.Info](t)), nil},
		"activation": {fromActivation(filled[rollout.Activation](t)), nil},
		"drift":      {fromDrift(filled[follow.Drift](t)), nil},
		"garbage":    {fromGarbage(filled[rollout.Garbage](t)), nil},
		"scores": {fromScores(filled[search.ScoreAnswer](t)), []string{ // what only a search takes its time for
			"likeness.v1.Timings.encode", "likeness.v1.Timings.retrieve", "likeness.v1.Timings.score", "likeness.v1.Timings.certify", "likeness.v1.Timings.rank",
		}},
		"explanations": {fromExplanations(filled[search.ScoreAnswer](t)), nil},
		"receipt":      {fromReceipt(events.Receipt{Accepted: 1, Repeated: 2, Refused: []events.Refusal{{Index: 3, Reason: 1, Err: errors.New("no")}}}), nil},
		"calibration":  {fromCalibration(new(filled[rerank.Calibration](t))), nil},
	} {
		for _, field := range unset(c.message.ProtoReflect()) {
			if !slices.Contains(c.none, field) {
				t.Errorf("%s: %s is lost", name, field)
			}
		}
	}
}

// set gives every field of a message a value that is not its default.
func set(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsMap() {
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("seven").MapKey(), protoreflect.ValueOfFloat32(.5))
			continue
		}
		if f.Message() != nil {
			to := m.NewField(f)
			if f.IsList() {
				set(to.List().AppendMutable().Message())
			} else {
				set(to.Message())
			}
			m.Set(f, to)
			continue
		}
		value := map[protoreflect.Kind]protoreflect.Value{
			protoreflect.BoolKind: protoreflect.ValueOfBool(true), protoreflect.StringKind: protoreflect.ValueOfString("seven"),
			protoreflect.Int32Kind: protoreflect.ValueOfInt32(7), protoreflect.Int64Kind: protoreflect.ValueOfInt64(7),
			protoreflect.Uint32Kind: protoreflect.ValueOfUint32(7), protoreflect.Uint64Kind: protoreflect.ValueOfUint64(7),
			protoreflect.FloatKind: protoreflect.ValueOfFloat32(.5), protoreflect.EnumKind: protoreflect.ValueOfEnum(1),
			protoreflect.DoubleKind: protoreflect.ValueOfFloat64(.5), protoreflect.Sint64Kind: protoreflect.ValueOfInt64(-7),
		}[f.Kind()]
		if f.IsList() {
			list := m.NewField(f).List()
			list.Append(value)
			m.Set(f, protoreflect.ValueOfList(list))
		} else {
			m.Set(f, value)
		}
	}
}

// zeros returns the fields of a struct that have their zero value.
func zeros(v any) (names []string) {
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		if s.Field(i).IsZero() {
			names = append(names, fmt.Sprintf("%s.%s", s.Type(), s.Type().Field(i).Name))
		}
	}
	return names
}

// TestRequestsAreWhole: every field that a client sends reaches the engine.
func TestRequestsAreWhole(t *testing.T) {
	ours := []string{ // set by the proxy or the engine itself
		"plan.Request.Collection", "plan.Request.Partitions", "plan.Request.NoFallback", "plan.Request.Confirms", "plan.Request.MaxRank", "plan.Request.Versions", "plan.Request.Tried", "plan.Request.AnswerBy",
		"search.ScoreRequest.Collection",
	}
	r := &likenessv1.SearchRequest{}
	set(r.ProtoReflect())
	request, err := toRequest(r)
	if err != nil || request.Query.Vectors.Rows == 0 {
		t.Errorf("the request became %+v, %v", request, err)
	}
	scores := &likenessv1.ScoreRequest{}
	set(scores.ProtoReflect())
	scores.Items = &likenessv1.ScoreRequest_Ids{Ids: &likenessv1.ItemIds{Ids: []*likenessv1.ItemId{fromID(rerank.UintID(7))}}}
	byID, err := toScoreRequest(scores, true)
	if err != nil {
		t.Fatal(err)
	}
	scores.Items = &likenessv1.ScoreRequest_Vectors{Vectors: &likenessv1.Vectors{Vectors: []*likenessv1.Vector{{Values: []float32{1, 2}}, {Values: []float32{3, 4}}}}}
	byVector, err := toScoreRequest(scores, false)
	if err != nil || byVector.Vectors.Rows != 2 || byVector.Vectors.Cols != 2 || !slices.Equal(byVector.Vectors.Data, []float32{1, 2, 3, 4}) {
		t.Errorf("vectors became %+v, %v", byVector.Vectors, err)
	}
	scores.Items = &likenessv1.ScoreRequest_Documents{Documents: &likenessv1.Documents{Documents: []*likenessv1.Document{
		{Document: &likenessv1.Document_Number{Number: 7}}, {Document: &likenessv1.Document_Negative{Negative: -7}},
		{Document: &likenessv1.Document_Id{Id: "7"}}, {Document: &likenessv1.Document_Text{Text: "seven"}},
	}}}
	documents, err := toScoreRequest(scores, false)
	if want := []search.Document{{ID: rerank.UintID(7)}, {ID: rerank.IntID(-7)}, {ID: rerank.TextID("7")}, {Text: "seven"}}; err != nil || !slices.Equal(documents.Documents, want) {
		t.Errorf("documents became %+v, %v", documents.Documents, err)
	}
	byID.Vectors, byID.Documents = byVector.Vectors, documents.Documents
	for _, names := range [][]string{zeros(request), zeros(request.Query), zeros(byID), zeros(byID.Query)} {
		for _, name := range names {
			if !slices.Contains(ours, name) {
				t.Errorf("%s has no value", name)
			}
		}
	}
	if empty, err := toQuery(&likenessv1.Query{}); empty.HasUserID || err != nil {
		t.Error("a query without a user has one")
	}
	ragged := &likenessv1.Query{Vectors: []*likenessv1.Vector{{Values: []float32{1}}, {Values: []float32{1, 2}}}}
	if _, err := toQuery(ragged); err == nil || !strings.Contains(err.Error(), "query.vectors[1].values") {
		t.Errorf("vectors of two lengths: %v", err)
	}
	if request, err := toRequest(&likenessv1.SearchRequest{}); err != nil || request.Calls != nil || request.Payload || request.MaxGap != nil {
		t.Errorf("an empty request became %+v", request)
	}
}

// TestFeedbackIsWhole: an event keeps all that its sender says of it, and counts once where it has no weight.
func TestFeedbackIsWhole(t *testing.T) {
	at, answer := time.Unix(1_800_000_000, 5).UTC(), events.AnswerID{Call: events.CallID{1: 77}, Part: 2}
	sent := &likenessv1.FeedbackEvent{
		AnswerId: answer.String(), Item: fromID(rerank.TextID("a")), Kind: "click", Weight: proto.Float64(.25), Time: timestamppb.New(at), EventId: "e",
	}
	want := events.Feedback{ID: "e", Answer: answer, Item: rerank.TextID("a"), Kind: "click", Weight: .25, Time: at}
	if got := toFeedback(sent); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := toFeedback(&likenessv1.FeedbackEvent{}); got.Weight != 1 || !got.Time.IsZero() || !got.Item.IsZero() {
		t.Errorf("an event without anything is %+v", got)
	}
}

// TestIDs: an id keeps its kind there and back.
func TestIDs(t *testing.T) {
	for _, id := range []rerank.ID{rerank.UintID(0), rerank.UintID(1<<64 - 1), rerank.IntID(-1), rerank.IntID(-1 << 63), rerank.TextID("7"), rerank.TextID("a")} {
		if got := toID(fromID(id)); got != id {
			t.Errorf("%v became %v", id, got)
		}
	}
}

// TestEveryWordHasAValue: every strategy, status, proof and reason to stop of the engine has a
// value in the API.
func TestEveryWordHasAValue(t *testing.T) {
	for _, s := range rerank.Strategies() {
		if enumOf(strategies, s) == 0 {
			t.Errorf("strategy %q has none", s)
		}
	}
	for _, s := range []rerank.Status{rerank.StatusExact, rerank.StatusSnapshot, rerank.StatusCalibrated, rerank.StatusUnknown} {
		if enumOf(certificateStatuses, s) == 0 {
			t.Errorf("status %q has none", s)
		}
	}
	for _, p := range []rerank.Proof{rerank.ProofInnerProduct, rerank.ProofScan, rerank.ProofBound, rerank.ProofExhausted} {
		if enumOf(proofs, p) == 0 {
			t.Errorf("proof %q has none", p)
		}
	}
	for _, s := range []rerank.Stop{rerank.StopGap, rerank.StopFixed, rerank.StopDeadline, rerank.StopLimit, rerank.StopExhausted, rerank.StopUnbounded} {
		if enumOf(stops, s) == 0 {
			t.Errorf("stop %q has none", s)
		}
	}
}

// TestAtMost: no more calls run at once than are permitted, and every number gets one.
func TestAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, called, goOn := 0, map[int]int{}, make(chan struct{})
		go atMost(3, 8, func(i int) {
			mu.Lock()
			running++
			called[i]++
			mu.Unlock()
			<-goOn
			mu.Lock()
			running--
			mu.Unlock()
		})
		for left := 8; left > 0; left-- {
			synctest.Wait() // until all calls wait
			if running != min(3, left) {
				t.Errorf("%d run at once with %d left", running, left)
			}
			goOn <- struct{}{}
		}
		synctest.Wait()
		if running != 0 || len(called) != 8 {
			t.Errorf("%d run at the end; %v", running, called)
		}
	})
}

// holding is a Searcher whose searches wait until the test goes on.
type holding struct {
	search.Searcher
	running atomic.Int64
	goOn    chan struct{}
}

func (h *holding) Search(context.Context, search.Request) (search.Answer, error) {
	h.running.Add(1)
	defer h.running.Add(-1)
	<-h.goOn
	return search.Answer{}, nil
}

// TestABatchLeavesRoom: no more searches of a batch run at once than limits.batch_parallelism.
func TestABatchLeavesRoom(t *testing.T) {
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	synctest.Test(t, func(t *testing.T) {
		h := &holding{goOn: make(chan struct{})}
		s := searchService{services: &services{searcher: h, recorder: countedCalls{}, validator: validator, log: log, failures: newFailures(log, func() int { return 0 })}}
		s.limits.Store(&Limits{MaxBatch: 8, BatchParallelism: 2})
		one := &likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: []float32{1}}}
		answered := make(chan *likenessv1.SearchBatchResponse, 1)
		go func() {
			r, err := s.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: slices.Repeat([]*likenessv1.SearchRequest{one}, 8)})
			if err != nil {
				t.Error(err)
			}
			answered <- r
		}()
		synctest.Wait() // until all of them wait
		if n := h.running.Load(); n != 2 {
			t.Errorf("%d searches run at once, want 2", n)
		}
		close(h.goOn)
		r := <-answered
		if len(r.GetResults()) != 8 || slices.ContainsFunc(r.GetResults(), func(r *likenessv1.SearchResult) bool { return r.GetResponse() == nil }) {
			t.Errorf("answered with %v", r)
		}
	})
}

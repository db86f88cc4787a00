package server_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/server"
)

// asked is a request that a searcher received, with its deadline.
type asked struct {
	search.Request
	search.ScoreRequest

	left time.Duration // until the deadline; 0: without one
}

// noting is a searcher that records its requests, and answers.
type noting struct {
	search.Searcher
	answer search.Answer
	scores search.ScoreAnswer

	mu  sync.Mutex
	all []asked
}

func (n *noting) note(ctx context.Context, a asked) {
	if deadline, has := ctx.Deadline(); has {
		a.left = time.Until(deadline)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, a)
}

func (n *noting) Search(ctx context.Context, r search.Request) (search.Answer, error) {
	n.note(ctx, asked{Request: r})
	return n.answer, nil
}

func (n *noting) Score(ctx context.Context, r search.ScoreRequest) (search.ScoreAnswer, error) {
	n.note(ctx, asked{ScoreRequest: r})
	return n.scores, nil
}

func (n *noting) last(t *testing.T) asked {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) == 0 {
		t.Fatal("nothing was asked")
	}
	return n.all[len(n.all)-1]
}

func startNoting(t *testing.T, n *noting) *world {
	t.Helper()
	return start(t, func(o *server.Options) {
		n.Searcher = o.Searcher
		o.Searcher = n
	})
}

// everything returns a search with every field set.
func everything() *likenessv1.SearchRequest {
	return &likenessv1.SearchRequest{
		Route: "things",
		Query: &likenessv1.Query{Vector: []float32{1, 2, 3, 4}, Vectors: []*likenessv1.Vector{{Values: []float32{5}}, {Values: []float32{6}}}, UserId: proto.Int64(7), Text: "words", Context: map[string]float32{"hour": 3},
			ItemIds: []*likenessv1.WeightedItem{{Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 18}}}, {Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 19}}, Weight: proto.Float32(0.5)}}},
		IncludeItemIds: true,
		K:              11, Filter: `{"must": []}`, Strategy: likenessv1.Strategy_STRATEGY_COMBINED, Depth: 12, AverageDepth: 13,
		Weights: likenessv1.Weights_WEIGHTS_GATES, MaxGap: proto.Float32(0.5), Timeout: durationpb.New(40 * time.Second), Explain: true,
		Payload: &likenessv1.PayloadSelector{Fields: []string{"n"}}, Head: "head", Calls: proto.Int32(14), Rounds: 15, RequireExact: true, Mix: proto.Float32(0.25), StoredVector: []float32{4},
		User:       "ann",
		ExcludeIds: []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 16}}, {Id: &likenessv1.ItemId_Negative{Negative: -17}}, {Id: &likenessv1.ItemId_Text{Text: "sku"}}},
	}
}

// unset returns the fields of a message, and of the messages in it, that are not set.
func unset(m protoreflect.Message, path string) (names []string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		name := path + string(f.Name())
		if !m.Has(f) {
			if f.ContainingOneof() == nil || f.ContainingOneof().IsSynthetic() {
				names = append(names, name)
			}
			continue
		}
		if f.Message() != nil && !f.IsMap() && !f.IsList() && strings.HasPrefix(string(f.Message().FullName()), "likeness.") {
			names = append(names, unset(m.Get(f).Message(), name+".")...)
		}
	}
	return names
}

// without returns copies of a message, each lacking one set field at any depth, by the path of the
// field.
func without(m proto.Message) map[string]proto.Message {
	out := map[string]proto.Message{}
	var walk func(of protoreflect.Message, path []protoreflect.FieldDescriptor)
	walk = func(of protoreflect.Message, path []protoreflect.FieldDescriptor) {
		of.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			here := append(slices.Clone(path), f)
			c := proto.Clone(m)
			at, name := c.ProtoReflect(), ""
			for _, p := range here[:len(here)-1] {
				at, name = at.Mutable(p).Message(), name+string(p.Name())+"."
			}
			at.Clear(f)
			out[name+string(f.Name())] = c
			if f.Message() != nil && !f.IsMap() && !f.IsList() && strings.HasPrefix(string(f.Message().FullName()), "likeness.") {
				walk(v.Message(), here)
			}
			return true
		})
	}
	walk(m.ProtoReflect(), nil)
	return out
}

// TestEveryFieldReachesThePipeline sends searches alone and in a batch. It fails if a new field of
// the API is not passed on.
func TestEveryFieldReachesThePipeline(t *testing.T) {
	n := &noting{}
	w := startNoting(t, n)
	all := everything()
	if names := unset(all.ProtoReflect(), ""); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	gap, calls, mix := float32(0.5), 14, 0.25
	want := search.Request{
		Route: "things", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}, Vectors: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{5, 6}}, UserID: 7, HasUserID: true, Text: "words", Context: map[string]float32{"hour": 3}},
		K: 11, Filter: `{"must": []}`, Strategy: rerank.Combined, Depth: 12, AverageDepth: 13, Weights: rerank.GateWeights, Head: "head",
		MaxGap: &gap, Explain: true, Payload: true, PayloadFields: []string{"n"}, Calls: &calls, Rounds: 15, RequireExact: true, Mix: &mix, StoredVector: []float32{4},
		History: []plan.WeightedID{{ID: rerank.UintID(18), Weight: 1}, {ID: rerank.UintID(19), Weight: 0.5}}, KeepHistory: true,
		Exclude: []rerank.ID{rerank.UintID(16), rerank.IntID(-17), rerank.TextID("sku")},
		Shown:   true, User: "ann",
	}
	not := map[string]string{
		"Partitions": "the API has none: a route names them", "NoFallback": "the proxy's alone, which has the database's own answer",
		"Confirms": "the proxy's alone, which confirms hits itself", "Collection": "the proxy's alone, whose clients name aliases",
		"MaxRank": "the proxy's alone, whose clients ask for pages", "Versions": "the proxy's alone, whose answers are the database's",
		"Tried":    "the proxy's alone: an experiment may answer every search of the API, which is Shown",
		"AnswerBy": "the proxy's alone, which has another answer by then",
	}
	if names := append(recorder.Unset(want, not), recorder.Unset(want.Query, nil)...); len(names) > 0 {
		t.Fatalf("the test wants nothing of %q", names)
	}
	send := map[string]func(*likenessv1.SearchRequest) error{
		"alone": func(r *likenessv1.SearchRequest) error {
			_, err := w.search.Search(t.Context(), r)
			return err
		},
		"in a batch": func(r *likenessv1.SearchRequest) error {
			answer, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{r}})
			if err == nil && answer.GetResults()[0].GetError() != nil {
				err = fmt.Errorf("%v", answer.GetResults()[0].GetError())
			}
			return err
		},
	}
	refused := map[string]int{} // fields without which a search is not asked for, by how many ways
	for way, send := range send {
		if err := send(all); err != nil {
			t.Fatal(err)
		}
		got := n.last(t)
		for _, d := range recorder.Differences(got.Request, want) {
			t.Errorf("%s: %s", way, d)
		}
		if got.left <= 0 || got.left > 40*time.Second {
			t.Errorf("%s: the deadline is in %v, want the timeout's 40 s", way, got.left)
		}
		for name, less := range without(all) {
			before := len(n.all)
			if err := send(less.(*likenessv1.SearchRequest)); err != nil {
				if len(n.all) != before {
					t.Errorf("%s, without %s: refused after it was asked: %v", way, name, err)
				}
				refused[name]++
				continue // the field has to be there
			}
			now := n.last(t)
			if len(recorder.Differences(now.Request, want)) == 0 && (now.left > 0) == (got.left > 0) {
				t.Errorf("%s: nothing that the pipeline is asked depends on %s", way, name)
			}
		}
	}
	for name, ways := range refused {
		if ways != len(send) {
			t.Errorf("a search without %s is refused in %d of %d ways", name, ways, len(send))
		}
	}
	if refused["k"] == 0 || refused["query"] == 0 {
		t.Errorf("refused without %v", refused)
	}
}

// TestEveryFieldOfAScoring does the same for Score and Explain.
func TestEveryFieldOfAScoring(t *testing.T) {
	n := &noting{}
	w := startNoting(t, n)
	query := everything().GetQuery()
	ids := &likenessv1.ItemIds{Ids: []*likenessv1.ItemId{
		{Id: &likenessv1.ItemId_Number{Number: math.MaxUint64}}, {Id: &likenessv1.ItemId_Negative{Negative: -3}}, {Id: &likenessv1.ItemId_Text{Text: "3"}},
	}}
	vectors := &likenessv1.Vectors{Vectors: []*likenessv1.Vector{{Values: []float32{1, 2, 3, 4}}, {Values: []float32{5, 6, 7, 8}}}}
	wantQuery := rerank.Query{Vector: []float32{1, 2, 3, 4}, Vectors: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{5, 6}}, UserID: 7, HasUserID: true, Text: "words", Context: map[string]float32{"hour": 3}}
	wantHistory := []plan.WeightedID{{ID: rerank.UintID(18), Weight: 1}, {ID: rerank.UintID(19), Weight: 0.5}}
	wantIDs := []rerank.ID{rerank.UintID(math.MaxUint64), rerank.IntID(-3), rerank.TextID("3")}
	wantVectors := rerank.Matrix{Rows: 2, Cols: 4, Data: []float32{1, 2, 3, 4, 5, 6, 7, 8}}
	if names := append(unset((&likenessv1.ScoreRequest{Route: "things", Query: query}).ProtoReflect(), ""), unset((&likenessv1.ExplainRequest{Route: "things", Query: query}).ProtoReflect(), "")...); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	for name, c := range map[string]struct {
		send func() error
		want search.ScoreRequest
	}{
		"score ids": {func() error {
			_, err := w.search.Score(t.Context(), &likenessv1.ScoreRequest{Route: "things", Query: query, Items: &likenessv1.ScoreRequest_Ids{Ids: ids}})
			return err
		}, search.ScoreRequest{Route: "things", Query: wantQuery, History: wantHistory, IDs: wantIDs}},
		"score vectors": {func() error {
			_, err := w.search.Score(t.Context(), &likenessv1.ScoreRequest{Route: "things", Query: query, Items: &likenessv1.ScoreRequest_Vectors{Vectors: vectors}})
			return err
		}, search.ScoreRequest{Route: "things", Query: wantQuery, History: wantHistory, Vectors: wantVectors}},
		"explain ids": {func() error {
			_, err := w.search.Explain(t.Context(), &likenessv1.ExplainRequest{Route: "things", Query: query, Items: &likenessv1.ExplainRequest_Ids{Ids: ids}})
			return err
		}, search.ScoreRequest{Route: "things", Query: wantQuery, History: wantHistory, IDs: wantIDs, Explain: true}},
		"explain vectors": {func() error {
			_, err := w.search.Explain(t.Context(), &likenessv1.ExplainRequest{Route: "things", Query: query, Items: &likenessv1.ExplainRequest_Vectors{Vectors: vectors}})
			return err
		}, search.ScoreRequest{Route: "things", Query: wantQuery, History: wantHistory, Vectors: wantVectors, Explain: true}},
	} {
		if err := c.send(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, d := range recorder.Differences(n.last(t).ScoreRequest, c.want) {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// answerWith is an answer on which every field is set.
func answerWith() search.Answer {
	return search.Answer{
		Hits: []search.Hit{{
			ID: rerank.UintID(3), Score: 1.5, Payload: []byte(`{"n": 3}`), Ranked: true,
			Explanation: &rerank.Explanation{Score: 2.5, Terms: []rerank.Term{{QueryComponent: 1, ItemComponent: 2, Dot: 3, Logit: 4, Gate: 5}}},
		}},
		Certificate: rerank.Certificate{
			Status: rerank.StatusCalibrated, Proof: rerank.ProofScan, Gap: 1, Max: 2, KthScore: 3, Epsilon: 4, Stop: rerank.StopGap,
			Calibration: &rerank.Calibration{Recall: 0.1, Share: 0.2, Alpha: 0.3, Queries: 4, K: 5, Rule: rerank.Rule{Depth: 6, AverageDepth: 7}, Made: time.Unix(8, 0), Excluding: true},
			Measured:    &rerank.Measured{Pairs: 9, Error: 10}, Depth: 11, Rounds: 12, Candidates: 13, Uncalibrated: "why", Tied: true, Ordered: true,
			AsOf: time.Unix(14, 0), RowsVerified: true,
		},
		Degraded: &search.Degraded{Reason: "reason", Detail: "detail"}, Strategy: rerank.Combined, Plan: "plan", Model: "model", Version: "version",
		Timings:   search.Timings{Embed: 7, Encode: 1, Retrieve: 2, Score: 3, Certify: 4, Rank: 5, Total: 6},
		NotFinite: 7, NotIndexed: 8, ID: "answer", Reembedded: &search.Reembedded{Candidates: 4, New: 1, Bridged: []rerank.ID{rerank.UintID(3)}},
		Ranking: &rank.Ranking{Ranker: "ranker", Version: "1", Calls: 2, Budget: 3, Rounds: 4, Cut: 5, Reason: "deadline"},
	}
}

// TestEveryFieldOfAnAnswerReachesTheClient: no value of the pipeline's answer is lost, and every
// field of the API is filled by some answer.
func TestEveryFieldOfAnAnswerReachesTheClient(t *testing.T) {
	n := &noting{}
	w := startNoting(t, n)
	ask := func(a search.Answer) *likenessv1.SearchResponse {
		n.answer = a
		r, err := w.search.Search(t.Context(), question())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := ask(answerWith())
	if names := append(unset(whole.ProtoReflect(), ""), unset(whole.GetHits()[0].ProtoReflect(), "hits.")...); len(names) > 0 {
		t.Errorf("the answer never sets %q", names)
	}
	const rule = ".Certificate.Calibration.Rule."
	untold := map[string]string{
		rule + "Strategy": "the answer's own strategy says it: a promise is of one", rule + "Weights": "the catalog has the route's", rule + "Head": "the catalog has the route's",
		".Reembedded.Bridged": "the filler alone asks which hits have no new vector",
		".Hits.Arm":           "the events have it, and plan says that an experiment answered", ".Experiment": "plan says it in words", ".Arm": "plan says it in words",
		".Narrowed":     "the client wrote the parameters that narrow its search",
		".Hits.Version": "the proxy alone asks for versions", ".HasVersions": "the proxy alone asks for versions",
	}
	fields(reflect.TypeFor[search.Answer](), func(path string, index []int) {
		if untold[path] != "" {
			return
		}
		a := answerWith()
		at := reflect.ValueOf(&a).Elem()
		for _, i := range index {
			at = reflect.Indirect(at)
			if at.Kind() == reflect.Slice {
				at = at.Index(0)
			}
			at = reflect.Indirect(at).Field(i)
		}
		if at.IsZero() {
			t.Errorf("the test does not set %s", path)
		}
		at.SetZero()
		if proto.Equal(ask(a), whole) {
			t.Errorf("a client does not see %s", path)
		}
	})
}

// fields calls f with every field of a struct and of the structs in it.
func fields(of reflect.Type, f func(path string, index []int)) {
	var walk func(of reflect.Type, path string, index []int)
	walk = func(of reflect.Type, path string, index []int) {
		for i := range of.NumField() {
			field := of.Field(i)
			if !field.IsExported() || path == ".Hits" && field.Name == "ID" {
				continue // the conformance of ids is the adapters'
			}
			here := append(slices.Clone(index), i)
			f(path+"."+field.Name, here)
			inner := field.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && strings.Contains(inner.PkgPath(), "likeness") && inner != reflect.TypeFor[rerank.ID]() {
				walk(inner, path+"."+field.Name, here)
			}
		}
	}
	walk(of, "", nil)
}

// TestABatchHasOneVersion: if a route is replaced during a batch, the old version answers the whole
// batch, and ends with it.
func TestABatchHasOneVersion(t *testing.T) {
	var p *search.Engine
	var ended <-chan struct{}
	w := start(t, func(o *server.Options) {
		p = o.Searcher.(*search.Engine)
		o.Limits.BatchParallelism = 1
		o.Searcher = searcher{p, func(ctx context.Context, r search.Request) (search.Answer, error) {
			a, err := p.Search(ctx, r)
			if ended != nil || err != nil {
				return a, err
			}
			route, err := p.Route("things")
			if err != nil {
				return a, err
			}
			next := *route
			next.Model.Version = "another"
			standby, err := p.Prepare(ctx, &next)
			if err != nil {
				return a, err
			}
			ended = standby.Switch()
			return a, nil
		}}
	})
	r, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{question(), question(), question()}})
	if err != nil {
		t.Fatal(err)
	}
	first := r.GetResults()[0].GetResponse().GetModel().GetVersion()
	for i, one := range r.GetResults() {
		if got := one.GetResponse().GetModel().GetVersion(); got != first || got == "" || got == "another" {
			t.Errorf("search %d is answered by version %q, the first by %q: %v", i, got, first, one.GetError())
		}
	}
	<-ended
	now, err := w.search.Search(t.Context(), question())
	if err != nil || now.GetModel().GetVersion() != "another" {
		t.Errorf("the next call has version %q, %v", now.GetModel().GetVersion(), err)
	}
}

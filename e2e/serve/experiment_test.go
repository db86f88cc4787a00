package serve_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/gain"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// otherModel is a model whose order of the collection is another than testModel's.
func otherModel(t *testing.T) *model.Model {
	t.Helper()
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "other",
		Tensors: tensor.Set{"W": {Shape: []int{4, 4}, Data: []float32{-1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0.2, 0, 0, 0, 0, 3}}},
		Config:  []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	must2(t, err)
	return m
}

// startExperiment starts a sidecar whose route has the versions v1, in service, and v2.
func startExperiment(t *testing.T, db *servers.Server, state, placement, settings string) *sidecar {
	t.Helper()
	return startExperimentOf(t, db, state, placement, "{v1: {model: w}, v2: {model: other}}", settings)
}

// startExperimentOf starts a sidecar whose route has some versions, v1 of them in service.
func startExperimentOf(t *testing.T, db *servers.Server, state, placement, versions, settings string) *sidecar {
	t.Helper()
	dir := t.TempDir()
	for name, m := range map[string]*model.Model{"w": testModel(t), "other": otherModel(t)} {
		must2(t, model.Write(filepath.Join(dir, name+".safetensors"), m))
	}
	text := fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: %q
models: {w: {path: %q}, other: {path: %q}}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes:
  things:
    store: main
    collection: routed
    placement: %s
    exact_search: true
    depth: 20
    active: v1
    versions: %s
    events: {share: 0.0001, keep: [user, vector]}
    experiment: %s
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, state, filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "other.safetensors"), db.Address, placement, versions, settings, db.REST)
	return startIn(t, text, []string{"QDRANT_KEY=" + key}, true, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// experimentWhen waits until the experiment is as wanted.
func (s *sidecar) experimentWhen(t *testing.T, wanted func(trial.Status) bool) trial.Status {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		_, body := s.get(t, "/experiments")
		var all []trial.Status
		must2(t, json.Unmarshal([]byte(body), &all))
		if len(all) == 1 && wanted(all[0]) {
			return all[0]
		}
		if time.Now().After(end) {
			t.Fatalf("the experiment is %s", body)
		}
	}
}

// bestOf returns the ids of a model's best items of the collection, in order.
func bestOf(ctx context.Context, t *testing.T, points qdrant.PointsClient, m *model.Model, q []float32, k int) []string {
	t.Helper()
	all, err := points.Scroll(ctx, &qdrant.ScrollPoints{CollectionName: "routed", Limit: qdrant.PtrOf(uint32(100)), WithVectors: qdrant.NewWithVectors(true)})
	must2(t, err)
	var ids []string
	vectors := rerank.NewMatrix(len(all.GetResult()), 4)
	for i, p := range all.GetResult() {
		vector := p.GetVectors().GetVector().GetDense().GetData()
		if vector == nil {
			vector = p.GetVectors().GetVector().GetData() //nolint:staticcheck // where older servers put it
		}
		copy(vectors.Row(i), vector)
		ids = append(ids, hitsOf([]*qdrant.ScoredPoint{{Id: p.GetId()}})[0].id)
	}
	return bestRows(t, m, q, vectors, ids, k)
}

// bestRows returns the ids of the rows that a model finds best.
func bestRows(t *testing.T, m *model.Model, q []float32, vectors rerank.Matrix, ids []string, k int) []string {
	t.Helper()
	encoded, err := m.Encode(rerank.Query{Vector: q})
	must2(t, err)
	features, scores := rerank.NewMatrix(vectors.Rows, m.Spec().Features), make([]float32, vectors.Rows)
	must2(t, m.EncodeItems(features, vectors))
	must2(t, encoded.Score(scores, rerank.Items{Features: features}))
	rows := make([]int, len(ids))
	for i := range rows {
		rows[i] = i
	}
	slices.SortFunc(rows, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	best := make([]string, k)
	for i := range best {
		best[i] = ids[rows[i]]
	}
	return best
}

// isDraft reports whether a list could be a team draft of two lists: it is a merge of prefixes of them,
// each pair of places with a pick of each.
func isDraft(list, a, b []string) bool {
	for n := range list {
		seen := map[string]bool{}
		for _, id := range list[:n] {
			seen[id] = true
		}
		next := func(of []string) string {
			for _, id := range of {
				if !seen[id] {
					return id
				}
			}
			return ""
		}
		if list[n] != next(a) && list[n] != next(b) {
			return false
		}
	}
	return true
}

// TestExperimentIsServed: clients of the API, of Qdrant's gRPC and of its REST get one interleaved list,
// whose pages fit together; its certificate proves nothing, and each impression says whose pick an item
// was. A request that wants a proof takes no part.
func TestExperimentIsServed(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	direct := connect(t, db.Address)
	fill(t, direct)
	ctx := metadata.AppendToOutgoingContext(asUser(t.Context()), "likeness-user", "ann")
	one := bestOf(ctx, t, qdrant.NewPointsClient(direct), testModel(t), query, 12)
	two := bestOf(ctx, t, qdrant.NewPointsClient(direct), otherModel(t), query, 12)
	for _, placement := range []string{"stored", "rewrite"} {
		t.Run(placement, func(t *testing.T) {
			state := t.TempDir()
			s := startExperiment(t, db, state, placement, `{candidate: v2, share: 1, session: 10000h, feedback: {click: 1}, guard: {latency_p99: 60s}}`)
			s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
			api := likenessv1.NewSearchServiceClient(s.conn)
			request := &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: query}, K: 8, User: "ann"}
			a, err := api.Search(t.Context(), request)
			must2(t, err)
			var list []string
			for _, h := range a.GetHits() {
				list = append(list, hitID(h.GetId()))
			}
			if !isDraft(list, one, two) || slices.Equal(list, one[:8]) || slices.Equal(list, two[:8]) || !strings.Contains(a.GetPlan(), "interleaved with version v2") ||
				a.GetCertificate().GetStatus() != likenessv1.CertificateStatus_CERTIFICATE_STATUS_UNKNOWN {
				t.Errorf("%v of %v and %v; %s, %s", list, one, two, a.GetPlan(), a.GetCertificate())
			}
			request.RequireExact = true
			if exact, err := api.Search(t.Context(), request); err != nil || exact.GetCertificate().GetStatus() != likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT || hitID(exact.GetHits()[1].GetId()) != one[1] {
				t.Errorf("an exact answer: %v, %v", exact, err)
			}
			points := qdrant.NewPointsClient(connect(t, s.at.Proxy.GRPC))
			var paged []string
			for _, page := range [][2]uint64{{0, 3}, {3, 5}} {
				var trailer metadata.MD
				r, err := points.Query(ctx, &qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(query), Limit: qdrant.PtrOf(page[1]), Offset: qdrant.PtrOf(page[0])}, grpc.Trailer(&trailer))
				must2(t, err)
				for _, h := range hitsOf(r.GetResult()) {
					paged = append(paged, h.id)
				}
				if status := strings.Join(trailer.Get("likeness-status"), ""); !strings.HasPrefix(status, "rescored; route=things; certificate=unknown; experiment=interleave; answer=") {
					t.Errorf("status %q", status)
				}
			}
			if !slices.Equal(paged, list) {
				t.Errorf("the pages are %v, and the API's list %v", paged, list)
			}
			code, status, body := post(t, "http://"+s.at.Proxy.REST, "routed/points/search", `{"vector":[1,-2,0.5,3],"limit":8,"with_vector":true}`, key)
			if code != http.StatusOK || !strings.Contains(status, "experiment=interleave") || !isDraft(idsOf(t, body), one, two) {
				t.Errorf("%d, %s: %s", code, status, body)
			}
			code, status, body = post(t, "http://"+s.at.Proxy.REST, "routed/points/search", `{"vector":[1,-2,0.5,3],"limit":8,"score_threshold":-100}`, key)
			if code != http.StatusOK || strings.Contains(status, "experiment=") {
				t.Errorf("with a threshold: %d, %s: %s", code, status, body)
			}
			s.stop()
			must2(t, s.wait())
			shown, _ := readEvents(t, state, "things")
			if len(shown) != 4 {
				t.Fatalf("%d impressions, want those of all answers of the experiment", len(shown))
			}
			for _, m := range shown {
				arms := map[experiment.Arm]int{}
				for _, item := range m.Items {
					arms[item.Arm]++
					if of := map[experiment.Arm][]string{experiment.Control: one, experiment.Candidate: two}[item.Arm]; !slices.Contains(of, item.ID.String()) {
						t.Errorf("%s is no pick of %s", item.ID, item.Arm)
					}
				}
				if arms[experiment.Neither] > 0 || arms[experiment.Control]-arms[experiment.Candidate] > 1 || arms[experiment.Candidate]-arms[experiment.Control] > 1 {
					t.Errorf("picks of the arms: %v", arms)
				}
			}
			if _, err := os.Stat(filepath.Join(state, "routes", "things", "experiment.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

func hitID(id *likenessv1.ItemId) string {
	if id.GetText() != "" {
		return id.GetText()
	}
	return fmt.Sprint(id.GetNumber())
}

// idsOf returns the ids of an answer of Qdrant's REST API.
func idsOf(t *testing.T, body string) (ids []string) {
	t.Helper()
	var answer struct{ Result json.RawMessage }
	must2(t, json.Unmarshal([]byte(body), &answer))
	for _, h := range restHits(t, answer.Result) {
		ids = append(ids, h.id)
	}
	return ids
}

// visit searches as nobody in particular.
func (s *sidecar) visit(t *testing.T) (*likenessv1.SearchResponse, error) {
	t.Helper()
	return likenessv1.NewSearchServiceClient(s.conn).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: query}, K: 6})
}

// visits searches as many users and clicks on each one's best item by the wanted model.
func (s *sidecar) visits(t *testing.T, from, users int, wanted []string) {
	t.Helper()
	api := likenessv1.NewSearchServiceClient(s.conn)
	for user := from; user < from+users; user++ {
		a, err := api.Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: query}, K: 6, User: fmt.Sprint("user ", user)})
		must2(t, err)
		for _, id := range wanted {
			if i := slices.IndexFunc(a.GetHits(), func(h *likenessv1.Hit) bool { return hitID(h.GetId()) == id }); i >= 0 {
				if got := feed(t, s.conn, "things", a.GetAnswerId(), a.GetHits()[i].GetId()); got.GetAccepted() != 1 {
					t.Fatal(got)
				}
				break
			}
		}
	}
}

// TestExperimentVerdict: clicks on the candidate's picks prove that it is better, over a restart in the
// midst of it, and with promote: auto it goes into service; clicks on the others' picks stop it.
func TestExperimentVerdict(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	direct := connect(t, db.Address)
	fill(t, direct)
	lists := map[bool][]string{}
	for candidate, m := range map[bool]*model.Model{false: testModel(t), true: otherModel(t)} {
		lists[candidate] = bestOf(asUser(t.Context()), t, qdrant.NewPointsClient(direct), m, query, 6)
	}
	only := map[bool][]string{} // what only one of the versions finds
	for candidate, list := range lists {
		for _, id := range list {
			if !slices.Contains(lists[!candidate], id) {
				only[candidate] = append(only[candidate], id)
			}
		}
	}
	const settings = `{candidate: v2, share: 1, session: 1s, feedback: {click: 1}, guard: {latency_p99: 60s}, promote: %s}`
	for _, c := range []struct {
		name, promote string
		likesNew      bool
		stage         experiment.Stage
		decision      experiment.Decision
		serves        string
	}{
		{"better", "ask", true, experiment.Waiting, experiment.Better, "w"},
		{"better, by itself", "auto", true, experiment.Promoted, experiment.Better, "other"},
		{"worse", "auto", false, experiment.Stopped, experiment.Worse, "w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := t.TempDir()
			s := startExperiment(t, db, state, "rewrite", fmt.Sprintf(settings, c.promote))
			s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
			s.visits(t, 0, 12, only[c.likesNew])
			s.stop()
			must2(t, s.wait())
			s = startExperiment(t, db, state, "rewrite", fmt.Sprintf(settings, c.promote))
			s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
			s.visits(t, 12, 12, only[c.likesNew])
			if c.stage == experiment.Promoted { // the last step of a ramp takes 500 sound answers
				s.visits(t, 24, 480, only[c.likesNew])
			}
			got := s.experimentWhen(t, func(s trial.Status) bool { return s.Stage != experiment.Running })
			if got.Stage != c.stage || got.Decision != c.decision || got.Test.Units < 13 || got.Test.DecidedAt > 24 || len(got.Why) == 0 {
				t.Errorf("%+v", got)
			}
			a, err := s.visit(t)
			if c.stage != experiment.Waiting && (err != nil || a.GetModel().GetName() != c.serves || strings.Contains(a.GetPlan(), "experiment")) {
				t.Errorf("%s answers, %v, %v", a.GetModel().GetName(), a.GetPlan(), err)
			}
			_, page := s.get(t, "/")
			_, metrics := s.scrape(t, "")
			for what, text := range map[string]string{got.Leader(): page, got.Segments[0].Sides: page, fmt.Sprintf(`likeness_experiment_sessions_total{route="things"} %d`, got.Test.Units): metrics} {
				if !strings.Contains(text, what) {
					t.Errorf("%q is not in %s", what, text)
				}
			}
			s.stop()
			must2(t, s.wait())
		})
	}
}

// TestExperimentGuards: a candidate that is later than its limit stops, and no answer waits for it; a
// person stops one, and begins it again.
func TestExperimentGuards(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	s := startExperiment(t, db, t.TempDir(), "rewrite", `{candidate: v2, share: 1, session: 1h, feedback: {click: 1}, guard: {latency_p99: 60s}}`)
	s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	change := func(path string, want int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.at.Admin+path, nil)
		must2(t, err)
		got, err := web.Do(r)
		must2(t, err)
		must2(t, got.Body.Close())
		if got.StatusCode != want {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
	change("/experiments/stop?route=none", http.StatusNotFound)
	change("/experiments/stop?route=things", http.StatusNoContent)
	if got := s.experimentWhen(t, func(s trial.Status) bool { return s.Stage == experiment.Stopped }); got.Share != 0 || got.Why[0] != "a person stopped it" {
		t.Errorf("%+v", got)
	}
	if a, err := s.visit(t); err != nil || a.GetPlan() != "" {
		t.Errorf("%v, %v", a, err)
	}
	change("/experiments/restart?route=things", http.StatusNoContent)
	s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
	s.stop()
	must2(t, s.wait())

	s = startExperiment(t, db, t.TempDir(), "rewrite", `{candidate: v2, share: 1, session: 1h, feedback: {click: 1}, guard: {latency_p99: 1ms}}`)
	defer func() {
		s.stop()
		must2(t, s.wait())
	}()
	s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
	got := s.experimentWhen(t, func(now trial.Status) bool {
		s.visits(t, now.Observed.Answers, 20, nil)
		return now.Stage == experiment.Stopped
	})
	if len(got.Why) != 1 || !strings.HasPrefix(got.Why[0], "slower than 1ms") || got.Observed.Slow == 0 {
		t.Errorf("%+v", got)
	}
	_, metrics := s.scrape(t, "")
	if !strings.Contains(metrics, `likeness_experiment_stopped{route="things"} 1`) {
		t.Error("no metric says that it was stopped")
	}
}

// TestExperimentOfOneModel: versions that share a model are told apart, so that the candidate does not count
// as activated.
func TestExperimentOfOneModel(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	state := t.TempDir()
	must2(t, gain.Record(state, "things", gain.Measurement{Model: testModel(t).Version, Gain: 0.05, Low: 0.04, High: 0.06}, nil))
	must2(t, gain.Record(state, "things", gain.Measurement{Model: testModel(t).Version, Gain: 0.01, Low: 0, High: 0.02}, nil))
	s := startExperimentOf(t, db, state, "rewrite", "{v1: {model: w}, v2: {model: w, depth: 30}}", `{candidate: v2, share: 1, session: 1h, feedback: {click: 1}, guard: {latency_p99: 60s}}`)
	s.experimentWhen(t, func(s trial.Status) bool { return s.Searched })
	s.visits(t, 0, 5, nil)
	got := s.experimentWhen(t, func(s trial.Status) bool { return s.Observed.Answers >= 5 || s.Stage != experiment.Running })
	if got.Stage != experiment.Running || got.Beside != "v1" || got.Model != got.Control {
		t.Errorf("%+v", got)
	}
	_, metrics := s.scrape(t, "")
	for _, want := range []string{`likeness_gain_first{route="things"} 0.05`, `likeness_gain_now{route="things"} 0.01`, `likeness_gain_fell{route="things"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is missing", want)
		}
	}
	must2(t, gain.Record(state, "things", gain.Measurement{Model: "another"}, nil))
	if _, metrics := s.scrape(t, ""); strings.Contains(metrics, "likeness_gain_now{") {
		t.Error("the gain of another model is shown")
	}
	s.stop()
	must2(t, s.wait())
}

package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	goclient "github.com/likenessdb/likeness/client"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
)

// readEvents returns the events that a route has in a state folder.
func readEvents(t *testing.T, state, route string) (shown []*events.Impression, chosen []*events.Feedback) {
	t.Helper()
	damaged, err := events.Read(filepath.Join(state, "events", route), events.Visitor{
		Impression: func(m *events.Impression) error { shown = append(shown, m); return nil },
		Feedback:   func(f *events.Feedback) error { chosen = append(chosen, f); return nil },
	})
	if err != nil || damaged > 0 {
		t.Fatalf("%d places are damaged: %v", damaged, err)
	}
	return shown, chosen
}

// feed sends a click on an item by the API.
func feed(t *testing.T, conn *grpc.ClientConn, route, answer string, item *likenessv1.ItemId) *likenessv1.FeedbackResponse {
	t.Helper()
	r, err := likenessv1.NewFeedbackServiceClient(conn).Feedback(t.Context(), &likenessv1.FeedbackRequest{
		Route: route, Events: []*likenessv1.FeedbackEvent{{AnswerId: answer, Item: item, Kind: "click"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textID(id string) *likenessv1.ItemId {
	return &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: id}}
}

// TestEvents: what the API answers is kept with the feedback that comes by gRPC and by JSON, in the
// form that the configuration says; a route without events has neither ids nor feedback.
func TestEvents(t *testing.T) {
	state := t.TempDir()
	s := start(t, strings.Replace(withREST(""), "exact_search: true}", `exact_search: true, events: {share: 1, keep: [vector, user, text], hash: [user]}}
  silent: {store: files, collection: things, model: plain, placement: stored}
state_dir: `+state, 1), true)
	client := likenessv1.NewSearchServiceClient(s.conn)
	request := &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 2}}, K: 2, User: "ann"}
	first, err := client.Search(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := client.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{request, request}})
	if err != nil {
		t.Fatal(err)
	}
	second := batch.GetResults()[1].GetResponse()
	if first.GetAnswerId() == "" || first.GetAnswerId() == second.GetAnswerId() {
		t.Fatalf("answer ids %q and %q", first.GetAnswerId(), second.GetAnswerId())
	}
	for range 2 {
		if got := feed(t, s.conn, "things", first.GetAnswerId(), textID("c")); got.GetAccepted() != 1 || len(got.GetRefused()) > 0 {
			t.Errorf("%v", got)
		}
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, e := range []exchange{
		{name: "feedback", body: fmt.Sprintf(`{"route":"things","events":[{"answer_id":%q,"item":{"text":"b"},"kind":"purchase","weight":2.5,"time":"2026-01-31T12:00:00Z","event_id":"e1"}]}`, second.GetAnswerId()),
			status: http.StatusOK, want: []string{`"accepted":1`, `"known":0`, `"refused":[]`}},
		{name: "stranger", body: `{"route":"things","events":[{"answer_id":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","item":{"text":"b"},"kind":"click"},{"answer_id":"?","item":{"text":"b"},"kind":"click"}]}`,
			status: http.StatusOK, want: []string{`"accepted":0`, `"index":0`, `"index":1`, `"reason":"ANSWER_UNKNOWN"`}},
		{name: "empty", body: `{"route":"things"}`, status: http.StatusBadRequest, want: []string{"give 1 to 10000"}},
		{name: "no events", body: fmt.Sprintf(`{"route":"silent","events":[{"answer_id":%q,"item":{"text":"b"},"kind":"click"}]}`, second.GetAnswerId()),
			status: http.StatusBadRequest, want: []string{"EVENTS_OFF", "events.share"}},
		{name: "no route", body: `{"route":"other","events":[{"kind":"click"}]}`, status: http.StatusNotFound, want: []string{"ROUTE_NOT_FOUND"}},
	} {
		e.path = "/v1/feedback"
		e.check(t, web, "http://"+s.at.REST)
	}
	c, err := goclient.Dial(s.at.GRPC, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	receipt, err := c.Feedback(t.Context(), "things", []goclient.Event{{AnswerID: first.GetAnswerId(), Item: goclient.Text("c"), Kind: "click"}, {AnswerID: "x", Kind: "click"}})
	if err != nil || receipt.Accepted != 1 || receipt.Known != 1 || len(receipt.Refused) != 1 || receipt.Refused[0].Index != 1 || receipt.Refused[0].Reason != "ANSWER_UNKNOWN" {
		t.Errorf("%+v, %v", receipt, err)
	}
	silent, err := client.Search(t.Context(), &likenessv1.SearchRequest{Route: "silent", Query: request.GetQuery(), K: 2})
	if err != nil || silent.GetAnswerId() != "" {
		t.Errorf("a route without events: %q, %v", silent.GetAnswerId(), err)
	}
	_, err = likenessv1.NewFeedbackServiceClient(s.conn).Feedback(t.Context(), &likenessv1.FeedbackRequest{Route: "silent", Events: []*likenessv1.FeedbackEvent{{Kind: "click"}}})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	_, metrics := s.scrape(t, "")
	for _, want := range []string{
		`likeness_events_feedback_total{route="things"} 2`, `likeness_events_feedback_known_total{route="things"} 2`,
		`likeness_events_feedback_refused_total{reason="ANSWER_UNKNOWN",route="things"} 3`, `likeness_events_failed{route="things"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("there is no metric %s", want)
		}
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	shown, chosen := readEvents(t, state, "things")
	if len(shown) != 3 || len(chosen) != 2 {
		t.Fatalf("%d impressions, %d events", len(shown), len(chosen))
	}
	m := shown[0]
	if m.Answer.String() != first.GetAnswerId() || !slices.Equal(m.Vector, []float32{1, 2}) || m.User == "" || m.User == "ann" ||
		m.Version != first.GetModel().GetVersion() || m.Status != rerank.StatusExact || m.First != 1 ||
		!slices.Equal(m.Items, []events.Item{{ID: rerank.TextID("c"), Score: 3}, {ID: rerank.TextID("b"), Score: 2}}) {
		t.Errorf("%+v", m)
	}
	if f := chosen[1]; f.Answer.String() != second.GetAnswerId() || f.Kind != "purchase" || f.Weight != 2.5 || f.ID != "e1" || f.Time.Year() != 2026 {
		t.Errorf("%+v", f)
	}
}

// TestEventsConfiguration: what cannot be kept is refused, with what can.
func TestEventsConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		`{share: 0.5}`: "state_dir", `{keep: [ip]}`: "vector, text, user, filter", `{keep: [user], hash: [text]}`: "not kept", `{hash: [vector]}`: "cannot be hashed",
	} {
		_, err := config.Load(config.Source{File: files(t, strings.Replace(base, "exact_search: true}", "exact_search: true, events: "+text+"}", 1)), Environ: []string{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// answerOf returns the answer id in a status of the proxy.
func answerOf(t *testing.T, status string) string {
	t.Helper()
	_, id, ok := strings.Cut(status, "; answer=")
	if !ok {
		t.Fatalf("status %q has no answer", status)
	}
	return id
}

// TestProxyEvents: what the proxy answers, rescored and rewritten, over gRPC and REST, is kept as it
// was shown, and feedback comes beside.
func TestProxyEvents(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	for placement, how := range map[string]string{"stored": "rescored", "rewrite": "rewritten"} {
		t.Run(placement, func(t *testing.T) {
			state := t.TempDir()
			at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: %s, exact_search: true, depth: 20, events: {share: 1, keep: [vector, user, filter]}}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, state, db.Address, placement, db.REST))
			ctx, points := metadata.AppendToOutgoingContext(asUser(t.Context()), "likeness-user", "ann"), qdrant.NewPointsClient(connect(t, at.Proxy.GRPC))
			var trailer metadata.MD
			one, err := points.Query(ctx, &qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(query), Limit: qdrant.PtrOf(uint64(4)), Offset: qdrant.PtrOf(uint64(2))}, grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			paged := strings.Join(trailer.Get("likeness-status"), "")
			if !strings.HasPrefix(paged, how+"; route=things; certificate=") {
				t.Errorf("status %q", paged)
			}
			two, err := points.QueryBatch(ctx, &qdrant.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*qdrant.QueryPoints{
				{CollectionName: "routed", Query: qdrant.NewQueryDense(query), Limit: qdrant.PtrOf(uint64(3))}, {CollectionName: "routed", Query: qdrant.NewQueryDense([]float32{1, 0, 0, 0}), Limit: qdrant.PtrOf(uint64(2))},
			}}, grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			batch := answerOf(t, strings.Join(trailer.Get("likeness-status"), ""))
			code, rest, body := post(t, "http://"+at.Proxy.REST, "routed/points/search", `{"vector":[1,-2,0.5,3],"limit":3}`, key)
			if code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
			var answer struct{ Result json.RawMessage }
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatal(err)
			}
			api, first := connect(t, at.GRPC), two.GetResult()[1].GetResult()[0].GetId().GetNum()
			const inCapitals = "F47AC10B58CC4372A5670E02B2C3D479"
			for _, id := range []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: first}}, textID(inCapitals), textID("no id of Qdrant")} {
				if got := feed(t, api, "things", batch+".1", id); got.GetAccepted() != 1 {
					t.Errorf("%v", got)
				}
			}
			shown, chosen := readEvents(t, state, "things")
			want := map[string][]hit{
				answerOf(t, paged): hitsOf(one.GetResult()), batch: hitsOf(two.GetResult()[0].GetResult()),
				batch + ".1": hitsOf(two.GetResult()[1].GetResult()), answerOf(t, rest): restHits(t, answer.Result),
			}
			if len(shown) != len(want) || len(chosen) != 3 || chosen[0].Answer.String() != batch+".1" ||
				chosen[1].Item != rerank.TextID("f47ac10b-58cc-4372-a567-0e02b2c3d479") || chosen[2].Item != rerank.TextID("no id of Qdrant") {
				t.Fatalf("%d impressions, feedback %+v", len(shown), chosen)
			}
			for _, m := range shown {
				var hits []hit
				for _, item := range m.Items {
					hits = append(hits, hit{item.ID.String(), item.Score})
				}
				same(t, m.Answer.String(), hits, want[m.Answer.String()])
				isPage := m.Answer.String() == answerOf(t, paged)
				if isPage != (m.First == 3) || len(m.Vector) != 4 || m.Version == "" || m.Status == "" || (m.User == "ann") == (m.Answer.String() == answerOf(t, rest)) {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}

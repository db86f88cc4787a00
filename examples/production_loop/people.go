package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/clicks"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

const shown = 10 // topics of an answer

// prepare makes the collection, the model that serves at first, which is cosine, and a bad one.
func (l *loop) prepare(ctx context.Context) error {
	vectors, err := npy.Open(l.data + "/items_vectors.npy")
	if err != nil {
		return err
	}
	defer vectors.Close()
	conn, err := grpc.NewClient(l.qdrant, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	collections := qdrant.NewCollectionsClient(conn)
	if _, err := collections.Delete(ctx, &qdrant.DeleteCollection{CollectionName: "topics"}); err != nil {
		return fmt.Errorf("qdrant %s: %w", l.qdrant, err)
	}
	dim := len(vectors.Row(0))
	if _, err := collections.Create(ctx, &qdrant.CreateCollection{CollectionName: "topics",
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: uint64(dim), Distance: qdrant.Distance_Cosine})}); err != nil {
		return err
	}
	topics, err := banking77.Rows(l.data + "/items.jsonl")
	if err != nil {
		return err
	}
	points := make([]*qdrant.PointStruct, len(topics))
	for i := range points {
		points[i] = &qdrant.PointStruct{Id: qdrant.NewIDNum(uint64(i)), Vectors: qdrant.NewVectorsDense(slices.Clone(vectors.Row(i)))}
	}
	if _, err := qdrant.NewPointsClient(conn).Upsert(ctx, &qdrant.UpsertPoints{CollectionName: "topics", Wait: qdrant.PtrOf(true), Points: points}); err != nil {
		return err
	}
	plain, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: fmt.Appendf(nil, `{"dim":%d,"normalise":true}`, dim)})
	if err != nil {
		return err
	}
	against := make([]float32, dim) // prefers what is least alike
	for i := range against {
		against[i] = -1
	}
	bad, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "bad", Tensors: tensor.Set{"w": {Shape: []int{dim}, Data: against}},
		Config: fmt.Appendf(nil, `{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":true,"form":"diagonal"}`, dim, dim)})
	if err != nil {
		return err
	}
	for name, m := range map[string]*model.Model{"v1": plain, "v3": bad} {
		if err := model.Write(l.path(name+".safetensors"), m); err != nil {
			return err
		}
	}
	return l.configure("{}")
}

// people asks questions through the proxy, as a client of Qdrant does, and says what it clicked.
type people struct {
	*loop
	asked    *npy.Matrix // the questions
	right    []int       // the topic of each
	points   qdrant.PointsClient
	feedback likenessv1.FeedbackServiceClient
	clicked  []*likenessv1.FeedbackEvent // not sent yet
	visits   int
}

// visit makes people ask as long as more says so, and sends their clicks.
func (l *loop) visit(ctx context.Context, api *grpc.ClientConn, at addresses, more func(visits int) (bool, error)) (err error) {
	rows, err := banking77.Rows(l.data + "/train.jsonl")
	if err != nil {
		return err
	}
	p := &people{loop: l, feedback: likenessv1.NewFeedbackServiceClient(api)}
	for _, r := range rows {
		p.right = append(p.right, r.Item)
	}
	if p.asked, err = npy.Open(l.data + "/train_vectors.npy"); err != nil {
		return err
	}
	defer p.asked.Close()
	proxy, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer proxy.Close()
	p.points = qdrant.NewPointsClient(proxy)
	for {
		if p.visits%100 == 0 {
			if err := p.send(ctx); err != nil {
				return err
			}
			if goOn, err := more(p.visits); err != nil || !goOn {
				return err
			}
		}
		if err := p.ask(ctx); err != nil {
			return err
		}
	}
}

// ask is one person who asks one question, reads the answer, and clicks.
func (p *people) ask(ctx context.Context) error {
	p.visits++
	p.searches++
	question := p.rng.IntN(len(p.right))
	for p.right[question] >= p.topics {
		question = p.rng.IntN(len(p.right))
	}
	user := metadata.AppendToOutgoingContext(ctx, "likeness-user", fmt.Sprintf("person %d", p.searches))
	var trailer metadata.MD
	answer, err := p.points.Query(user, &qdrant.QueryPoints{CollectionName: "topics", Query: qdrant.NewQueryDense(p.asked.Row(question)), Limit: qdrant.PtrOf(uint64(shown))}, grpc.Trailer(&trailer))
	if err != nil {
		p.failed++
		return ctx.Err()
	}
	_, id, kept := strings.Cut(strings.Join(trailer.Get("likeness-status"), ""), "; answer=")
	if !kept {
		return fmt.Errorf("an answer has no id: %q", trailer.Get("likeness-status"))
	}
	relevant := make([]bool, len(answer.GetResult()))
	for i, hit := range answer.GetResult() {
		relevant[i] = hit.GetId().GetNum() == uint64(p.right[question])
	}
	for i, clicked := range (clicks.Person{Browsing: clicks.ByPosition, Severity: 1, Noise: 0.02}).Read(relevant, p.rng) {
		if clicked {
			p.clicked = append(p.clicked, &likenessv1.FeedbackEvent{AnswerId: id, Kind: "click",
				Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: answer.GetResult()[i].GetId().GetNum()}}})
		}
	}
	return nil
}

// send sends the clicks so far.
func (p *people) send(ctx context.Context) error {
	if len(p.clicked) == 0 {
		return nil
	}
	got, err := p.feedback.Feedback(ctx, &likenessv1.FeedbackRequest{Route: "topics", Events: p.clicked})
	if err == nil && int(got.GetAccepted()) != len(p.clicked) {
		err = fmt.Errorf("%d of %d clicks were accepted: %v", got.GetAccepted(), len(p.clicked), got.GetRefused())
	}
	p.clicked = nil
	return err
}

// collect lets people click on what is in service.
func (l *loop) collect(ctx context.Context, title string) error {
	l.heading(title)
	return l.serve(ctx, func(api *grpc.ClientConn, at addresses) (err error) {
		if l.after, err = l.quality(ctx, api); err != nil {
			return err
		}
		if l.before == 0 {
			l.before = l.after
		}
		began := time.Now()
		err = l.visit(ctx, api, at, func(visits int) (bool, error) { return visits < l.people, nil })
		l.collected = time.Since(began)
		l.print("%d people asked, MRR@10 %.3f on other questions about all topics\n", l.people, l.after)
		return err
	})
}

// protect tries a bad model, until it is stopped, and measures what is in service then.
func (l *loop) protect(ctx context.Context) error {
	l.heading("A bad model, interleaved with the learned one")
	return l.compare(ctx, "v3", experiment.Stopped)
}

// compare runs an experiment until it is over. It returns an error if it ends otherwise than wanted.
func (l *loop) compare(ctx context.Context, candidate string, want experiment.Stage) error {
	if err := l.configure(fmt.Sprintf("{candidate: %s, share: 0.25, session: 1s, feedback: {click: 1}, guard: {latency_p99: 1s}, promote: auto}", candidate)); err != nil {
		return err
	}
	return l.serve(ctx, func(api *grpc.ClientConn, at addresses) error {
		last := trial.Status{}
		err := l.visit(ctx, api, at, func(visits int) (bool, error) {
			now, err := status(ctx, at.Admin)
			if err != nil {
				return false, err
			}
			if now.Share != last.Share || now.Decision != last.Decision {
				l.print("after %5d questions: %s at share %g, %d sessions, mean preference %+.2f: %s\n", visits, now.Stage, now.Share, now.Test.Units, now.Mean, now.Leader())
			}
			last = now
			return now.Ended.IsZero(), nil
		})
		if err != nil {
			return err
		}
		l.print("%s: %s\n", last.Stage, strings.Join(last.Why, "; "))
		if last.Stage != want {
			return fmt.Errorf("the experiment with %s is %s, and should be %s", candidate, last.Stage, want)
		}
		l.after, err = l.quality(ctx, api)
		return err
	})
}

// status reads the state of the experiment from the admin port.
func status(ctx context.Context, admin string) (trial.Status, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/experiments", nil)
	if err != nil {
		return trial.Status{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		return trial.Status{}, err
	}
	defer got.Body.Close()
	var all []trial.Status
	if err := json.NewDecoder(got.Body).Decode(&all); err != nil {
		return trial.Status{}, err
	}
	if len(all) == 0 { // it has not begun
		return trial.Status{}, nil
	}
	return all[0], nil
}

// judge fits a model to the right topic of every question that people asked, which no log of clicks has,
// and measures it on the other questions.
func (l *loop) judge(ctx context.Context) error {
	l.heading("The fit on all labels")
	asked, err := banking77.Rows(l.data + "/train.jsonl")
	if err != nil {
		return err
	}
	pairs := []byte("query,item\n")
	for query, r := range asked {
		pairs = fmt.Appendf(pairs, "%d,%d\n", query, r.Item)
	}
	if err := os.WriteFile(l.path("labels.csv"), pairs, 0o600); err != nil {
		return err
	}
	if err := l.likeness(ctx, "fit", "bilinear", "--items", l.data+"/items_vectors.npy", "--queries", l.data+"/train_vectors.npy", "--pairs", "labels.csv",
		"--form", "full", "--scale", "20", "--rate", "0.005", "--out", "labelled.safetensors"); err != nil {
		return err
	}
	m, err := model.Open(l.path("labelled.safetensors"))
	if err != nil {
		return err
	}
	items, err := npy.Open(l.data + "/items_vectors.npy")
	if err != nil {
		return err
	}
	defer items.Close()
	features := rerank.NewMatrix(items.Rows, m.Spec().Features)
	if err := m.EncodeItems(features, items.Matrix); err != nil {
		return err
	}
	scores := make([]float32, items.Rows)
	l.labelled, err = l.meanReciprocalRank(func(query []float32) ([]uint64, error) {
		encoded, err := m.Encode(rerank.Query{Vector: query})
		if err == nil {
			err = encoded.Score(scores, rerank.Items{Features: features})
		}
		best := make([]uint64, len(scores))
		for i := range best {
			best[i] = uint64(i)
		}
		slices.SortFunc(best, func(a, b uint64) int { return cmp.Compare(scores[b], scores[a]) })
		return best[:shown], err
	})
	return err
}

// quality measures the MRR@10 of the version in service. Its requests name a depth, so that no
// experiment answers them.
func (l *loop) quality(ctx context.Context, api *grpc.ClientConn) (float64, error) {
	c := likenessv1.NewSearchServiceClient(api)
	return l.meanReciprocalRank(func(query []float32) (found []uint64, err error) {
		a, err := c.Search(ctx, &likenessv1.SearchRequest{Route: "topics", K: shown, Depth: shown, Query: &likenessv1.Query{Vector: query}})
		for _, hit := range a.GetHits() {
			found = append(found, hit.GetId().GetNumber())
		}
		return found, err
	})
}

// meanReciprocalRank returns the MRR@10 of a search, on questions that no person asks.
func (l *loop) meanReciprocalRank(search func(query []float32) ([]uint64, error)) (float64, error) {
	task, err := banking77.Intents(l.data)
	if err != nil {
		return 0, err
	}
	defer task.Close()
	sum, n := 0.0, 0
	for q := 0; q < len(task.Queries); q += 4 {
		found, err := search(task.Vector(q))
		if err != nil {
			return 0, err
		}
		n++
		if i := slices.Index(found, uint64(task.Relevant[q][0])); i >= 0 {
			sum += 1 / float64(i+1)
		}
	}
	return sum / float64(n), nil
}

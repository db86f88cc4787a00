package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

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
	for name, m := range map[string]*model.Model{"v1": plain, "bad": bad} {
		if err := model.Write(l.path(name+".safetensors"), m); err != nil {
			return err
		}
	}
	asked, err := banking77.Rows(l.data + "/train.jsonl")
	if err != nil {
		return err
	}
	for _, r := range asked {
		l.right = append(l.right, r.Item)
	}
	if l.questions, err = npy.Open(l.data + "/train_vectors.npy"); err != nil {
		return err
	}
	return os.WriteFile(l.path("likeness.yaml"), fmt.Appendf(nil, configuration, l.qdrant), 0o600)
}

// questionsOf returns the questions whose right topic is among the first ones.
func questionsOf(right []int, topics int) (of []int) {
	for q, topic := range right {
		if topic < topics {
			of = append(of, q)
		}
	}
	return of
}

// visit makes people ask as long as more says so, and sends their clicks. Every question is asked as often as the others,
// in an order at random.
func (l *loop) visit(ctx context.Context, more func(visits int) (bool, error)) error {
	var next []int
	for visits := 0; ; visits++ {
		if visits%100 == 0 {
			if err := l.send(ctx); err != nil {
				return err
			}
			if goOn, err := more(visits); err != nil || !goOn {
				return err
			}
		}
		if len(next) == 0 {
			next = slices.Clone(l.asked)
			l.rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		if err := l.read(ctx, next[0]); err != nil {
			return err
		}
		next = next[1:]
	}
}

// read is one person who asks a question through the proxy, as a client of Qdrant does, reads the answer, and clicks.
func (l *loop) read(ctx context.Context, question int) error {
	l.searches++
	user := metadata.AppendToOutgoingContext(ctx, "likeness-user", fmt.Sprintf("person %d", l.searches))
	var trailer metadata.MD
	answer, err := l.points.Query(user, &qdrant.QueryPoints{CollectionName: "topics", Query: qdrant.NewQueryDense(l.questions.Row(question)), Limit: qdrant.PtrOf(uint64(shown))}, grpc.Trailer(&trailer))
	if err != nil {
		l.failed++
		return ctx.Err()
	}
	_, id, kept := strings.Cut(strings.Join(trailer.Get("likeness-status"), ""), "; answer=")
	if !kept {
		return fmt.Errorf("an answer has no id: %q", trailer.Get("likeness-status"))
	}
	relevant := make([]bool, len(answer.GetResult()))
	for i, hit := range answer.GetResult() {
		relevant[i] = hit.GetId().GetNum() == uint64(l.right[question])
	}
	for i, clicked := range (clicks.Person{Browsing: clicks.ByPosition, Severity: 1, Noise: 0.02}).Read(relevant, l.rng) {
		if clicked {
			l.clicked = append(l.clicked, &likenessv1.FeedbackEvent{AnswerId: id, Kind: "click",
				Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: answer.GetResult()[i].GetId().GetNum()}}})
		}
	}
	return nil
}

// send sends the clicks so far.
func (l *loop) send(ctx context.Context) error {
	if len(l.clicked) == 0 {
		return nil
	}
	got, err := l.feedback.Feedback(ctx, &likenessv1.FeedbackRequest{Route: "topics", Events: l.clicked})
	if err == nil && int(got.GetAccepted()) != len(l.clicked) {
		err = fmt.Errorf("%d of %d clicks were accepted: %v", got.GetAccepted(), len(l.clicked), got.GetRefused())
	}
	l.clicked = nil
	return err
}

// judge fits a model to the right topic of every question that people asked, which no log of clicks has,
// and measures it on the other questions.
func (l *loop) judge(ctx context.Context) error {
	l.heading("The fit on all labels")
	pairs := []byte("query,item\n")
	for _, query := range questionsOf(l.right, l.topics) {
		pairs = fmt.Appendf(pairs, "%d,%d\n", query, l.right[query])
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
func (l *loop) quality(ctx context.Context) (float64, error) {
	return l.meanReciprocalRank(func(query []float32) (found []uint64, err error) {
		a, err := l.api.Search(ctx, &likenessv1.SearchRequest{Route: "topics", K: shown, Depth: shown, Query: &likenessv1.Query{Vector: query}})
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
	right := make([]int, len(task.Queries))
	for q, r := range task.Relevant {
		right[q] = int(r[0])
	}
	asked := questionsOf(right, l.topics)
	sum, n := 0.0, 0
	for i := 0; i < len(asked); i += max(1, len(asked)/700) {
		q := asked[i]
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

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/jsonwalk"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/server"
)

// Headers of a reranked answer.
const (
	modelHeader       = "Likeness-Model"       // name and version of the model
	certificateHeader = "Likeness-Certificate" // exact, snapshot or unknown
	missingHeader     = "Likeness-Missing"     // how many documents are no items of the collection, if any
	timingHeader      = "Server-Timing"        // milliseconds of the embedder, and of embedding and scoring together
)

// maxRouteBytes bounds the name of a route, as the rules of ScoreRequest do.
const maxRouteBytes = 256

// rerankRequest has the fields of all forms. Other fields, such as max_tokens_per_doc, mean nothing
// here and are ignored.
type rerankRequest struct {
	route, query    string
	documents       []search.Document
	texts           [][]byte // the JSON of each document, for an answer that returns the documents
	topN            *int
	returnDocuments bool
}

// reranked is one document of an answer.
type reranked struct {
	index int
	score float32
}

// rerankForm encodes answers and errors as the clients of one rerank API expect them.
type rerankForm struct {
	answer func(r *rerankRequest, ranked []reranked, id string) []byte
	refuse func(w http.ResponseWriter, st *status.Status)
}

var (
	cohereV1 = rerankForm{func(r *rerankRequest, ranked []reranked, id string) []byte { return cohereAnswer(r, ranked, id, "1") }, refuseCohere}
	cohereV2 = rerankForm{func(r *rerankRequest, ranked []reranked, id string) []byte { return cohereAnswer(r, ranked, id, "2") }, refuseCohere}
	teiForm  = rerankForm{teiAnswer, refuseTEI}
)

// rerank answers a call of a rerank API.
func (g *Gateway) rerank(mux *runtime.ServeMux, form rerankForm) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		var answer []byte
		ctx, err := runtime.AnnotateIncomingContext(ctx, mux, r, likenessv1.SearchService_Score_FullMethodName)
		if err == nil {
			answer, err = g.reranked(ctx, w.Header(), r, form, path["route"])
		}
		if err != nil {
			form.refuse(w, g.statusOfCall(ctx, err))
			return
		}
		setAnswerHeaders(ctx, w)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}
}

// statusOfCall returns the status of an error of the gateway or of a call.
func (g *Gateway) statusOfCall(ctx context.Context, err error) *status.Status {
	st, ok := status.FromError(err)
	switch {
	case !ok:
		st = server.StatusOf(err)
		g.count(ctx, st.Code())
	case len(st.Details()) == 0:
		st = g.gatewayStatus(ctx, st)
	}
	return st
}

// reranked scores the documents of a request and sets the headers of the answer. route is the one that
// the path names, if it does.
func (g *Gateway) reranked(ctx context.Context, header http.Header, r *http.Request, form rerankForm, route string) ([]byte, error) {
	request, err := readRerank(r)
	if err != nil {
		return nil, err
	}
	route = cmp.Or(route, request.route)
	scored, err := g.options.Server.Rerank(ctx, search.ScoreRequest{
		Route: route, Query: rerank.Query{Text: request.query}, Documents: request.documents,
	})
	if err != nil {
		return nil, err
	}
	ranked := order(scored.Scores, request.topN)
	if len(ranked) == 0 && (request.topN == nil || *request.topN > 0) {
		return nil, plan.BadField("documents", "none of the %d is an item of the collection of route %q; the first is %.80s", len(request.documents), route, request.texts[0])
	}
	header.Set(modelHeader, scored.Model+"@"+scored.Version)
	header.Set(certificateHeader, string(scored.Certificate.Status))
	header.Set(timingHeader, fmt.Sprintf("embed;dur=%.3f, score;dur=%.3f", milliseconds(scored.Embed), milliseconds(scored.Total)))
	if missing := len(scored.Missing); missing > 0 {
		header.Set(missingHeader, strconv.Itoa(missing))
	}
	return form.answer(request, ranked, header.Get(server.RequestIDHeader)), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// readRerank reads the body of a request.
func readRerank(r *http.Request) (*rerankRequest, error) {
	from, whole := r.Body.(*body)
	if !whole {
		return nil, fmt.Errorf("%w: a request has a body", server.ErrMessage)
	}
	request, asIDs := &rerankRequest{}, r.URL.Query().Get("documents") == "ids"
	if err := from.inTurn(func() error { return request.parse(from.data, asIDs) }); err != nil {
		return nil, err
	}
	switch n := len(request.documents); {
	case len(request.route) > maxRouteBytes:
		return nil, plan.BadField("model", "it has %d bytes, at most %d", len(request.route), maxRouteBytes)
	case request.query == "":
		return nil, plan.BadField("query", "it is empty; give text")
	case len(request.query) > server.MaxTextBytes:
		return nil, plan.BadField("query", "it has %d bytes, at most %d", len(request.query), server.MaxTextBytes)
	case n == 0:
		return nil, plan.BadField("documents", "there are 0; give 1 to %d", server.MaxDocuments)
	case request.topN != nil && *request.topN < 0:
		return nil, plan.BadField("top_n", "%d must not be negative", *request.topN)
	}
	return request, nil
}

// parse reads a request. It walks over the text once after having checked it, because decoding by
// reflection takes longer than scoring does. asIDs makes ids of all documents that are strings. It
// returns server.ErrMessage or a *plan.FieldError.
func (r *rerankRequest) parse(data []byte, asIDs bool) error {
	if err := checkCounts(data); err != nil {
		return fmt.Errorf("%w: %w", server.ErrMessage, err)
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("%w: the JSON is not UTF-8", server.ErrMessage)
	}
	if !json.Valid(data) {
		return fmt.Errorf("%w: %w", server.ErrMessage, json.Unmarshal(data, new(any)))
	}
	fields := map[string]any{
		"model": &r.route, "query": &r.query, "top_n": &r.topN,
		"return_documents": &r.returnDocuments, "return_text": &r.returnDocuments, // Cohere's and TEI's name
	}
	var problem error
	scanner := jsonwalk.New(data)
	isObject := scanner.Object(func(key string) bool {
		value, _ := scanner.Value()
		switch to, known := fields[key]; {
		case key == "documents" || key == "texts": // TEI's name
			problem = r.addDocuments(value, asIDs)
		case known:
			if err := json.Unmarshal(value, to); err != nil {
				problem = fmt.Errorf("%w: %s: %w", server.ErrMessage, key, err)
			}
		}
		return problem == nil
	})
	if problem == nil && !isObject {
		problem = fmt.Errorf("%w: the JSON is no object", server.ErrMessage)
	}
	return problem
}

// addDocuments adds the documents of a JSON array.
func (r *rerankRequest) addDocuments(array []byte, asIDs bool) error {
	if string(array) == "null" {
		return nil
	}
	const reserved = 1024 // documents for which memory is reserved before they are read
	most := min(bytes.Count(array, []byte{','})+1, reserved)
	r.documents, r.texts = slices.Grow(r.documents, most), slices.Grow(r.texts, most)
	var problem error
	scanner := jsonwalk.New(array)
	isArray := scanner.Array(func() bool {
		if len(r.documents) == server.MaxDocuments {
			problem = plan.BadField("documents", "there are more than %d", server.MaxDocuments)
			return false
		}
		text, _ := scanner.Value()
		document, err := documentOf(text, asIDs)
		if err != nil {
			problem = plan.BadField(fmt.Sprintf("documents[%d]", len(r.documents)), "%v", err)
			return false
		}
		r.documents, r.texts = append(r.documents, document), append(r.texts, text)
		return true
	})
	if problem == nil && !isArray {
		problem = plan.BadField("documents", "they are no list")
	}
	return problem
}

// documentOf converts a document's JSON: numbers and objects with an id are ids; strings and objects
// with a text are texts, which may name an item. asIDs makes ids of all strings.
func documentOf(text []byte, asIDs bool) (search.Document, error) {
	if text[0] == '{' {
		var id, words []byte
		scanner := jsonwalk.New(text)
		scanner.Object(func(key string) bool {
			value, ok := scanner.Value()
			switch {
			case key == "id" && string(value) != "null":
				id = value
			case key == "text" && value[0] == '"':
				words = value
			}
			return ok
		})
		switch {
		case id != nil:
			text, asIDs = id, true
		case words != nil:
			text = words
		default:
			return search.Document{}, fmt.Errorf(`%.80s has no id and no text; give one of them`, text)
		}
	}
	if words, ok := jsonwalk.New(text).Text(); ok {
		switch {
		case asIDs:
			return search.Document{ID: rerank.TextID(words)}, nil
		case strings.TrimSpace(words) == "":
			return search.Document{}, errors.New("its text is empty")
		}
		return search.Document{Text: words}, nil
	}
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
		return search.Document{ID: rerank.UintID(n)}, nil
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return search.Document{ID: rerank.IntID(n)}, nil
	}
	return search.Document{}, fmt.Errorf("%.80s is no id and no text; an id is a string or an integer", text)
}

// order ranks the documents that have a score, the best first, and keeps the first topN. It sorts integers, which
// takes a third of the time of comparing scores and indices: each holds a score above an index, and is the smaller, the
// better its document is.
func order(scores []float32, topN *int) []reranked {
	keys := make([]uint64, 0, len(scores))
	for i, score := range scores {
		if f := float64(score); !math.IsNaN(f) && !math.IsInf(f, 0) {
			keys = append(keys, uint64(^ascending(score))<<32|uint64(uint32(i)))
		}
	}
	slices.Sort(keys)
	if topN != nil {
		keys = keys[:min(*topN, len(keys))]
	}
	ranked := make([]reranked, len(keys))
	for n, key := range keys {
		i := int(uint32(key))
		ranked[n] = reranked{i, scores[i]}
	}
	return ranked
}

// ascending returns an integer that is the greater, the greater a finite score is. It is the same for 0 and −0.
func ascending(score float32) uint32 {
	bits := math.Float32bits(score + 0) // −0 + 0 is 0
	if bits>>31 == 1 {
		return ^bits
	}
	return bits | 1<<31
}

// cohereAnswer is the answer of Cohere's rerank, in a version of its API.
func cohereAnswer(r *rerankRequest, ranked []reranked, id, version string) []byte {
	quoted, _ := json.Marshal(id)
	out := append([]byte(`{"id":`), quoted...)
	out = append(out, `,"results":`...)
	out = appendResults(out, ranked, "relevance_score", func(out []byte, index int) []byte {
		switch document := r.texts[index]; {
		case !r.returnDocuments:
			return out
		case bytes.HasPrefix(document, []byte(`"`)):
			return append(append(append(out, `,"document":{"text":`...), document...), '}')
		default:
			return append(append(out, `,"document":`...), document...)
		}
	})
	return append(out, `,"meta":{"api_version":{"version":"`+version+`"}}}`...)
}

// teiAnswer is the answer of Text Embeddings Inference.
func teiAnswer(r *rerankRequest, ranked []reranked, _ string) []byte {
	return appendResults(nil, ranked, "score", func(out []byte, index int) []byte {
		if !r.returnDocuments {
			return out
		}
		return append(append(out, `,"text":`...), r.texts[index]...)
	})
}

// appendResults appends the results as JSON. document appends what a form says of a document, which is
// JSON of the request.
func appendResults(out []byte, ranked []reranked, score string, document func(out []byte, index int) []byte) []byte {
	const resultBytes = 50 // of a result without its document, about
	out = append(slices.Grow(out, resultBytes*len(ranked)), '[')
	for i, one := range ranked {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(append(out, `{"index":`...), int64(one.index), 10)
		out = strconv.AppendFloat(append(out, `,"`+score+`":`...), float64(one.score), 'g', -1, 32)
		out = append(document(out, one.index), '}')
	}
	return append(out, ']')
}

// refuseCohere writes an error as Cohere does: clients show its message.
func refuseCohere(w http.ResponseWriter, st *status.Status) { write(w, 0, st) }

// refuseTEI writes an error as Text Embeddings Inference does.
func refuseTEI(w http.ResponseWriter, st *status.Status) {
	kind := map[codes.Code]string{
		codes.InvalidArgument: "Validation", codes.ResourceExhausted: "Overloaded", codes.Unavailable: "Unhealthy",
	}[st.Code()]
	text, _ := json.Marshal(map[string]string{"error": st.Message(), "error_type": cmp.Or(kind, "Backend")})
	writeText(w, 0, st, text)
}

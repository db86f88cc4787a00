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
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/server"
)

// Headers of a reranked answer.
const (
	modelHeader       = "Likeness-Model"       // name and version of the model
	certificateHeader = "Likeness-Certificate" // exact, snapshot or unknown
	missingHeader     = "Likeness-Missing"     // how many documents are no items of the collection, if any
)

// maxDocuments bounds the documents of a request, as the rules of Documents do.
const maxDocuments = 16384

// rerankRequest has the fields of all forms. Fields that it does not have, such as max_tokens_per_doc,
// mean nothing here and are ignored.
type rerankRequest struct {
	Model           string    `json:"model"` // the route
	Query           string    `json:"query"`
	Documents       documents `json:"documents"`
	Texts           documents `json:"texts"` // TEI's documents
	TopN            *int      `json:"top_n"`
	ReturnDocuments bool      `json:"return_documents"`
	ReturnText      bool      `json:"return_text"`
}

// documents are the elements of a JSON array, at most maxDocuments: an element of one byte becomes a
// slice.
type documents []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (d *documents) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	from := json.NewDecoder(bytes.NewReader(data))
	if first, err := from.Token(); err != nil || first != json.Delim('[') {
		return errors.New("the documents are no list")
	}
	*d = nil
	for from.More() {
		if len(*d) == maxDocuments {
			return fmt.Errorf("there are more than %d documents", maxDocuments)
		}
		var one json.RawMessage
		if err := from.Decode(&one); err != nil {
			return err
		}
		*d = append(*d, one)
	}
	return nil
}

// reranked is one document of an answer.
type reranked struct {
	index int
	score float32
}

// rerankForm is what clients of one API take for an answer and for an error.
type rerankForm struct {
	answer func(r *rerankRequest, ranked []reranked, id string) []byte
	refuse func(w http.ResponseWriter, st *status.Status)
}

var (
	cohereV1 = rerankForm{func(r *rerankRequest, ranked []reranked, id string) []byte { return cohereAnswer(r, ranked, id, "1") }, refuseCohere}
	cohereV2 = rerankForm{func(r *rerankRequest, ranked []reranked, id string) []byte { return cohereAnswer(r, ranked, id, "2") }, refuseCohere}
	teiForm  = rerankForm{teiAnswer, refuseTEI}
)

// rerank answers a call of a rerank API by a call of Score.
func (g *Gateway) rerank(mux *runtime.ServeMux, form rerankForm) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		var answer []byte
		ctx, err := runtime.AnnotateContext(ctx, mux, r, likenessv1.SearchService_Score_FullMethodName)
		if err == nil {
			answer, err = g.reranked(ctx, w.Header(), r, form, path["route"])
		}
		if err != nil {
			form.refuse(w, g.statusOfCall(ctx, err))
			return
		}
		_ = answering(ctx, w, nil)
		w.Header().Set("Content-Type", "application/json")
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
	if route = cmp.Or(route, request.Model); route == "" {
		if route, err = g.onlyRoute(ctx); err != nil {
			return nil, err
		}
	}
	documents, err := documentsOf(request.Documents, r.URL.Query().Get("documents") == "ids")
	if err != nil {
		return nil, err
	}
	scored, err := likenessv1.NewSearchServiceClient(g.conn).Score(ctx, &likenessv1.ScoreRequest{
		Route: route, Query: &likenessv1.Query{Text: request.Query},
		Items: &likenessv1.ScoreRequest_Documents{Documents: &likenessv1.Documents{Documents: documents}},
	})
	if err != nil {
		return nil, err
	}
	ranked := order(scored.GetScores(), request.TopN)
	if len(ranked) == 0 && (request.TopN == nil || *request.TopN > 0) {
		return nil, plan.BadField("documents", "none of the %d is an item of the collection of route %q; the first is %.80s", len(documents), route, request.Documents[0])
	}
	header.Set(modelHeader, scored.GetModel().GetName()+"@"+scored.GetModel().GetVersion())
	header.Set(certificateHeader, strings.ToLower(strings.TrimPrefix(scored.GetCertificate().GetStatus().String(), "CERTIFICATE_STATUS_")))
	if missing := len(scored.GetMissing()); missing > 0 {
		header.Set(missingHeader, strconv.Itoa(missing))
	}
	return form.answer(request, ranked, header.Get(server.RequestIDHeader)), nil
}

// readRerank reads the body of a request.
func readRerank(r *http.Request) (*rerankRequest, error) {
	from, whole := r.Body.(*body)
	if !whole {
		return nil, fmt.Errorf("%w: a request has a body", server.ErrMessage)
	}
	request := &rerankRequest{}
	err := from.inTurn(func() error {
		if err := checkCounts(from.data); err != nil {
			return fmt.Errorf("%w: %w", server.ErrMessage, err)
		}
		if err := json.Unmarshal(from.data, request); err != nil {
			return fmt.Errorf("%w: %w", server.ErrMessage, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	request.Documents = append(request.Documents, request.Texts...)
	switch n := len(request.Documents); {
	case request.Query == "":
		return nil, plan.BadField("query", "it is empty; give text")
	case n == 0 || n > maxDocuments:
		return nil, plan.BadField("documents", "there are %d; give 1 to %d", n, maxDocuments)
	case request.TopN != nil && *request.TopN < 0:
		return nil, plan.BadField("top_n", "%d must not be negative", *request.TopN)
	}
	return request, nil
}

// onlyRoute returns the only route that the caller may search.
func (g *Gateway) onlyRoute(ctx context.Context) (string, error) {
	all, err := likenessv1.NewCatalogServiceClient(g.conn).ListRoutes(ctx, &likenessv1.ListRoutesRequest{})
	if err != nil {
		return "", err
	}
	if routes := all.GetRoutes(); len(routes) == 1 {
		return routes[0].GetName(), nil
	}
	return "", plan.BadField("model", "it is empty, and there are %d routes; give the name of one as model, or call /v1/routes/ROUTE/rerank", len(all.GetRoutes()))
}

// documentsOf converts the documents of a request: numbers and objects with an id are ids; strings and
// objects with a text are texts in the sense of Document.text. asIDs makes ids of all strings.
func documentsOf(raw []json.RawMessage, asIDs bool) ([]*likenessv1.Document, error) {
	out := make([]*likenessv1.Document, len(raw))
	for i, one := range raw {
		d, err := documentOf(one, asIDs)
		if err != nil {
			return nil, plan.BadField(fmt.Sprintf("documents[%d]", i), "%v", err)
		}
		out[i] = d
	}
	return out, nil
}

func documentOf(raw json.RawMessage, asIDs bool) (*likenessv1.Document, error) {
	var object struct {
		ID   json.RawMessage `json:"id"`
		Text *string         `json:"text"`
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		if len(object.ID) == 0 || string(object.ID) == "null" {
			if object.Text == nil {
				return nil, fmt.Errorf(`%.80s has no id and no text; give one of them`, raw)
			}
			return textDocument(*object.Text)
		}
		raw, asIDs = object.ID, true
	}
	if text, ok := textOf(raw); ok {
		if asIDs {
			return &likenessv1.Document{Document: &likenessv1.Document_Id{Id: text}}, nil
		}
		return textDocument(text)
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return &likenessv1.Document{Document: &likenessv1.Document_Number{Number: n}}, nil
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return &likenessv1.Document{Document: &likenessv1.Document_Negative{Negative: n}}, nil
	}
	return nil, fmt.Errorf("%.80s is no id and no text; an id is a string or an integer", raw)
}

func textDocument(text string) (*likenessv1.Document, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("its text is empty")
	}
	return &likenessv1.Document{Document: &likenessv1.Document_Text{Text: text}}, nil
}

// textOf returns the text of a JSON string. It copies a string of plain ASCII, as most ids are,
// without a parser.
func textOf(raw json.RawMessage) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	inside := raw[1 : len(raw)-1]
	if !slices.ContainsFunc(inside, func(b byte) bool { return b == '\\' || b >= utf8.RuneSelf }) {
		return string(inside), true
	}
	return text, json.Unmarshal(raw, &text) == nil
}

// order ranks the documents that have a score, the best first, and keeps the first topN.
func order(scores []float32, topN *int) []reranked {
	ranked := make([]reranked, 0, len(scores))
	for i, score := range scores {
		if f := float64(score); !math.IsNaN(f) && !math.IsInf(f, 0) {
			ranked = append(ranked, reranked{i, score})
		}
	}
	slices.SortFunc(ranked, func(a, b reranked) int { return cmp.Or(cmp.Compare(b.score, a.score), a.index-b.index) })
	if topN != nil {
		ranked = ranked[:min(*topN, len(ranked))]
	}
	return ranked
}

// cohereAnswer is the answer of Cohere's rerank, in a version of its API.
func cohereAnswer(r *rerankRequest, ranked []reranked, id, version string) []byte {
	quoted, _ := json.Marshal(id)
	out := append([]byte(`{"id":`), quoted...)
	out = append(out, `,"results":`...)
	out = appendResults(out, ranked, "relevance_score", func(out []byte, index int) []byte {
		switch document := r.Documents[index]; {
		case !r.ReturnDocuments:
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
		if !r.ReturnText {
			return out
		}
		return append(append(out, `,"text":`...), r.Documents[index]...)
	})
}

// appendResults appends the results as JSON. document appends what a form says of a document, which is
// JSON of the request.
func appendResults(out []byte, ranked []reranked, score string, document func(out []byte, index int) []byte) []byte {
	out = append(out, '[')
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

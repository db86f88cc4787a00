package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// request is a REST request for searches.
type request struct {
	collection string
	query      bool // the query interface, not the search one
	batch      bool
}

// readPath reads POST /collections/{name}/points/search, query, and /batch of each.
func readPath(r *http.Request) (q request, ok bool) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	if r.Method != http.MethodPost || len(parts) != 5 && len(parts) != 6 || parts[0] != "" || parts[1] != "collections" || parts[3] != "points" {
		return q, false
	}
	name, err := url.PathUnescape(parts[2])
	q = request{name, parts[4] == "query", len(parts) == 6}
	if err != nil || !q.query && parts[4] != "search" || q.batch && parts[5] != "batch" {
		return q, false
	}
	return q, true
}

// InterceptREST answers the searches that the routes cover, and has writes
// followed; it is a rest.Interceptor.
func (r *Router) InterceptREST(in *http.Request, body []byte, forward func([]byte) rest.Answer) (reply rest.Reply) {
	if ended := r.followREST(in, body); ended != nil {
		return rest.Reply{Ended: func(answered bool) { ended(answered, nil) }}
	}
	q, ok := readPath(in)
	if !ok || len(body) == 0 || !r.Covers(q.collection) {
		return rest.Reply{}
	}
	defer func() {
		if p := recover(); p != nil {
			reply = rest.Reply{Status: r.NotRescored(r.Panicked(in.Context(), q.collection, p)), Passed: r.Passed}
		}
	}()
	reply, err := r.answerREST(in, q, body, forward)
	if err == nil {
		return reply
	}
	reply = rest.Reply{Status: r.NotRescored(err), Passed: r.Passed}
	if d := (routing.Degraded{}); errors.As(err, &d) && d.Closed {
		text := `{"status":{"error":"likeness: no rescored answer: ` + d.Reason + `"},"time":0.0}`
		reply.Answer = &rest.Answer{
			Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(text),
		}
	}
	return reply
}

func (r *Router) answerREST(in *http.Request, q request, body []byte, forward func([]byte) rest.Answer) (rest.Reply, error) {
	began := time.Now()
	ctx, cancel, err := contextOf(in)
	if err != nil {
		return rest.Reply{}, err
	}
	defer cancel()
	ctx, release := r.Bound(ctx, q.collection)
	defer release()
	if in.Header.Get("Content-Encoding") != "" {
		return rest.Reply{}, routing.Pass("encoding")
	}
	whole, bodies, err := q.split(body)
	if err != nil {
		return rest.Reply{}, err
	}
	searches := make([]routing.Search, len(bodies))
	for i, b := range bodies {
		if searches[i], err = q.read(b); err != nil {
			return rest.Reply{}, err
		}
	}
	all, err := r.RankAll(ctx, q.collection, searches)
	if err != nil {
		return rest.Reply{}, err
	}
	answer := forward(q.narrow(whole, bodies, all))
	if answer.Status != http.StatusOK {
		return rest.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	if answer.Body, err = q.rebuild(answer.Body, all, time.Since(began)); err != nil {
		return rest.Reply{}, routing.Degraded{Reason: "confirm"}
	}
	return rest.Reply{Answer: &answer, Status: r.Rescored(all)}, nil
}

// contextOf is a request's context with its credentials for calls to the
// database over gRPC, bounded by its timeout.
func contextOf(in *http.Request) (context.Context, context.CancelFunc, error) {
	md := metadata.MD{}
	for _, name := range []string{"api-key", "authorization"} {
		if values := in.Header.Values(name); len(values) > 0 {
			md[name] = values
		}
	}
	var seconds uint64
	args, err := url.ParseQuery(in.URL.RawQuery)
	if err != nil {
		return nil, nil, routing.Pass("query-argument")
	}
	for name, values := range args {
		switch {
		case name == "consistency":
			return nil, nil, routing.Pass("consistency")
		case name != "timeout" || len(values) != 1:
			return nil, nil, routing.Pass("query-argument")
		}
		if seconds, err = strconv.ParseUint(values[0], 10, 32); err != nil || seconds == 0 {
			return nil, nil, routing.Pass("query-argument")
		}
	}
	ctx, cancel := withSeconds(metadata.NewOutgoingContext(in.Context(), md), seconds)
	return ctx, cancel, nil
}

// split returns the body, and the searches in it.
func (q request) split(body []byte) (whole object, searches []object, err error) {
	if whole, err = readObject(body); err != nil {
		return nil, nil, routing.Pass("malformed")
	}
	if !q.batch {
		return whole, []object{whole}, nil
	}
	if whole.unknown("searches") {
		return nil, nil, routing.Pass("unknown-field")
	}
	elements, ok := readArray(whole.get("searches"))
	if !ok {
		return nil, nil, routing.Pass("malformed")
	}
	for _, e := range elements {
		one, err := readObject(e)
		if err != nil {
			return nil, nil, routing.Pass("malformed")
		}
		searches = append(searches, one)
	}
	return whole, searches, nil
}

var (
	commonKeys = []string{"filter", "params", "limit", "offset", "with_payload", "with_vector", "score_threshold", "shard_key"}
	searchKeys = append([]string{"vector"}, commonKeys...)
	queryKeys  = append([]string{"query", "using", "prefetch", "lookup_from"}, commonKeys...)
)

// read reads one search, or why it passes.
func (q request) read(o object) (s routing.Search, err error) {
	keys := searchKeys
	if q.query {
		keys = queryKeys
	}
	if o.unknown(keys...) {
		return s, routing.Pass("unknown-field")
	}
	for key, reason := range map[string]string{
		"score_threshold": "score-threshold", "shard_key": "shard-key", "prefetch": "prefetch", "lookup_from": "lookup",
	} {
		if o.has(key) {
			return s, routing.Pass(reason)
		}
	}
	if err := knownSelectors(o); err != nil {
		return s, err
	}
	if s.Exact, err = readParams(o); err != nil {
		return s, err
	}
	if s.Vector, s.Query, err = q.readQuery(o); err != nil {
		return s, err
	}
	if o.has("filter") {
		s.Filter = string(o.get("filter"))
	}
	var absent uint64
	if q.query {
		absent = 10
	}
	var limit, offset bool
	s.Limit, limit = o.readCount("limit", absent)
	s.Offset, offset = o.readCount("offset", 0)
	if !limit || !offset {
		return s, routing.Pass("limit")
	}
	return s, nil
}

// readQuery reads the vector, and the name of the field that it is compared with.
func (q request) readQuery(o object) (name string, v []float32, err error) {
	raw := o.get("vector")
	if q.query {
		raw = o.get("query")
		if o.has("using") && json.Unmarshal(o.get("using"), &name) != nil {
			return "", nil, routing.Pass("vector")
		}
	}
	if nested, err := readObject(raw); err == nil {
		value, label := "vector", "name"
		if q.query {
			value, label = "nearest", "nearest"
		}
		if nested.unknown(value, label) {
			return "", nil, routing.Pass("not-nearest")
		}
		if raw = nested.get(value); !q.query && json.Unmarshal(nested.get(label), &name) != nil {
			return "", nil, routing.Pass("vector")
		}
	}
	v, ok := readVector(raw)
	if !ok {
		return "", nil, routing.Pass("not-nearest")
	}
	return name, v, nil
}

// readParams reads whether an exact search is asked for. The other parameters
// tune the database's own search, in whose stead the route's rules stand.
func readParams(o object) (exact bool, err error) {
	if !o.has("params") {
		return false, nil
	}
	p, err := readObject(o.get("params"))
	if err != nil || p.unknown("hnsw_ef", "exact", "quantization", "indexed_only", "acorn") {
		return false, routing.Pass("unknown-field")
	}
	for key, known := range map[string][]string{"quantization": {"ignore", "rescore", "oversampling"}, "acorn": {"enable", "max_selectivity"}} {
		if !p.has(key) {
			continue
		}
		if inner, err := readObject(p.get(key)); err != nil || inner.unknown(known...) {
			return false, routing.Pass("unknown-field")
		}
	}
	if p.has("indexed_only") && string(p.get("indexed_only")) != "false" {
		return false, routing.Pass("indexed-only")
	}
	return p.has("exact") && string(p.get("exact")) != "false", nil
}

// knownSelectors: an object of with_payload or with_vector has known keys only.
func knownSelectors(o object) error {
	for _, key := range []string{"with_payload", "with_vector"} {
		if raw := o.get(key); len(raw) > 0 && raw[0] == '{' {
			if selector, err := readObject(raw); err != nil || selector.unknown("include", "exclude") {
				return routing.Pass("unknown-field")
			}
		}
	}
	return nil
}

// narrow makes the body one for the hits alone: same payload, vectors, filter
// and caller, so that the database says what this caller may see of them.
func (q request) narrow(whole object, searches []object, all []routing.Ranked) []byte {
	narrowed := make([]json.RawMessage, len(searches))
	for i, o := range searches {
		ids := make([]json.RawMessage, len(all[i].Hits))
		for j, h := range all[i].Hits {
			ids[j] = idText(h.ID)
		}
		must := []json.RawMessage{object{{"has_id", writeArray(ids)}}.bytes()}
		if o.has("filter") {
			must = append(must, o.get("filter"))
		}
		o = append(object(nil), o...).without("offset").with("limit", strconv.AppendInt(nil, int64(len(ids)), 10)).
			with("filter", object{{"must", writeArray(must)}}.bytes()).with("params", json.RawMessage(`{"exact":true}`))
		narrowed[i] = o.bytes()
	}
	if !q.batch {
		return narrowed[0]
	}
	return append(object(nil), whole...).with("searches", writeArray(narrowed)).bytes()
}

var errUnexpected = errors.New("an answer of another form")

// rebuild gives the confirmed points the order and the scores of the hits.
func (q request) rebuild(body []byte, all []routing.Ranked, took time.Duration) ([]byte, error) {
	o, err := readObject(body)
	if err != nil {
		return nil, err
	}
	lists := []json.RawMessage{o.get("result")}
	if q.batch {
		var ok bool
		if lists, ok = readArray(o.get("result")); !ok {
			return nil, errUnexpected
		}
	}
	if len(lists) != len(all) {
		return nil, errUnexpected
	}
	for i := range lists {
		if lists[i], err = q.reorder(lists[i], all[i]); err != nil {
			return nil, err
		}
	}
	result := lists[0]
	if q.batch {
		result = writeArray(lists)
	}
	return o.with("result", result).with("time", strconv.AppendFloat(nil, took.Seconds(), 'f', -1, 64)).bytes(), nil
}

func (q request) reorder(list json.RawMessage, r routing.Ranked) (json.RawMessage, error) {
	if !q.query {
		return reorderJSON(list, r)
	}
	o, err := readObject(list)
	if err != nil {
		return nil, err
	}
	points, err := reorderJSON(o.get("points"), r)
	return o.with("points", points).bytes(), err
}

func reorderJSON(list json.RawMessage, r routing.Ranked) (json.RawMessage, error) {
	points, ok := readArray(list)
	if !ok || len(points) != len(r.Hits) {
		return nil, errUnexpected
	}
	found := make(map[string]object, len(points))
	for _, p := range points {
		o, err := readObject(p)
		if err != nil {
			return nil, err
		}
		found[string(o.get("id"))] = o
	}
	for i, h := range r.Hits {
		o := found[string(idText(h.ID))]
		if o == nil {
			return nil, errUnexpected
		}
		points[i] = o.with("score", scoreText(h.Score)).bytes()
	}
	return writeArray(points), nil
}

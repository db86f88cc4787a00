package qdrant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/internal/traceparent"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// request is a kind of REST request for searches.
type request struct {
	collection string
	query      bool // uses the query API, not the search API
	batch      bool
	groups     bool
	passes     routing.Pass // why requests of this kind are never answered
}

// searches maps the path after points/ to the kind of search request.
var searches = map[string]request{
	"search":           {},
	"search/batch":     {batch: true},
	"search/groups":    {groups: true},
	"query":            {query: true},
	"query/batch":      {query: true, batch: true},
	"query/groups":     {query: true, groups: true},
	"recommend":        {passes: passesOther},
	"recommend/batch":  {passes: passesOther},
	"recommend/groups": {passes: passesGroups},
	"discover":         {passes: passesOther},
	"discover/batch":   {passes: passesOther},
}

// readPath recognises POST /collections/{name}/points/ followed by a path of searches.
func readPath(r *http.Request) (q request, ok bool) {
	parts := pathParts(r)
	if r.Method != http.MethodPost || len(parts) < 4 || parts[0] != "collections" || parts[2] != "points" {
		return q, false
	}
	if q, ok = searches[strings.Join(parts[3:], "/")]; !ok {
		return q, false
	}
	q.collection = parts[1]
	return q, true
}

// WantsREST reports whether InterceptREST may answer or follow requests of that method: any but
// GET, HEAD and OPTIONS.
func (*Router) WantsREST(method, _ string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// InterceptREST answers the searches that the routes cover, and tells the follower of writes. It is
// a rest.Interceptor.
func (r *Router) InterceptREST(in *http.Request, body []byte, forward rest.Forward) rest.Reply {
	if reply, ok := r.followREST(in, body); ok {
		return reply
	}
	q, ok := readPath(in)
	if !ok {
		return rest.Reply{}
	}
	ctx := callerOf(in)
	target, ok := r.Names.Target(ctx, q.collection)
	if !ok {
		return rest.Reply{}
	}
	if len(body) == 0 { // no body, or a streamed one, which cannot be sent twice
		return rest.Reply{Status: r.Passes(ctx, target, cmp.Or(q.passes, "malformed"))}
	}
	ctx, _ = telemetry.WithRequestID(traceparent.FromHeader(ctx, in.Header), in.Header.Get(telemetry.RequestIDHeader))
	call := &restCall{request: q, target: target, inTurn: r.InTurn, in: in, body: body, forward: forward, began: time.Now(),
		routed: func(field string) bool { return r.Names.CoversField(target.Routed, field) }}
	o := routing.Answer(ctx, r.Router, target, call)
	if o.Refused != "" { // the route permits no other answer, but the database may refuse the caller
		if own := call.Original(ctx, false); rest.Denied(own.Status) {
			return rest.Reply{Answer: &own}
		}
	}
	return replyOf(o, r.Passed)
}

// replyOf returns the reply to a search that was not refused by the database.
func replyOf(o routing.Outcome[rest.Answer], passed func(took time.Duration)) rest.Reply {
	reply := rest.Reply{Status: o.Status, Passed: passed}
	switch {
	case o.Answered && rest.Denied(o.Answer.Status): // a refused caller must not learn about the route
		return rest.Reply{Answer: &o.Answer}
	case o.Answered:
		reply.Answer = &o.Answer
	case o.Refused != "":
		reply.Answer = unavailable(o.Refused)
	}
	return reply
}

// unavailable returns an answer with status 503 in the form of Qdrant's errors.
func unavailable(problem string) *rest.Answer {
	text := append(append([]byte(`{"status":{"error":`), quoted(problem)...), `},"time":0.0}`...)
	return &rest.Answer{Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
}

// callerOf returns the context of a request, with the request's credentials for gRPC calls to the
// database.
func callerOf(in *http.Request) context.Context {
	md := metadata.MD{}
	for _, name := range routing.CredentialHeaders() {
		if values := in.Header.Values(name); len(values) > 0 {
			md[name] = values
		}
	}
	if user := in.Header.Get(routing.UserHeader); user != "" {
		md[routing.UserHeader] = []string{user}
	}
	return metadata.NewOutgoingContext(in.Context(), md)
}

// restCall is a client's REST request that is being answered.
type restCall struct {
	request
	target  routing.Target
	inTurn  func(ctx context.Context, bytes int, parse func() error) error
	in      *http.Request
	body    []byte
	forward rest.Forward
	began   time.Time

	whole    object      // the parsed body
	searches []object    // the searches in whole
	located  locatedJSON // set by Locate
	routed   func(field string) bool
}

var _ routing.Exchange[rest.Answer] = (*restCall)(nil)

// Read implements routing.Exchange. A long body waits for its turn, until the client leaves.
func (c *restCall) Read(ctx context.Context) (asked routing.Asked, err error) {
	err = c.inTurn(ctx, len(c.body), func() (err error) {
		asked, err = c.readNow(ctx)
		return err
	})
	return asked, err
}

// readNow reads the call in time that is linear in its length. It stops when ctx ends.
func (c *restCall) readNow(ctx context.Context) (asked routing.Asked, err error) {
	if c.passes != "" {
		return asked, c.passes
	}
	if c.groups {
		return asked, routing.Pass(passesGroups)
	}
	consistent, err := c.readArguments(&asked)
	if err != nil {
		return asked, err
	}
	if c.in.Header.Get("Content-Encoding") != "" {
		return asked, routing.Pass("encoding")
	}
	if c.whole, c.searches, err = c.split(c.body); err != nil {
		return asked, err
	}
	for _, o := range c.searches {
		if err := ctx.Err(); err != nil {
			return asked, err
		}
		s, err := c.read(ctx, o)
		if err != nil {
			return asked, err
		}
		if consistent {
			s.NeedConsistency()
		}
		if o.has(passesPrefetch) {
			s.Find = func(ctx context.Context, rows int) ([]rerank.ID, error) { return c.find(ctx, o, rows) }
		}
		asked.Searches = append(asked.Searches, s)
	}
	return asked, nil
}

// readArguments reads the query arguments. consistent reports whether they ask for a read
// consistency.
func (c *restCall) readArguments(asked *routing.Asked) (consistent bool, err error) {
	args, err := url.ParseQuery(c.in.URL.RawQuery)
	if err != nil {
		return false, routing.Pass("query-argument")
	}
	for name, values := range args {
		switch {
		case name == "consistency" && len(values) == 1:
			consistent = true
		case name == "timeout" && len(values) == 1:
			n, err := strconv.ParseUint(values[0], 10, 32)
			if err != nil || n == 0 {
				return false, routing.Pass("query-argument")
			}
			asked.Timeout = seconds(n)
		default:
			return false, routing.Pass("query-argument")
		}
	}
	return consistent, nil
}

// Original implements routing.Exchange.
func (c *restCall) Original(ctx context.Context, plain bool) rest.Answer {
	if plain {
		return c.forward(ctx, "", c.body)
	}
	return c.forward(ctx, "", nil)
}

// Access implements routing.Exchange.
func (c *restCall) Access(a rest.Answer) routing.Access {
	switch {
	case rest.Denied(a.Status):
		return routing.AccessDenied
	case a.Status != http.StatusOK || a.Cut:
		return routing.AccessUnknown
	}
	return routing.AccessGranted
}

// Confirm implements routing.Exchange.
func (c *restCall) Confirm(ctx context.Context, all []routing.Ranked) (rest.Answer, error) {
	if routing.AllShown(all) {
		return c.makeAnswer(ctx, all)
	}
	readable := c.readable(ctx)
	answer := c.forward(ctx, c.path(), c.narrow(c.whole, c.searches, all))
	if !readable() || answer.Status != http.StatusOK || answer.Cut {
		return rest.Answer{}, errConfirm
	}
	var err error
	if answer.Body, err = c.rebuild(ctx, answer.Body, all, time.Since(c.began)); err != nil && !errors.Is(err, routing.ErrShort) && !errors.Is(err, routing.ErrChanged) {
		err = errConfirm
	}
	return answer, err
}

// path returns the request's path with the collection's own name, or "" if the client used that
// name.
func (c *restCall) path() string {
	if !c.target.Aliased() {
		return ""
	}
	parts := strings.SplitN(c.in.URL.EscapedPath(), "/", 5)
	return "/collections/" + url.PathEscape(c.target.Own) + "/points/" + parts[4]
}

// readable starts to read the collection by the client's name for it. The returned function waits
// for the result; see call.readable.
func (c *restCall) readable(ctx context.Context) (wait func() bool) {
	if !c.target.Aliased() {
		return func() bool { return true }
	}
	read := make(chan bool, 1)
	go func() {
		parts := strings.SplitN(c.in.URL.EscapedPath(), "/", 5)
		answer := c.forward(ctx, strings.Join(parts[:4], "/"), []byte(`{"ids":[],"with_payload":false}`))
		read <- answer.Status == http.StatusOK && !answer.Cut
	}()
	return sync.OnceValue(func() bool { return <-read })
}

// IDs implements routing.Exchange.
func (c *restCall) IDs(a rest.Answer) (lists [][]rerank.ID, ok bool) {
	if a.Status != http.StatusOK || a.Cut {
		return nil, false
	}
	if a.Header.Get("Content-Encoding") != "" {
		return nil, true // a whole answer, though not readable
	}
	found, err := c.lists(a.Body)
	if err != nil {
		return nil, false
	}
	for _, list := range found {
		ids := []rerank.ID{}
		err := eachObject(list, func(point object) error {
			ids = append(ids, rerank.TextID(string(point.get("id")))) // unparsed, because ids are only compared with each other
			return nil
		})
		if err != nil {
			return nil, false
		}
		lists = append(lists, ids)
	}
	return lists, true
}

// split returns the parsed body and the searches in it.
func (q request) split(body []byte) (whole object, searches []object, err error) {
	switch whole, err = readDocument(body); {
	case errors.Is(err, errKeys):
		return nil, nil, routing.Pass("unknown-field")
	case err != nil:
		return nil, nil, routing.Pass("malformed")
	}
	if !q.batch {
		return whole, []object{whole}, nil
	}
	if whole.unknown("searches") {
		return nil, nil, routing.Pass("unknown-field")
	}
	searches, err = readObjects(whole.get("searches"), routing.MaxBatch)
	switch {
	case errors.Is(err, errElements):
		return nil, nil, routing.Pass("batch")
	case errors.Is(err, errKeys):
		return nil, nil, routing.Pass("unknown-field")
	case err != nil:
		return nil, nil, routing.Pass("malformed")
	}
	return whole, searches, nil
}

var (
	commonKeys = []string{"filter", "params", "limit", "offset", "with_payload", "with_vector", "score_threshold", "shard_key"}
	searchKeys = append([]string{"vector"}, commonKeys...)
	queryKeys  = append([]string{"query", "using", "prefetch", "lookup_from"}, commonKeys...)
)

// read returns a search, or the Pass with the reason why it is not answered.
func (q request) read(ctx context.Context, o object) (s routing.Search, err error) {
	keys := searchKeys
	if q.query {
		keys = queryKeys
	}
	if o.unknown(keys...) {
		return s, routing.Pass("unknown-field")
	}
	for key, reason := range map[string]string{"shard_key": "shard-key", "lookup_from": "lookup"} {
		if o.has(key) {
			return s, routing.Pass(reason)
		}
	}
	if o.has(passesPrefetch) {
		s.Needs = append(s.Needs, passesPrefetch)
		if err := checkPrefetch(ctx, o.get(passesPrefetch), maxPrefetchLevels); err != nil {
			return s, err
		}
	}
	if why := checkTypes(o); why != "" {
		return s, why
	}
	if err := readParams(o, &s); err != nil {
		return s, err
	}
	if o.has("score_threshold") {
		f, err := strconv.ParseFloat(string(o.get("score_threshold")), 32)
		if err != nil {
			return s, routing.Pass("score-threshold")
		}
		threshold := float32(f)
		s.Threshold = &threshold
	}
	if err := q.readQuery(o, &s); err != nil {
		return s, err
	}
	if o.has("filter") {
		s.Filter = string(o.get("filter"))
	}
	s.IDsOnly = o.wantsIDsOnly()
	var absent uint64
	if q.query {
		absent = 10
	}
	var limit, offset bool
	s.Limit, limit = o.readCount("limit", absent)
	s.Offset, offset = o.readCount("offset", 0)
	if !limit || !offset || s.Limit == 0 { // Qdrant refuses 0
		return s, routing.Pass("limit")
	}
	return s, nil
}

// readQuery reads the query vector, or its vectors, and the vector field that it names.
func (q request) readQuery(o object, s *routing.Search) error {
	raw := o.get("vector")
	if q.query {
		o = fused(o)
		raw = o.get("query")
		if o.has("using") && json.Unmarshal(o.get("using"), &s.Vector) != nil {
			return routing.Pass("vector")
		}
	}
	if nested, err := readObject(raw); err == nil {
		value, label := "vector", "name"
		if q.query {
			value, label = "nearest", "nearest"
		}
		if nested.unknown(value, label) {
			return routing.Pass("not-nearest")
		}
		if raw = nested.get(value); !q.query && (!isString(nested.get(label)) || json.Unmarshal(nested.get(label), &s.Vector) != nil) {
			return routing.Pass("vector")
		}
	}
	v, ok := readVector(raw)
	switch {
	case ok:
		s.Query = v
		return nil
	case o.has(passesPrefetch):
		return routing.Pass(passesPrefetch)
	}
	if s.Vectors = readVectors(raw); !q.query || s.Vectors.Rows == 0 {
		return routing.Pass("not-nearest")
	}
	return nil
}

// readParams reads the parameters that also bind the route. The others tune the database's own
// search, which the route's rules replace.
func readParams(o object, s *routing.Search) error {
	if !o.has("params") {
		return nil
	}
	p, err := readObject(o.get("params"))
	if err != nil {
		return routing.Pass("malformed")
	}
	if p.has("indexed_only") && string(p.get("indexed_only")) != "false" {
		s.Needs = append(s.Needs, "indexed-only")
	}
	s.Exact = p.has("exact") && string(p.get("exact")) != "false"
	return nil
}

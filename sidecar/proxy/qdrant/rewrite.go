package qdrant

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
	"github.com/likenessdb/likeness/sidecar/search"
)

// layout holds the numbers of the fields of a request that rewriting reads or replaces. 0 means
// that the request has no such field. All other fields are copied unread.
type layout struct {
	// searches is the repeated field of a batch whose elements are single requests.
	searches protowire.Number
	// vector is the path to the numbers of the query vector.
	vector []protowire.Number
	// name is the vector field that is searched.
	name, threshold, limit, offset, params, timeout protowire.Number
	// defaultLimit is the limit of a request that names none.
	defaultLimit uint64
	// narrows lists fields that exclude rows.
	narrows []protowire.Number
	// query and prefetch are the fields of a request that can have several stages.
	query, prefetch protowire.Number
	// others lists fields of searches that are not by a vector in the request.
	others []protowire.Number
	// last is the last field that this version knows: a later one may mean that the rows are found or ordered otherwise.
	last protowire.Number
	// points is the path to the rows of an answer.
	points []protowire.Number
	// batch reports that the first field of points is repeated, with one value per search.
	batch bool
	// groups reports that the rows of an answer are hits within groups.
	groups bool
}

// The numbers of the fields that layouts name.
var (
	searchLayout = layout{
		vector: []protowire.Number{2}, limit: 4, params: 7, threshold: 8, offset: 9, name: 10, timeout: 13,
		narrows: []protowire.Number{3, 14}, others: []protowire.Number{15}, last: 15, points: []protowire.Number{1},
	}
	queryLayout = layout{
		vector: []protowire.Number{3, nearestField, denseField, dataField}, name: 4, params: 6, threshold: 7, limit: 8, offset: 9, timeout: 15,
		defaultLimit: 10, narrows: []protowire.Number{5, 13}, query: 3, prefetch: 2, others: []protowire.Number{14}, last: 15, points: []protowire.Number{1},
	}
	searchGroupsLayout = layout{
		vector: []protowire.Number{2}, limit: 4, params: 6, threshold: 7, name: 8, timeout: 14,
		narrows: []protowire.Number{3, 10, 15}, others: []protowire.Number{16}, last: 16, points: []protowire.Number{1, 1, 2}, groups: true,
	}
	queryGroupsLayout = layout{
		vector: []protowire.Number{3, nearestField, denseField, dataField}, name: 4, params: 6, threshold: 7, limit: 11, timeout: 16,
		defaultLimit: 10, narrows: []protowire.Number{5, 13, 17}, query: 3, prefetch: 2, others: []protowire.Number{10}, last: 17, points: []protowire.Number{1, 1, 2}, groups: true,
	}
	prefetchLayout = layout{
		vector: []protowire.Number{2, nearestField, denseField, dataField}, name: 3, params: 5, threshold: 6, limit: 7,
		defaultLimit: 10, narrows: []protowire.Number{4}, query: 2, prefetch: 1, others: []protowire.Number{8}, last: 8,
	}
)

const (
	nearestField = 1 // of a Query
	denseField   = 2 // of a VectorInput
	dataField    = 1 // of a DenseVector

	efField           = 1 // of SearchParams
	exactField        = 2
	quantizationField = 3
	indexedOnlyField  = 4
	ignoreField       = 1 // of QuantizationSearchParams

	pointIDField    = 1 // of a ScoredPoint
	pointScoreField = 3
)

// inBatch returns the layout of a batch whose elements have layout l.
func (l layout) inBatch() layout {
	l.searches, l.points, l.batch = 2, append([]protowire.Number{1}, l.points...), true
	return l
}

// layouts returns the layouts of the requests that can be rewritten, by method.
func layouts() map[string]layout {
	return map[string]layout{
		qdrant.Points_Search_FullMethodName:       searchLayout,
		qdrant.Points_SearchBatch_FullMethodName:  searchLayout.inBatch(),
		qdrant.Points_SearchGroups_FullMethodName: searchGroupsLayout,
		qdrant.Points_Query_FullMethodName:        queryLayout,
		qdrant.Points_QueryBatch_FullMethodName:   queryLayout.inBatch(),
		qdrant.Points_QueryGroups_FullMethodName:  queryGroupsLayout,
	}
}

// errOther says that a search is not a plain nearest-neighbour search by a dense vector.
var errOther = errors.New("not a plain search by a dense vector")

// located is the part of a request that rewriting needs.
type located struct {
	searches []routing.Search
	timeout  uint64
	// queries holds the stages of each query of the request. nil means that each query is one
	// search.
	queries []stage
}

// locate finds the searches in a request, and skips everything else. In a query with prefetches it
// finds the searches of routed fields.
func locate(request []byte, l layout, routed func(field string) bool) (found located, err error) {
	if l.searches == 0 {
		err := found.readQuery(request, l, routed)
		return found, err
	}
	const collectionField, timeoutField = 1, 4
	collection := ""
	err = wire.Walk(request, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others cross unread
		case collectionField:
			text, err := f.Message()
			collection = string(text)
			return err
		case timeoutField:
			found.timeout, err = f.Uint()
		case l.searches:
			element, err := f.Message()
			if err != nil {
				return err
			}
			timeout := found.timeout // a batch has its own timeout
			err = found.readQuery(element, l, routed)
			found.timeout = timeout
			return err
		}
		return err
	})
	if err == nil {
		err = wire.Walk(request, func(f wire.Field) error { return checkCollection(f, l, collection) })
	}
	return found, err
}

// readQuery reads a query, which is one search or has several stages.
func (found *located) readQuery(message []byte, l layout, routed func(field string) bool) error {
	s, timeout, err := locateOne(message, l)
	if err != nil && l.prefetch != 0 && hasField(message, l.prefetch) {
		return found.readStages(message, l, routed)
	}
	found.timeout = timeout
	if err != nil {
		return err
	}
	if found.queries != nil {
		found.queries = append(found.queries, stage{search: len(found.searches)})
	}
	return found.add(s)
}

// add appends a search. It returns errOther for more than routing.MaxRewrites searches.
func (found *located) add(s routing.Search) error {
	if len(found.searches) == routing.MaxRewrites {
		return errOther
	}
	found.searches = append(found.searches, s)
	return nil
}

func hasField(message []byte, number protowire.Number) (has bool) {
	_ = wire.Walk(message, func(f wire.Field) error {
		has = has || f.Number == number
		return nil
	})
	return has
}

// checkCollection returns errOther for a search of a batch that names another collection
// than the batch.
func checkCollection(f wire.Field, l layout, collection string) error {
	if f.Number != l.searches {
		return nil
	}
	if own, ok := routing.Text(f.Value, 1); ok && own != "" && own != collection {
		return errOther
	}
	return nil
}

// locateOne reads one search.
func locateOne(message []byte, l layout) (s routing.Search, timeout uint64, err error) {
	s.Limit = l.defaultLimit
	if s.Query, err = readVectorAt(message, l.vector); err != nil {
		return s, 0, err
	}
	var params searchParams
	err = wire.Walk(message, func(f wire.Field) (err error) {
		if f.Number == l.prefetch || f.Number > l.last || slices.Contains(l.others, f.Number) {
			return errOther
		}
		s.Narrowed = s.Narrowed || slices.Contains(l.narrows, f.Number)
		switch f.Number { //nolint:exhaustive // the others cross unread
		case l.name:
			var name []byte
			name, err = f.Message()
			s.Vector = string(name)
		case l.threshold:
			var threshold float32
			threshold, err = f.Float()
			s.Threshold = &threshold
		case l.limit:
			s.Limit, err = f.Uint()
		case l.offset:
			s.Offset, err = f.Uint()
		case l.timeout:
			timeout, err = f.Uint()
		case l.params:
			err = params.read(f)
		}
		return err
	})
	s.Narrowed = s.Narrowed || s.Threshold != nil || s.Offset > 0
	params.apply(&s)
	return s, timeout, err
}

// searchParams holds the parameters of a search that affect what its answer proves.
type searchParams struct {
	ef                 bool // the search sets how far the index looks
	exact              bool // the search compares every row
	hasExact           bool // the search says whether it compares every row
	indexedOnly        bool // rows that are not indexed yet are left out
	ignoreQuantization bool
	hasQuantization    bool // the search says how quantized vectors are used
}

// apply copies the parameters into a search.
func (p searchParams) apply(s *routing.Search) {
	s.Exact, s.Unquantized = p.exact && !p.indexedOnly, p.ignoreQuantization
	s.HasEF, s.HasExact, s.HasQuantization = p.ef || p.exact, p.hasExact || p.indexedOnly, p.hasQuantization
	s.Narrowed = s.Narrowed || p.indexedOnly
}

// read reads the parameters in a field; others keep their values.
func (p *searchParams) read(f wire.Field) error {
	params, err := f.Message()
	if err != nil {
		return err
	}
	return wire.Walk(params, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others only tune the search
		case efField:
			p.ef = true
		case exactField:
			p.hasExact = true
			p.exact, err = readBool(f)
		case indexedOnlyField:
			p.indexedOnly, err = readBool(f)
		case quantizationField:
			p.hasQuantization = true
			var quantization []byte
			if quantization, err = f.Message(); err != nil {
				return err
			}
			err = wire.Walk(quantization, func(f wire.Field) (err error) {
				if f.Number == ignoreField {
					p.ignoreQuantization, err = readBool(f)
				}
				return err
			})
		}
		return err
	})
}

func readBool(f wire.Field) (bool, error) {
	n, err := f.Uint()
	return n != 0, err
}

// readVectorAt reads the vector at a path. The messages on the path are variants of a oneof and
// must have no other field; for another variant it returns errOther.
func readVectorAt(message []byte, path []protowire.Number) (vector []float32, err error) {
	inner, found := []byte(nil), false
	err = wire.Walk(message, func(f wire.Field) (err error) {
		switch {
		case f.Number != path[0]:
			return nil
		case len(path) == 1:
			vector, err = f.AppendFloats(vector)
			return err
		case found:
			return wire.ErrRepeated
		}
		found = true
		inner, err = f.Message()
		return err
	})
	switch {
	case err != nil || len(path) == 1 && len(vector) > 0:
		return vector, err
	case !found:
		return nil, errOther
	}
	if len(path) > 2 { // inner is a Query or a VectorInput, which have variants
		if err := onlyField(inner, path[1]); err != nil {
			return nil, err
		}
	}
	return readVectorAt(inner, path[1:])
}

// onlyField returns errOther for a message that has a field other than the given one.
func onlyField(message []byte, number protowire.Number) error {
	return wire.Walk(message, func(f wire.Field) error {
		if f.Number != number {
			return errOther
		}
		return nil
	})
}

// rewriteRequest returns a request with the vector and the threshold of each search replaced, and its
// parameters added.
// queries holds the stages of the request's queries.
func rewriteRequest(request []byte, l layout, queries []stage, all []routing.Replacement) ([]byte, error) {
	out := make([]byte, 0, len(request)+16*len(all)) // a replaced vector usually keeps its length
	if l.searches == 0 {
		return appendQuery(out, request, l, queries, 0, all)
	}
	next, count := 0, len(all)
	if queries != nil {
		count = len(queries)
	}
	out, err := wire.Edit(out, request, func(out []byte, f wire.Field) ([]byte, error) {
		if f.Number != l.searches {
			return append(out, f.Raw...), nil
		}
		if next == count {
			return out, fmt.Errorf("%w: more than %d searches", wire.ErrMalformed, count)
		}
		next++
		return wire.AppendMessage(out, f.Number, len(f.Value), func(out []byte) ([]byte, error) {
			return appendQuery(out, f.Value, l, queries, next-1, all)
		})
	})
	if err == nil && next != count {
		err = fmt.Errorf("%w: %d searches in place of %d", wire.ErrMalformed, next, count)
	}
	return out, err
}

// appendQuery appends query i of a request with its searches replaced.
func appendQuery(out, message []byte, l layout, queries []stage, i int, all []routing.Replacement) ([]byte, error) {
	if queries == nil {
		return appendSearch(out, message, l, all[i])
	}
	return queries[i].append(out, message, l, all)
}

// appendSearch appends one search with its vector and threshold replaced, and parameters added.
func appendSearch(out, message []byte, l layout, r routing.Replacement) ([]byte, error) {
	if r.Threshold == nil && !r.SetsParams() {
		return wire.AppendReplaced(out, message, l.vector, r.Vector)
	}
	mended, err := wire.ReplaceVector(message, l.vector, r.Vector)
	if err != nil {
		return out, err
	}
	added := addedParams(r)
	out, err = wire.Edit(out, mended, func(out []byte, f wire.Field) ([]byte, error) {
		switch {
		case f.Number == l.threshold && r.Threshold != nil:
			return wire.AppendFloat(out, f.Number, *r.Threshold), nil
		case f.Number == l.params && len(added) > 0:
			out = appendParams(out, l, f.Value, added)
			added = nil
			return out, nil
		}
		return append(out, f.Raw...), nil
	})
	if err == nil && len(added) > 0 {
		out = appendParams(out, l, nil, added)
	}
	return out, err
}

// addedParams returns the parameters that are added to a search, as fields of SearchParams.
func addedParams(r routing.Replacement) (fields []byte) {
	if r.EF > 0 {
		fields = protowire.AppendVarint(protowire.AppendTag(fields, efField, protowire.VarintType), r.EF)
	}
	if r.Exact {
		fields = appendTrue(fields, exactField)
	}
	if r.Unquantized {
		fields = protowire.AppendBytes(protowire.AppendTag(fields, quantizationField, protowire.BytesType), appendTrue(nil, ignoreField))
	}
	return fields
}

func appendTrue(out []byte, number protowire.Number) []byte {
	return protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), 1)
}

// appendParams appends the parameters of a search with fields added, which params must not have.
func appendParams(out []byte, l layout, params, added []byte) []byte {
	out = protowire.AppendVarint(protowire.AppendTag(out, l.params, protowire.BytesType), uint64(len(params)+len(added)))
	return append(append(out, params...), added...)
}

// errAnswer says that an answer does not have the form that its request asks for.
var errAnswer = routing.Degraded{Reason: "answer"}

// mapScores maps the scores of all rows of an answer in place. It returns the answer and the rows
// of every search.
func mapScores(answer []byte, l layout, all []routing.Replacement) (mapped []byte, hits [][]search.Hit, err error) {
	m := scoreMapper{layout: l, all: all, hits: make([][]search.Hit, len(all))}
	lists := 0
	err = wire.Walk(answer, func(f wire.Field) error {
		if f.Number != l.points[0] {
			return nil
		}
		i := 0
		if l.batch {
			if i = lists; i == len(all) {
				return errAnswer
			}
			lists++
		}
		return m.mapRows(f, l.points[1:], i)
	})
	switch {
	case err == nil && l.batch && lists != len(all):
		err = errAnswer
	case err == nil && m.unwritten:
		answer, err = insertScores(answer, l, all)
	}
	return answer, m.hits, err
}

// usualRows is the initial capacity for the rows of a search.
const usualRows = 16

// scoreMapper maps the scores of an answer and collects its rows.
type scoreMapper struct {
	layout
	all  []routing.Replacement
	hits [][]search.Hit
	// unwritten is set if a row's score was 0, which is not encoded, and is mapped to another
	// value.
	unwritten bool
}

// mapRows maps the scores of the rows of search i. path leads from the field f to the rows; if it is empty, f is a row.
func (m *scoreMapper) mapRows(f wire.Field, path []protowire.Number, i int) error {
	content, err := f.Message()
	if err != nil {
		return err
	}
	if len(path) == 0 {
		return m.mapPoint(content, i)
	}
	return wire.Walk(content, func(f wire.Field) error {
		if f.Number != path[0] {
			return nil
		}
		return m.mapRows(f, path[1:], i)
	})
}

// mapPoint maps the score of a ScoredPoint of the search i.
func (m *scoreMapper) mapPoint(point []byte, i int) error {
	var hit search.Hit
	var field wire.Field // the field with the score
	score := float32(0)
	err := wire.Walk(point, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others cross unread
		case pointScoreField:
			if field.Value != nil {
				return wire.ErrRepeated
			}
			field = f
			score, err = f.Float()
		case pointIDField:
			var id []byte
			if id, err = f.Message(); err == nil {
				hit.ID = readID(id)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if hit.Score, err = m.all[i].MapScore(score); err != nil {
		return err
	}
	switch {
	case hit.Score == score:
	case field.Value == nil:
		m.unwritten = true
	default:
		field.SetFloat(hit.Score)
	}
	if m.hits[i] == nil {
		m.hits[i] = make([]search.Hit, 0, usualRows)
	}
	m.hits[i] = append(m.hits[i], hit)
	return nil
}

// insertScores appends a mapped score of 0 to each row of an answer that has no score.
func insertScores(answer []byte, l layout, all []routing.Replacement) ([]byte, error) {
	lists := -1
	return wire.Edit(make([]byte, 0, len(answer)+64), answer, func(out []byte, f wire.Field) ([]byte, error) {
		if f.Number != l.points[0] {
			return append(out, f.Raw...), nil
		}
		if lists++; !l.batch {
			lists = 0
		}
		return appendWithScores(out, f, l.points[1:], all[lists].Score(0))
	})
}

// appendWithScores appends a field of an answer. Inside it, rows at the path that have no score get
// the given one.
func appendWithScores(out []byte, f wire.Field, path []protowire.Number, score float32) ([]byte, error) {
	return wire.AppendMessage(out, f.Number, len(f.Value), func(out []byte) ([]byte, error) {
		missing := len(path) == 0 && score != 0
		out, err := wire.Edit(out, f.Value, func(out []byte, f wire.Field) ([]byte, error) {
			if len(path) > 0 && f.Number == path[0] {
				return appendWithScores(out, f, path[1:], score)
			}
			missing = missing && f.Number != pointScoreField
			return append(out, f.Raw...), nil
		})
		if missing {
			out = wire.AppendFloat(out, pointScoreField, score)
		}
		return out, err
	})
}

// readID reads a PointId.
func readID(b []byte) (id rerank.ID) {
	_ = wire.Walk(b, func(f wire.Field) error {
		switch f.Number { //nolint:exhaustive // a field of another kind of id leaves id zero
		case numberField:
			n, _ := f.Uint()
			id = rerank.UintID(n)
		case uuidField:
			id = rerank.TextID(string(f.Value))
		}
		return nil
	})
	return id
}

// Locate implements routing.Exchange.
func (c *call) Locate(context.Context) (asked routing.Asked, err error) {
	if c.passes != "" {
		return asked, c.passes
	}
	if c.located, err = locate(c.raw, c.layout, c.routed); err != nil {
		return asked, routing.Pass("not-nearest")
	}
	return routing.Asked{Searches: c.located.searches, Timeout: seconds(c.located.timeout)}, nil
}

// Rewrite implements routing.Exchange.
func (c *call) Rewrite(ctx context.Context, all []routing.Replacement) (r rawgrpc.Reply, hits [][]search.Hit, err error) {
	queries := c.located.queries
	request, err := rewriteRequest(c.raw, c.layout, queries, all)
	if err != nil {
		return r, nil, errAnswer
	}
	if r = c.send(ctx, request); r.Err != nil {
		return r, nil, refusal(r.Err)
	}
	r.Message, hits, err = mapScores(r.Message, c.layout, lastStages(queries, all))
	if err != nil {
		return r, nil, degradedBy(err)
	}
	return r, hitsOfStages(queries, hits, len(all)), nil
}

// degradedBy returns the Degraded of an answer whose scores could not be mapped.
func degradedBy(err error) error {
	if d := (routing.Degraded{}); errors.As(err, &d) {
		return d
	}
	return errAnswer
}

// refusal classifies an error of the database: it refused the caller, or the request, or did not
// answer.
func refusal(err error) error {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.ResourceExhausted:
		return routing.ErrDenied
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange, codes.Unimplemented:
		return routing.Pass("refused")
	}
	return routing.Degraded{Reason: "unavailable"}
}

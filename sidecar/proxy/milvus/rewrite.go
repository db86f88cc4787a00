package milvus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
	"github.com/likenessdb/likeness/sidecar/search"
)

// The fields of a SearchRequest that rewriting reads or replaces. Every other field
// that this version knows crosses unread.
const (
	partitionsField    = 4
	filterField        = 5
	vectorsField       = 6
	searchParamsField  = 9
	countField         = 12
	byKeysField        = 16
	subRequestsField   = 17
	functionScoreField = 19
	lastSearchField    = 20 // a later field may order the rows otherwise, as chains of functions do

	listsField      = 5 // of a HybridSearchRequest
	rankParamsField = 6
	rankerField     = 13
	lastHybridField = 14

	keyField   = 1 // of a KeyValuePair
	valueField = 2

	placeholderField = 1 // of a PlaceholderGroup
	typeField        = 2 // of a PlaceholderValue
	valuesField      = 3
)

// The fields of SearchResults and of its SearchResultData that the mapping of scores reads
// or replaces.
const (
	resultsField   = 2
	scoresField    = 4
	idsField       = 5
	lengthsField   = 6
	distancesField = 10
)

// errOther says that a request contains other searches than plain ones by dense vectors.
var errOther = errors.New("not plain searches by dense vectors")

// errAnswer says that an answer does not have the form that its request asks for.
var errAnswer = routing.Degraded{Reason: "answer"}

// locate finds the searches in a request, one for each of its vectors, and skips everything else.
func locate(request []byte) (searches []routing.Search, err error) {
	var s routing.Search
	var vectors [][]float32
	count, groups := uint64(0), 0
	err = wire.Walk(request, func(f wire.Field) (err error) {
		if f.Number > lastSearchField {
			return errOther
		}
		switch f.Number { //nolint:exhaustive // the others cross unread
		case subRequestsField, functionScoreField:
			return errOther
		case byKeysField:
			if by, err := f.Uint(); err != nil || by != 0 {
				return errOther
			}
		case partitionsField, filterField:
			s.Narrowed = s.Narrowed || len(f.Value) > 0
		case countField:
			count, err = f.Uint()
		case searchParamsField:
			err = readParam(f, &s)
		case vectorsField:
			if groups++; groups > 1 {
				return errOther
			}
			vectors, err = readGroup(f)
		}
		return err
	})
	if err != nil || len(vectors) == 0 || uint64(len(vectors)) != count {
		return nil, errors.Join(errOther, err)
	}
	s.Narrowed = s.Narrowed || s.Offset > 0
	searches = make([]routing.Search, len(vectors))
	for i, v := range vectors {
		searches[i] = s
		searches[i].Query = v
	}
	return searches, nil
}

// readGroup reads the vectors of a request.
func readGroup(f wire.Field) (vectors [][]float32, err error) {
	group, err := f.Message()
	if err != nil {
		return nil, err
	}
	placeholders := 0
	err = wire.Walk(group, func(f wire.Field) error {
		if f.Number != placeholderField {
			return nil
		}
		if placeholders++; placeholders > 1 {
			return errOther
		}
		placeholder, err := f.Message()
		if err != nil {
			return err
		}
		kind := uint64(0)
		err = wire.Walk(placeholder, func(f wire.Field) (err error) {
			switch f.Number { //nolint:exhaustive // its tag crosses unread
			case typeField:
				kind, err = f.Uint()
			case valuesField:
				var v []float32
				if v, err = f.AppendFloats(nil); err == nil && (f.Type != protowire.BytesType || len(vectors) == routing.MaxRewrites) {
					err = errOther
				}
				vectors = append(vectors, v)
			}
			return err
		})
		if err == nil && kind != uint64(commonpb.PlaceholderType_FloatVector) {
			err = errOther
		}
		return err
	})
	return vectors, err
}

// readParam reads one of the parameters of a search.
func readParam(f wire.Field, s *routing.Search) error {
	pair, err := f.Message()
	if err != nil {
		return err
	}
	key, _ := routing.Text(pair, keyField)
	value, _ := routing.Text(pair, valueField)
	switch key {
	case "anns_field":
		s.Vector = value
	case "topk", "limit":
		s.Limit, err = strconv.ParseUint(value, 10, 32)
	case "offset":
		s.Offset, err = strconv.ParseUint(value, 10, 32)
	case "metric_type":
		if value != "" && !slices.Contains([]string{"IP", "COSINE"}, strings.ToUpper(value)) {
			return errOther
		}
	case jsonParams:
		readScoreParams(value, s)
	default:
		readScoreParam(key, value, s)
	}
	if err != nil {
		return errOther
	}
	return nil
}

// readScoreParams reads the parameters that are written as JSON. If the text cannot be read, it
// assumes that any parameter may be set, including ef.
func readScoreParams(text string, s *routing.Search) {
	if text == "" {
		return
	}
	var params map[string]json.RawMessage
	if len(text) > maxParamsBytes || json.Unmarshal([]byte(text), &params) != nil {
		s.Unmapped, s.HasEF = "search-params", true
		return
	}
	for key, value := range params {
		readScoreParam(key, strings.Trim(string(value), `"`), s)
	}
}

// readScoreParam records a parameter whose meaning depends on the database's scores.
func readScoreParam(key, value string, s *routing.Search) {
	switch {
	case value == "" || strings.EqualFold(value, "false") || value == "null":
	case key == efParam:
		s.HasEF = true
	case key == "round_decimal" && value != "-1":
		s.Unmapped = "round-decimal"
	case key == "iterator" || strings.HasPrefix(key, "search_iter"):
		s.Unmapped, s.Narrowed = "iterator", true
	case key == "radius" || key == "range_filter":
		s.Unmapped, s.Narrowed = "search-params", true
	case key == "group_by_field" || key == "ignore_growing":
		s.Narrowed = true
	}
}

// rewriteRequest returns a request with its vectors and ef replaced.
func rewriteRequest(request []byte, all []routing.Replacement) ([]byte, error) {
	size := len(request) + 16
	for _, r := range all {
		size += 4 * len(r.Vector)
	}
	return appendRewritten(make([]byte, 0, size), request, all)
}

// appendRewritten appends a request with its vectors and ef replaced.
func appendRewritten(out, request []byte, all []routing.Replacement) (_ []byte, err error) {
	if ef := all[0].EF; ef > 0 { // equal for all searches, which share the field and the parameters
		if request, err = withEF(request, ef); err != nil {
			return out, err
		}
	}
	next := 0
	out, err = editAt(out, request, []protowire.Number{vectorsField, placeholderField, valuesField}, func(out []byte, f wire.Field) ([]byte, error) {
		if next == len(all) {
			return out, fmt.Errorf("%w: more than %d vectors", wire.ErrMalformed, len(all))
		}
		next++
		return wire.AppendPacked(out, f.Number, all[next-1].Vector), nil // a packed field has the same bytes as a vector
	})
	if err == nil && next != len(all) {
		err = fmt.Errorf("%w: %d vectors in place of %d", wire.ErrMalformed, next, len(all))
	}
	return out, err
}

// The keys of a request's parameters: the one whose value is JSON, and the size of the candidate
// list of an HNSW index.
const (
	jsonParams = "params"
	efParam    = "ef"
)

// withEF returns a request with ef added to its parameters, which must not have it.
func withEF(request []byte, ef uint64) ([]byte, error) {
	text, done := fmt.Sprintf("%q:%d", efParam, ef), false
	out, err := wire.Edit(nil, request, func(out []byte, f wire.Field) ([]byte, error) {
		if key, _ := routing.Text(f.Value, keyField); f.Number != searchParamsField || key != jsonParams || done {
			return append(out, f.Raw...), nil
		}
		done = true
		given, _ := routing.Text(f.Value, valueField)
		if _, members, ok := strings.Cut(given, "{"); ok {
			comma := ","
			if strings.HasPrefix(strings.TrimSpace(members), "}") {
				comma = ""
			}
			return appendParam(out, jsonParams, "{"+text+comma+members), nil
		}
		return appendParam(out, jsonParams, "{"+text+"}"), nil // the JSON object was empty
	})
	if err == nil && !done {
		out = appendParam(out, jsonParams, "{"+text+"}")
	}
	return out, err
}

// appendParam appends a parameter of a search.
func appendParam(out []byte, key, value string) []byte {
	pair := protowire.AppendString(protowire.AppendTag(nil, keyField, protowire.BytesType), key)
	pair = protowire.AppendString(protowire.AppendTag(pair, valueField, protowire.BytesType), value)
	return protowire.AppendBytes(protowire.AppendTag(out, searchParamsField, protowire.BytesType), pair)
}

// locateHybrid finds the lists of a hybrid search whose field has a route, and counts the searches
// of every list. It returns errOther for rankers that use scores, which rewriting changes; RRF is
// the only one that does not.
func locateHybrid(request []byte, routed func(field string) bool) (searches []routing.Search, lists []int, err error) {
	offset := uint64(0)
	err = wire.Walk(request, func(f wire.Field) error {
		if f.Number > lastHybridField {
			return errOther
		}
		switch f.Number { //nolint:exhaustive // the others cross unread
		case rankerField:
			return errOther
		case rankParamsField:
			pair, err := f.Message()
			if err != nil {
				return err
			}
			key, _ := routing.Text(pair, keyField)
			value, _ := routing.Text(pair, valueField)
			if key == "strategy" && value != "" && value != "rrf" {
				return errOther
			}
			if key == "offset" {
				offset, err = strconv.ParseUint(value, 10, 32)
			}
			return err
		case listsField:
			list, err := f.Message()
			if err != nil {
				return err
			}
			found, err := locateList(list, routed)
			if err != nil || len(searches)+len(found) > routing.MaxRewrites {
				return errors.Join(errOther, err)
			}
			searches, lists = append(searches, found...), append(lists, len(found))
		}
		return nil
	})
	if err != nil || len(searches) == 0 {
		return nil, nil, errors.Join(errOther, err)
	}
	for i := range searches { // the fusion merges their rows with others
		searches[i].Staged, searches[i].Narrowed, searches[i].Offset = true, true, offset
	}
	return searches, lists, nil
}

// locateList finds the searches in one list of a hybrid search. It returns none if the list's field
// has no route.
func locateList(list []byte, routed func(field string) bool) (searches []routing.Search, err error) {
	field := ""
	err = wire.Walk(list, func(f wire.Field) error {
		if key, _ := routing.Text(f.Value, keyField); f.Number == searchParamsField && key == "anns_field" {
			field, _ = routing.Text(f.Value, valueField)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case field == "": // the collection has only one vector field
		return nil, errOther
	case !routed(field):
		return nil, nil
	}
	return locate(list)
}

// rewriteHybrid returns a hybrid search with the vectors and ef of its lists replaced. lists holds
// the number of searches in each list.
func rewriteHybrid(request []byte, lists []int, all []routing.Replacement) ([]byte, error) {
	list := 0
	return wire.Edit(make([]byte, 0, len(request)+16*len(lists)), request, func(out []byte, f wire.Field) ([]byte, error) {
		if f.Number != listsField {
			return append(out, f.Raw...), nil
		}
		mine := all[:lists[list]]
		all = all[lists[list]:]
		if list++; len(mine) == 0 {
			return append(out, f.Raw...), nil
		}
		return wire.AppendMessage(out, f.Number, len(f.Value), func(out []byte) ([]byte, error) {
			return appendRewritten(out, f.Value, mine)
		})
	})
}

// editAt appends message to out, and calls replace for each field at the path, which names the
// messages around the field.
func editAt(out, message []byte, path []protowire.Number, replace func(out []byte, f wire.Field) ([]byte, error)) ([]byte, error) {
	return wire.Edit(out, message, func(out []byte, f wire.Field) ([]byte, error) {
		switch {
		case f.Number != path[0]:
			return append(out, f.Raw...), nil
		case len(path) == 1:
			return replace(out, f)
		}
		inner, err := f.Message()
		if err != nil {
			return out, err
		}
		return wire.AppendMessage(out, f.Number, len(inner), func(out []byte) ([]byte, error) {
			return editAt(out, inner, path[1:], replace)
		})
	})
}

// mapScores returns an answer with the scores of all rows mapped, and the rows of every search.
func mapScores(answer []byte, all []routing.Replacement) (mapped []byte, hits [][]search.Hit, err error) {
	found := 0
	mapped, err = wire.Edit(make([]byte, 0, len(answer)+16), answer, func(out []byte, f wire.Field) ([]byte, error) {
		if f.Number != resultsField {
			return append(out, f.Raw...), nil
		}
		if found++; found > 1 {
			return out, wire.ErrRepeated
		}
		data, err := f.Message()
		if err != nil {
			return out, err
		}
		scores, distances, lists, err := readScores(data, all)
		if err != nil {
			return out, err
		}
		hits = lists
		return wire.AppendMessage(out, f.Number, len(data), func(out []byte) ([]byte, error) {
			return wire.Edit(out, data, func(out []byte, f wire.Field) ([]byte, error) {
				switch f.Number { //nolint:exhaustive // the others cross unread
				case scoresField:
					return appendOnce(out, f, &scores), nil
				case distancesField:
					return appendOnce(out, f, &distances), nil
				}
				return append(out, f.Raw...), nil
			})
		})
	})
	if err == nil && found == 0 {
		err = errAnswer
	}
	return mapped, hits, err
}

// appendOnce appends all values at the first occurrence of the field, and nothing at later ones.
func appendOnce(out []byte, f wire.Field, values *[]float32) []byte {
	if *values != nil {
		out = wire.AppendPacked(out, f.Number, *values)
	}
	*values = nil
	return out
}

// readScores reads the rows of an answer, list by list, and maps their scores.
func readScores(data []byte, all []routing.Replacement) (scores, distances []float32, hits [][]search.Hit, err error) {
	var lengths []int64
	ids := &schemapb.IDs{}
	err = wire.Walk(data, func(f wire.Field) (err error) {
		switch f.Number { //nolint:exhaustive // the others cross unread
		case scoresField:
			scores, err = f.AppendFloats(scores)
		case distancesField:
			distances, err = f.AppendFloats(distances)
		case lengthsField:
			lengths, err = appendVarints(lengths, f)
		case idsField:
			var b []byte
			if b, err = f.Message(); err == nil {
				err = proto.UnmarshalOptions{Merge: true}.Unmarshal(b, ids)
			}
		}
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if len(lengths) == 0 && len(scores) == 0 { // no rows
		return scores, distances, make([][]search.Hit, len(all)), nil
	}
	found, ok := split(scores, lengths)
	foundIDs, matched := split(idsOf(ids), lengths)
	if !ok || !matched || len(lengths) != len(all) || len(distances) > 0 && len(distances) != len(scores) {
		return nil, nil, nil, errAnswer
	}
	hits = make([][]search.Hit, len(all))
	row := 0
	for i, list := range found {
		for j, score := range list {
			mapped, err := all[i].MapScore(score)
			if err != nil {
				return nil, nil, nil, err
			}
			if len(distances) > 0 {
				if distances[row], err = all[i].MapScore(distances[row]); err != nil {
					return nil, nil, nil, err
				}
			}
			scores[row] = mapped
			hits[i] = append(hits[i], search.Hit{ID: foundIDs[i][j], Score: mapped})
			row++
		}
	}
	return scores, distances, hits, nil
}

// appendVarints appends the values of one occurrence of a repeated integer field, packed
// or not.
func appendVarints(values []int64, f wire.Field) ([]int64, error) {
	if f.Type != protowire.BytesType {
		n, err := f.Uint()
		return append(values, int64(n)), err
	}
	for b := f.Value; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return values, wire.ErrMalformed
		}
		values, b = append(values, int64(v)), b[n:]
	}
	return values, nil
}

// Locate implements routing.Exchange.
func (c *call) Locate(ctx context.Context) (asked routing.Asked, err error) {
	if c.isHybrid() {
		asked.Searches, c.lists, err = locateHybrid(c.raw, func(field string) bool { return c.Router.Names.CoversField(c.target.Routed, field) })
		if err != nil {
			return asked, routing.Pass(passesHybrid)
		}
		return asked, nil
	}
	if asked.Searches, err = locate(c.raw); err != nil {
		return asked, routing.Pass("not-nearest")
	}
	field := asked.Searches[0].Vector
	if field == "" {
		database, _ := routing.Text(c.raw, databaseField)
		if c.shape, err = c.Router.shape(ctx, c.upstream, c.target.Own, &milvuspb.SearchRequest{DbName: database}); err != nil {
			return asked, err
		}
		field = searchedField(field, c.shape)
	}
	for i := range asked.Searches {
		asked.Searches[i].Vector = field
	}
	return asked, nil
}

// Rewrite implements routing.Exchange.
func (c *call) Rewrite(ctx context.Context, all []routing.Replacement) (r rawgrpc.Reply, hits [][]search.Hit, err error) {
	var request []byte
	if c.isHybrid() {
		request, err = rewriteHybrid(c.raw, c.lists, all)
	} else {
		request, err = rewriteRequest(c.raw, all)
	}
	if err != nil {
		return r, nil, errAnswer
	}
	r.Message, r.Header, r.Trailer, r.Err = c.upstream.Call(ctx, c.method, request)
	if err := refusal(r); err != nil {
		return r, nil, err
	}
	if c.isHybrid() { // the answer has the fusion's rows and scores
		return r, make([][]search.Hit, len(all)), nil
	}
	r.Message, hits, err = mapScores(r.Message, all)
	if d := (routing.Degraded{}); err != nil && !errors.As(err, &d) {
		err = errAnswer
	}
	return r, hits, err
}

func (c *call) isHybrid() bool {
	return c.method == milvuspb.MilvusService_HybridSearch_FullMethodName
}

// refusal classifies an error of the database: it refused the caller, or the request, or did not
// answer. It returns nil for an answer with rows.
func refusal(r rawgrpc.Reply) error {
	switch {
	case rawgrpc.Denied(r.Err), status.Code(r.Err) == codes.ResourceExhausted, r.Err == nil && denies(r.Message):
		return routing.ErrDenied
	case r.Err != nil:
		return routing.Degraded{Reason: "unavailable"}
	}
	s, err := readStatus(r.Message)
	switch {
	case err != nil:
		return errAnswer
	case !failed(s):
		return nil
	case refuses(s):
		return routing.Pass("refused")
	}
	return routing.Degraded{Reason: "unavailable"}
}

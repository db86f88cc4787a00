package milvus

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// query is a search request that a route can answer.
type query struct {
	field         string
	vectors       [][]float32
	group         *commonpb.PlaceholderGroup
	limit, offset uint64
	filter        string // with the values of its template
	partitions    []string
	needs         []string // opt-ins that the route must have
	decimals      int      // decimals of a score; -1 means all
}

func (q query) searches(field string) []routing.Search {
	out := make([]routing.Search, len(q.vectors))
	for i, v := range q.vectors {
		out[i] = routing.Search{Vector: field, Query: v, Limit: q.limit, Offset: q.offset, Filter: q.filter, Partitions: q.partitions, Needs: q.needs}
	}
	return out
}

// rounded returns a score with the decimals that the request asks for, rounded as Milvus
// does.
func (q query) rounded(score float32) float32 {
	if q.decimals < 0 {
		return score
	}
	scale := math.Pow10(q.decimals)
	return float32(math.Round(float64(score)*scale) / scale)
}

// read reads a plain nearest-neighbour search. For any other request it returns the Pass
// with the reason.
func read(m *milvuspb.SearchRequest) (q query, err error) {
	switch {
	case len(m.GetSubReqs()) > 0:
		return q, routing.Pass("hybrid")
	case m.GetSearchByPrimaryKeys():
		return q, routing.Pass("not-nearest")
	case m.GetFunctionScore() != nil:
		return q, routing.Pass("function-score")
	case m.GetTravelTimestamp() != 0 || m.Namespace != nil:
		return q, routing.Pass("namespace")
	case m.GetDslType() != commonpb.DslType_BoolExprV1:
		return q, routing.Pass("filter")
	}
	q.filter, q.partitions, q.decimals = m.GetDsl(), m.GetPartitionNames(), -1
	if values := m.GetExprTemplateValues(); len(values) > 0 {
		var ok bool
		if q.filter, ok = render(m.GetDsl(), values); !ok {
			return q, routing.Pass("template")
		}
	}
	if err := q.readParams(m.GetSearchParams()); err != nil {
		return q, err
	}
	return q, q.readVectors(m)
}

// The special timestamps by which older clients state a consistency level.
const (
	eventually = 1
	bounded    = 2
)

// wantsStricterReads reports whether a search asks for a stronger consistency than the
// collection's own level, at which a route reads.
func wantsStricterReads(m *milvuspb.SearchRequest, own commonpb.ConsistencyLevel) bool {
	switch {
	case m.GetGuaranteeTimestamp() > bounded:
		return true
	case m.GetUseDefaultConsistency() || own == commonpb.ConsistencyLevel_Strong:
		return false
	case m.GetGuaranteeTimestamp() == eventually || m.GetGuaranteeTimestamp() == bounded:
		return false
	}
	return m.GetConsistencyLevel() != commonpb.ConsistencyLevel_Bounded && m.GetConsistencyLevel() != commonpb.ConsistencyLevel_Eventually
}

// tuning lists the parameters that tune the database's own search. A route ignores them, because
// its depth replaces them.
var tuning = []string{"ef", "nprobe", "search_list", "reorder_k", "level", "itopk_size", "search_width", "beamwidth"}

func (q *query) readParams(params []*commonpb.KeyValuePair) (err error) {
	if len(params) > maxParams {
		return routing.Pass("search-params")
	}
	for _, p := range params {
		key, value := p.GetKey(), p.GetValue()
		switch key {
		case "anns_field":
			q.field = value
		case "topk", "limit":
			q.limit, err = strconv.ParseUint(value, 10, 32)
		case "offset":
			q.offset, err = strconv.ParseUint(value, 10, 32)
		case "metric_type":
			if value != "" && !slices.Contains([]string{"IP", "COSINE"}, strings.ToUpper(value)) {
				return routing.Pass("metric")
			}
		case "round_decimal":
			err = q.readDecimals(value)
		case "params":
			err = plainParams(value, params)
		case "ignore_growing":
			if !strings.EqualFold(value, "false") {
				return routing.Pass("ignore-growing")
			}
		case "group_by_field", "iterator":
			if value != "" && !strings.EqualFold(value, "false") {
				return routing.Pass(strings.ReplaceAll(key, "_", "-"))
			}
		case "group_size", "strict_group_size": // without a group they have no meaning
		default:
			if !slices.Contains(tuning, key) {
				return routing.Pass("search-params")
			}
		}
		if err != nil {
			return routing.Pass("search-params")
		}
	}
	return nil
}

// readDecimals reads round_decimal, which Milvus takes up to 6.
func (q *query) readDecimals(value string) (err error) {
	if value == "-1" || value == "" {
		return nil
	}
	if q.decimals, err = strconv.Atoi(value); err == nil && (q.decimals < 0 || q.decimals > 6) {
		return strconv.ErrRange
	}
	q.needs = append(q.needs, "round-decimal")
	return err
}

// Limits on the parameters that are read: the number of those in a list, and the length of those in JSON.
// Searches that routes cover stay far below.
const (
	maxParams      = 64
	maxParamsBytes = 16 << 10
)

// plainParams checks the parameters that are written as JSON. It returns nil if they only tune the
// search, or repeat the parameters beside them, as pymilvus does. Others change the answer: radius
// and range_filter cut it at scores of the database.
func plainParams(text string, beside []*commonpb.KeyValuePair) error {
	var params map[string]json.RawMessage
	if text == "" {
		return nil
	}
	if len(text) > maxParamsBytes {
		return routing.Pass("search-params")
	}
	if err := json.Unmarshal([]byte(text), &params); err != nil {
		return err
	}
	for key, value := range params {
		if !slices.Contains(tuning, key) && !(key == "for_tuning" && string(value) == "false") && !repeats(beside, key, value) {
			return routing.Pass("search-params")
		}
	}
	return nil
}

// repeats reports whether params has the same key with the same value.
func repeats(params []*commonpb.KeyValuePair, key string, value json.RawMessage) bool {
	return slices.ContainsFunc(params, func(p *commonpb.KeyValuePair) bool {
		return p.GetKey() == key && strings.EqualFold(p.GetValue(), strings.Trim(string(value), `"`))
	})
}

func (q *query) readVectors(m *milvuspb.SearchRequest) error {
	q.group = &commonpb.PlaceholderGroup{}
	if err := routing.Decode(m.GetPlaceholderGroup(), q.group); err != nil {
		return err
	}
	if len(q.group.GetPlaceholders()) != 1 {
		return routing.Pass("malformed")
	}
	p := q.group.GetPlaceholders()[0]
	if p.GetType() != commonpb.PlaceholderType_FloatVector {
		return routing.Pass("vector-type")
	}
	if len(p.GetValues()) == 0 || int64(len(p.GetValues())) != m.GetNq() {
		return routing.Pass("malformed")
	}
	if len(p.GetValues()) > routing.MaxBatch {
		return routing.Pass("batch")
	}
	for _, b := range p.GetValues() {
		if len(b)%4 != 0 {
			return routing.Pass("malformed")
		}
		v := make([]float32, len(b)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		q.vectors = append(q.vectors, v)
	}
	return nil
}

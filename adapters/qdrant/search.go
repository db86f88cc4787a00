package qdrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Search sends all probes in one QueryBatch. With Exact, or where Qdrant would compare all
// vectors anyway (see scansAnyway), it requests a full scan that ignores quantized vectors;
// a list is then exact if the field holds float32 vectors. Partitions are shard keys. Consistency is "all", "majority", "quorum" or a number of
// replicas.
//
// Scores are inner products, recovered from the field's metric. A Cosine field's score
// times ‖p‖ is the inner product with the normalised vector. A Euclid field gives
// ⟨p,x⟩ = (‖p‖² + 1 − d²)/2 if UnitVectors is set. Manhattan gives no inner products.
// A list's Epsilon bounds the rounding error for unit vectors and Cosine fields. On
// other Dot fields it rests on an estimate of the rows' greatest norm: twice the
// greatest norm of 64 random rows.
func (s *Store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	if err := r.Check(s.options.Limits); err != nil || len(r.Probes) == 0 {
		return []rerank.List{}, err
	}
	filter, err := parseFilter(r.Filter)
	if err != nil {
		return nil, err
	}
	if filter, err = without(filter, r.Exclude, r.Owner); err != nil {
		return nil, err
	}
	var lists []rerank.List
	err = s.withInfo(ctx, r.Collection, func(in *info) error {
		probes, err := in.bind(r)
		if err != nil {
			return err
		}
		lists, err = s.query(ctx, r, in, probes, filter)
		return err
	})
	return lists, err
}

// isStale reports whether a stale description may have caused an error.
func isStale(err error) bool {
	if limit := (*adapters.LimitError)(nil); errors.As(err, &limit) {
		return limit.Limit != messageLimit
	}
	for _, target := range []error{adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric, adapters.ErrStore} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// probe is a probe, its field, and the meaning of its scores.
type probe struct {
	rerank.Probe
	field   *field
	sent    []float32
	norm    float64 // ‖p‖
	epsilon float32
	// scan: the request asks for a full scan. exact: that proves the list, since the vectors are not rounded.
	scan, exact bool
	// squared is ‖sent‖² on a Euclid field.
	squared float64
}

func (in *info) bind(r adapters.SearchRequest) ([]probe, error) {
	if err := r.Check(in.limits); err != nil {
		return nil, err
	}
	probes := make([]probe, len(r.Probes))
	for i, p := range r.Probes {
		f, err := in.searched(r.FieldOf(p))
		switch {
		case err != nil:
			return nil, err
		case f.MaxSim && r.WithVectors:
			return nil, fmt.Errorf("%w: vector %q of collection %q is a multi-vector, whose vectors are not read", adapters.ErrUnsupported, f.Name, in.collection)
		}
		if len(p.Vector) != f.Dim {
			return nil, fmt.Errorf("%w: probes[%d] has %d elements, vector %q of collection %q has %d",
				adapters.ErrDimension, i, len(p.Vector), f.Name, in.collection, f.Dim)
		}
		probes[i] = probe{Probe: p, field: f, sent: p.Vector, norm: rerank.Norm(p.Vector), scan: f.Exact && (r.Exact || in.scansAnyway(f, p.Depth))}
		probes[i].exact = probes[i].scan && f.FullPrecision
		if err := probes[i].prepareVector(in, r.UnitVectors); err != nil {
			return nil, err
		}
	}
	return probes, nil
}

// prepareVector sets the vector to send and the error bound of its scores.
func (p *probe) prepareVector(in *info, unit bool) error {
	switch f := p.field; f.Metric {
	case adapters.InnerProduct:
		norm := f.norm
		if unit {
			norm = 1
		}
		p.epsilon = adapters.Epsilon32(f.Roundings(), p.norm, norm)
		if f.Datatype == adapters.Float16 {
			p.epsilon += adapters.Epsilon16(f.Dim, p.norm, norm)
		}
	case adapters.Cosine:
		// Qdrant normalises both vectors in float32, unless their squared norm is
		// within 1e-6 of 1: one more rounding for each element of both vectors, and
		// 2·9 units.
		p.epsilon = adapters.Epsilon32(2*f.Roundings()+32, p.norm, 1)
		if f.Datatype == adapters.Float16 {
			p.epsilon += float32(p.norm) * adapters.Epsilon16(f.Dim, 1, 1)
		}
	case adapters.L2:
		if !unit {
			return fmt.Errorf("%w: vector %q of collection %q is compared by Euclid distance, from which inner products follow only for unit vectors; set unit_vectors if they are",
				adapters.ErrMetric, f.Name, in.collection)
		}
		// A unit probe keeps the squared distance small.
		p.sent = slices.Clone(p.Vector)
		rerank.Normalise(p.sent)
		n := rerank.Norm(p.sent)
		p.squared = n * n
		p.epsilon = adapters.Epsilon32(f.Roundings()+16, 2*p.norm, 1)
	default:
		return fmt.Errorf("%w: vector %q of collection %q is compared by %s distance, from which no inner product follows",
			adapters.ErrMetric, f.Name, in.collection, f.Metric)
	}
	return nil
}

// innerProduct converts Qdrant's score to an inner product.
func (p *probe) innerProduct(score float32) float32 {
	switch p.field.Metric {
	case adapters.Cosine:
		return float32(float64(score) * p.norm)
	case adapters.L2:
		d := float64(score)
		return float32((p.squared + 1 - d*d) / 2 * p.norm)
	default:
		return score
	}
}

func (s *Store) query(ctx context.Context, r adapters.SearchRequest, in *info, probes []probe, filter *qdrant.Filter) ([]rerank.List, error) {
	request, err := s.queryBatch(ctx, r, probes, filter)
	if err != nil {
		return nil, err
	}
	var vectors []*field
	if r.WithVectors {
		vectors = []*field{probes[0].field}
	}
	answer := newReply(true, r.Owner, vectors)
	answer.payload = r.Payload
	defer answer.release()
	_, err = call(ctx, s, "search", r.Collection, func(ctx context.Context, c *qdrant.GrpcClient) (*reply, error) {
		return answer, c.Conn().Invoke(ctx, qdrant.Points_QueryBatch_FullMethodName, request, answer, s.wire)
	})
	if err != nil {
		return nil, err
	}
	if len(answer.ends) != len(probes) {
		return nil, fmt.Errorf("%w: qdrant at %s answered %d probes of %d", adapters.ErrStore, s.options.Address, len(answer.ends), len(probes))
	}
	lists := make([]rerank.List, len(probes))
	for i := range probes {
		if lists[i], err = probes[i].makeList(r, in, answer, answer.list(i)); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// queryBatch builds the request and checks its size.
func (s *Store) queryBatch(ctx context.Context, r adapters.SearchRequest, probes []probe, filter *qdrant.Filter) (*qdrant.QueryBatchPoints, error) {
	consistency, err := readConsistency(r.Consistency)
	if err != nil {
		return nil, err
	}
	timeout := s.timeoutSeconds(ctx)
	b := &qdrant.QueryBatchPoints{CollectionName: r.Collection, ReadConsistency: consistency, Timeout: timeout}
	size := (len(r.Filter) + excludedBytes(r.Exclude)) * len(probes)
	for i := range probes {
		p := &probes[i]
		size += 4*len(p.sent) + len(p.field.Name) + 64
		q := &qdrant.QueryPoints{
			CollectionName:   r.Collection,
			Query:            qdrant.NewQueryDense(p.sent),
			Filter:           filter,
			Params:           searchParams(p.scan, r.Rescore && p.field.Rescores, r.EF),
			Limit:            qdrant.PtrOf(uint64(p.Depth)),
			WithPayload:      selection{owner: r.Owner, payload: r.Payload, payloadFields: r.PayloadFields}.withPayload(),
			ShardKeySelector: shardKeys(r.Partitions),
			Timeout:          timeout,
		}
		if p.field.Name != "" {
			q.Using = &p.field.Name
		}
		if r.WithVectors {
			q.WithVectors = vectorsSelector([]*field{p.field})
		}
		b.QueryPoints = append(b.QueryPoints, q)
	}
	return b, s.checkSize(size)
}

func (s *Store) checkSize(size int) error {
	if most := s.options.Limits.MaxMessageBytes; size > most {
		return &adapters.LimitError{Limit: messageLimit, Value: int64(size), Max: int64(most),
			Remedy: "send fewer or shorter vectors or fewer excluded ids at once, or raise max_message_bytes of the store"}
	}
	return nil
}

// searchParams asks for an exhaustive search of the vectors themselves, or at least
// for their scores where the list is found by quantized ones.
func searchParams(exact, rescore bool, ef int) *qdrant.SearchParams {
	if exact {
		return &qdrant.SearchParams{
			Exact:        qdrant.PtrOf(true),
			Quantization: &qdrant.QuantizationSearchParams{Ignore: qdrant.PtrOf(true)},
		}
	}
	if !rescore && ef == 0 {
		return nil
	}
	p := &qdrant.SearchParams{}
	if rescore {
		p.Quantization = &qdrant.QuantizationSearchParams{Rescore: qdrant.PtrOf(true)}
	}
	if ef > 0 {
		p.HnswEf = qdrant.PtrOf(uint64(ef))
	}
	return p
}

func readConsistency(text string) (*qdrant.ReadConsistency, error) {
	switch text {
	case "":
		return nil, nil
	case "all":
		return qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_All), nil
	case "majority":
		return qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_Majority), nil
	case "quorum":
		return qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_Quorum), nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%w: consistency %q; Qdrant has all, majority, quorum and a number of replicas", adapters.ErrUnsupported, text)
	}
	return qdrant.NewReadConsistencyFactor(n), nil
}

func shardKeys(names []string) *qdrant.ShardKeySelector {
	if len(names) == 0 {
		return nil
	}
	keys := make([]*qdrant.ShardKey, len(names))
	for i, n := range names {
		keys[i] = qdrant.NewShardKeyKeyword(n)
	}
	return &qdrant.ShardKeySelector{ShardKeys: keys}
}

// makeList converts one probe's answer to a list. It sorts ties, whose order Qdrant leaves
// open; the conversion to inner products can create more of them.
func (p *probe) makeList(r adapters.SearchRequest, in *info, answer *reply, points []wirePoint) (rerank.List, error) {
	rows := answer.rows[:0]
	defer func() { answer.rows = rows }()
	for i, point := range points {
		rows = append(rows, rerank.Scored{ID: answer.idOf(point.id), Score: p.innerProduct(point.score), Index: i})
	}
	if !slices.IsSortedFunc(rows, compare) {
		slices.SortFunc(rows, compare)
	}
	l := rerank.List{
		IDs:       make([]rerank.ID, len(rows)),
		Scores:    make([]float32, len(rows)),
		Exact:     p.exact,
		Exhausted: p.exact && len(rows) < p.Depth,
		Epsilon:   p.epsilon,
	}
	if r.WithVectors {
		l.Vectors = rerank.NewMatrix(len(rows), p.field.Dim)
	}
	if r.Versions && !slices.ContainsFunc(points, func(p wirePoint) bool { return p.hasKey }) {
		l.Versions = make([]uint64, len(rows))
	}
	for i, row := range rows {
		l.IDs[i], l.Scores[i] = row.ID, row.Score
		if l.Versions != nil {
			l.Versions[i] = points[row.Index].version
		}
		if r.Payload {
			l.Payloads = append(l.Payloads, payloadJSON(points[row.Index].content))
		}
		if r.WithVectors {
			answer.copyVector(l.Vectors.Row(i), points[row.Index], 0)
		}
		if r.Owner == "" {
			continue
		}
		owner := points[row.Index].owner
		if owner.kind == noValue {
			return l, noOwner(in.collection, row.ID, r.Owner)
		}
		l.Owners = append(l.Owners, answer.idOf(owner))
	}
	return l, nil
}

func compare(a, b rerank.Scored) int {
	if rerank.Better(a, b) {
		return -1
	}
	return 1
}

func noOwner(collection string, id rerank.ID, field string) error {
	return fmt.Errorf("%w: point %s of collection %q has no integer or string in its payload field %q", adapters.ErrField, id, collection, field)
}

package qdrant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TestErrorsOfQdrant: every gRPC status and every text of an error that Qdrant sends maps to the
// sentinel error that callers compare with.
func TestErrorsOfQdrant(t *testing.T) {
	s := &Store{options: Options{Address: "a:1"}.completed()}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx     context.Context
		code    codes.Code
		message string
		want    error
	}{
		{ended, codes.Canceled, "", context.Canceled},
		{ended, codes.DeadlineExceeded, "", context.Canceled},
		{t.Context(), codes.DeadlineExceeded, "", context.DeadlineExceeded},
		{t.Context(), codes.Canceled, "", adapters.ErrUnavailable},
		{t.Context(), codes.Unavailable, "", adapters.ErrUnavailable},
		{t.Context(), codes.NotFound, "", adapters.ErrNotFound},
		{t.Context(), codes.Unauthenticated, "", adapters.ErrRefused},
		{t.Context(), codes.PermissionDenied, "", adapters.ErrRefused},
		{t.Context(), codes.PermissionDenied, `Limit exceeded 100 > 10 for "limit"`, adapters.ErrLimit},
		{t.Context(), codes.Unimplemented, "", adapters.ErrUnsupported},
		{t.Context(), codes.ResourceExhausted, "too many requests", adapters.ErrUnavailable},
		{t.Context(), codes.ResourceExhausted, "message larger than max (7 vs. 4)", adapters.ErrLimit},
		{t.Context(), codes.OutOfRange, "decoded message length too large: found 7 bytes, the limit is: 4 bytes", adapters.ErrLimit},
		{t.Context(), codes.InvalidArgument, "Vector dimension error: expected dim: 4, got 3", adapters.ErrDimension},
		{t.Context(), codes.InvalidArgument, "Not existing vector name error: x", adapters.ErrField},
		{t.Context(), codes.InvalidArgument, "Unable to parse UUID: x", adapters.ErrID},
		{t.Context(), codes.InvalidArgument, "Bad request: Index required but not found", adapters.ErrFilter},
		{t.Context(), codes.InvalidArgument, "Filter is malformed", adapters.ErrFilter},
		{t.Context(), codes.InvalidArgument, `Limit exceeded 100 > 10 for "limit"`, adapters.ErrLimit},
		{t.Context(), codes.InvalidArgument, "odd", adapters.ErrStore},
		{t.Context(), codes.Internal, "Timeout error: 3 seconds", adapters.ErrUnavailable},
		{t.Context(), codes.Internal, "a fault", adapters.ErrStore},
	} {
		err := s.translate(c.ctx, status.Error(c.code, c.message), "search", "c")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), `qdrant at a:1, search of collection "c"`) {
			t.Errorf("%s %q: %v, want %v", c.code, c.message, err, c.want)
		}
		for _, other := range []error{adapters.ErrUnavailable, adapters.ErrRefused, adapters.ErrNotFound} {
			if !errors.Is(other, c.want) && errors.Is(err, other) {
				t.Errorf("%s %q is %v too", c.code, c.message, other)
			}
		}
	}
	var limit *adapters.LimitError
	if err := s.translate(t.Context(), status.Error(codes.ResourceExhausted, "message larger than max (7 vs. 4)"), "x", ""); !errors.As(err, &limit) || limit.Value != 7 || limit.Max != 4 || limit.Limit != messageLimit || isStale(err) {
		t.Errorf("%v: %+v", err, limit)
	}
	if err := s.translate(t.Context(), status.Error(codes.PermissionDenied, `Limit exceeded 100 > 10 for "limit"`), "x", ""); !errors.As(err, &limit) || limit.Value != 100 || limit.Max != 10 || !isStale(err) {
		t.Errorf("%v: %+v", err, limit)
	}
}

func fieldOf(m adapters.Metric, norm float64, full, exact bool) *field {
	return &field{VectorField: adapters.VectorField{Name: "v", Dim: 2, Metric: m, FullPrecision: full, Exact: exact}, norm: norm}
}

// TestMeaningOfScores: Qdrant's scores convert to inner products with an error that covers the rounding of
// every product and, for cosine, of the vectors that Qdrant normalises.
func TestMeaningOfScores(t *testing.T) {
	vector := []float32{3, 4} // of norm 5
	halves := func(m adapters.Metric, norm float64) *field {
		f := fieldOf(m, norm, false, true)
		f.Datatype = adapters.Float16
		return f
	}
	for name, c := range map[string]struct {
		f       *field
		unit    bool
		score   float32 // Qdrant's
		product float64
		epsilon float32
		err     error
	}{
		"inner product":           {fieldOf(adapters.InnerProduct, 7, true, true), false, 11, 11, adapters.Epsilon32(2, 5, 7), nil},
		"of unit vectors":         {fieldOf(adapters.InnerProduct, 7, true, true), true, 4, 4, adapters.Epsilon32(2, 5, 1), nil},
		"cosine":                  {fieldOf(adapters.Cosine, 1, true, true), false, 0.5, 2.5, adapters.Epsilon32(36, 5, 1), nil},
		"of float16":              {halves(adapters.InnerProduct, 7), false, 11, 11, adapters.Epsilon32(2, 5, 7) + adapters.Epsilon16(2, 5, 7), nil},
		"cosine of float16":       {halves(adapters.Cosine, 1), false, 0.5, 2.5, adapters.Epsilon32(36, 5, 1) + 5*adapters.Epsilon16(2, 1, 1), nil},
		"Euclid, of unit vectors": {fieldOf(adapters.L2, 1, true, true), true, 1, 2.5, adapters.Epsilon32(18, 10, 1), nil},
		"Euclid, of any vectors":  {fieldOf(adapters.L2, 1, true, true), false, 0, 0, 0, adapters.ErrMetric},
		"Manhattan":               {fieldOf("Manhattan", 1, true, true), true, 0, 0, 0, adapters.ErrMetric},
	} {
		p := &probe{Probe: rerank.Probe{Vector: vector}, field: c.f, sent: vector, norm: rerank.Norm(vector)}
		if err := p.prepareVector(&info{collection: "c"}, c.unit); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && (!(math.Abs(float64(p.innerProduct(c.score))-c.product) <= 1e-5) || p.epsilon != c.epsilon) {
			t.Errorf("%s: a score of %v is the inner product %v ± %v, want %v ± %v", name, c.score, p.innerProduct(c.score), p.epsilon, c.product, c.epsilon)
		}
	}
}

// TestWhenAListIsExact: a list is exact if Qdrant compared all vectors at the precision in which they are
// stored. It holds every row of the collection only if it has fewer rows than were asked for.
func TestWhenAListIsExact(t *testing.T) {
	for name, c := range map[string]struct {
		asked, exact, full bool
		rows               int
		want, exhausted    bool
	}{
		"asked for":        {true, true, true, 3, true, false},
		"all rows":         {true, true, true, 2, true, true},
		"not asked for":    {false, true, true, 2, false, false},
		"forbidden":        {true, false, true, 2, false, false},
		"rounded vectors":  {true, true, false, 2, false, false},
		"and not complete": {true, true, false, 3, false, false},
	} {
		in := &info{collection: "c", fields: []*field{fieldOf(adapters.InnerProduct, 1, c.full, c.exact)}}
		r := adapters.SearchRequest{Collection: "c", Vector: "v", Exact: c.asked, Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 3}}}
		probes, err := in.bind(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := newReply(true, "", nil)
		points := make([]wirePoint, c.rows)
		for i := range points {
			points[i] = wirePoint{id: wireValue{kind: unsigned, number: uint64(9 - i)}, score: 1} // ties, in the wrong order
		}
		l, err := probes[0].makeList(r, in, answer, points)
		if err != nil || l.Exact != c.want || l.Exhausted != c.exhausted {
			t.Errorf("%s: exact %t, exhausted %t, %v", name, l.Exact, l.Exhausted, err)
		}
		for i := 1; i < len(l.IDs); i++ {
			if l.IDs[i-1].Compare(l.IDs[i]) >= 0 {
				t.Errorf("%s: ties in the order %v", name, l.IDs)
			}
		}
		r.Owner = "item"
		if _, err := probes[0].makeList(r, in, answer, points); !errors.Is(err, adapters.ErrField) {
			t.Errorf("%s: rows without an owner: %v", name, err)
		}
	}
	in := &info{collection: "c", fields: []*field{fieldOf(adapters.InnerProduct, 1, true, true)}}
	if _, err := in.bind(adapters.SearchRequest{Vector: "v", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}}); !errors.Is(err, adapters.ErrDimension) {
		t.Errorf("a probe of another dimension: %v", err)
	}
}

// TestLimitsOfStrictMode: limits of a collection in strict mode count where they are below the configured ones.
func TestLimitsOfStrictMode(t *testing.T) {
	const allowed, forbidden = true, false
	strict := func(on bool, limit uint32, batch uint64, exact *bool) *info {
		in := &info{limits: adapters.Limits{MaxDepth: 100, MaxProbes: 50}, raw: &qdrant.CollectionInfo{Config: &qdrant.CollectionConfig{StrictModeConfig: &qdrant.StrictModeConfig{
			Enabled: &on, MaxQueryLimit: &limit, SearchMaxBatchsize: &batch, SearchAllowExact: exact,
		}}}}
		in.readStrictMode()
		return in
	}
	for name, c := range map[string]struct {
		in            *info
		depth, probes int
		noExact       bool
	}{
		"lower":        {strict(true, 10, 5, qdrant.PtrOf(forbidden)), 10, 5, true},
		"higher":       {strict(true, 1000, 500, qdrant.PtrOf(allowed)), 100, 50, false},
		"none":         {strict(true, 0, 0, nil), 100, 50, false},
		"not in force": {strict(false, 10, 5, qdrant.PtrOf(forbidden)), 100, 50, false},
	} {
		if c.in.limits.MaxDepth != c.depth || c.in.limits.MaxProbes != c.probes || c.in.noExact != c.noExact {
			t.Errorf("%s: %+v, no exact search: %t", name, c.in.limits, c.in.noExact)
		}
	}
}

// TestFieldsOfACollection: a description has the dimension, metric and precision of each vector field.
func TestFieldsOfACollection(t *testing.T) {
	half, none := qdrant.Datatype_Float16, uint64(0)
	quantized := &qdrant.QuantizationConfig{Quantization: &qdrant.QuantizationConfig_Scalar{Scalar: &qdrant.ScalarQuantization{}}}
	in := &info{noExact: true, raw: &qdrant.CollectionInfo{Config: &qdrant.CollectionConfig{Params: &qdrant.CollectionParams{VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{
		"a": {Size: 3, Distance: qdrant.Distance_Euclid}, "b": {Size: 4, Distance: qdrant.Distance_Manhattan, Datatype: &half, HnswConfig: &qdrant.HnswConfigDiff{M: &none}},
		"c": {Size: 5, Distance: qdrant.Distance_Dot, QuantizationConfig: quantized}, "d": {Size: 5, Distance: qdrant.Distance_Dot, MultivectorConfig: &qdrant.MultiVectorConfig{}},
	})}}}}
	if err := in.readFields(); err != nil || len(in.fields) != 3 || len(in.maxSim) != 1 {
		t.Fatal(len(in.fields), err)
	}
	multi := adapters.VectorField{Name: "d", Dim: 5, Metric: adapters.InnerProduct, FullPrecision: true, Datatype: adapters.Float32, Chain: 5/lanes + rest, MaxSim: true}
	if got := in.maxSim[0].VectorField; got != multi {
		t.Errorf("the multi-vector is %+v, want %+v", got, multi)
	}
	if f, err := in.searched("d"); err != nil || f != in.maxSim[0] {
		t.Errorf("a multi-vector is not searched: %v", err)
	}
	if _, err := in.searched(""); !errors.Is(err, adapters.ErrField) {
		t.Errorf("no name stands for one of four fields: %v", err)
	}
	for i, want := range []adapters.VectorField{
		{Name: "a", Dim: 3, Metric: adapters.L2, FullPrecision: true, Datatype: adapters.Float32},
		{Name: "b", Dim: 4, Metric: "Manhattan", Datatype: adapters.Float16, Unsearched: true},
		{Name: "c", Dim: 5, Metric: adapters.InnerProduct, FullPrecision: true, Datatype: adapters.Float32, Quantized: "scalar", Rescores: true},
	} {
		want.Chain = want.Dim/lanes + rest
		if got := in.fields[i].VectorField; got != want {
			t.Errorf("field %d is %+v, want %+v", i, got, want)
		}
	}
	if _, err := in.field("d"); !errors.Is(err, adapters.ErrField) || !strings.Contains(err.Error(), "multi-vector") {
		t.Errorf("a multi-vector: %v", err)
	}
}

// TestScansAnyway: Qdrant compares all vectors if the list has room for them, or if they are too few for its index.
func TestScansAnyway(t *testing.T) {
	collection := func(rows *uint64, threshold uint64) *info {
		return &info{raw: &qdrant.CollectionInfo{PointsCount: rows, Config: &qdrant.CollectionConfig{HnswConfig: &qdrant.HnswConfigDiff{FullScanThreshold: &threshold}}}}
	}
	plain, quantized, multi, lower := fieldOf(adapters.L2, 1, true, true), fieldOf(adapters.L2, 1, true, true), fieldOf(adapters.L2, 1, true, true), fieldOf(adapters.L2, 1, true, true)
	quantized.Quantized, multi.MaxSim, lower.params = "scalar", true, &qdrant.VectorParams{HnswConfig: &qdrant.HnswConfigDiff{FullScanThreshold: qdrant.PtrOf(uint64(0))}}
	indexed := func(rows, indexed uint64) *info {
		in := collection(&rows, 0)
		in.raw.IndexedVectorsCount = &indexed
		return in
	}
	for name, c := range map[string]struct {
		in    *info
		field *field
		depth int
		want  bool
	}{
		"nothing is indexed yet":             {indexed(9000, 0), plain, 10, true},
		"something is indexed":               {indexed(9000, 1), plain, 10, false},
		"nothing is indexed, and quantized":  {indexed(9000, 0), quantized, 10, false},
		"room for all rows":                  {collection(qdrant.PtrOf(uint64(150)), 0), plain, 150, true},
		"one row more":                       {collection(qdrant.PtrOf(uint64(151)), 0), plain, 150, false},
		"below the threshold":                {collection(qdrant.PtrOf(uint64(128)), 1), plain, 10, true}, // 128 · 2 · 4 bytes
		"above the threshold":                {collection(qdrant.PtrOf(uint64(129)), 1), plain, 10, false},
		"above the threshold of its own":     {collection(qdrant.PtrOf(uint64(128)), 1), lower, 10, false},
		"the number of rows is not known":    {collection(nil, 1), plain, 10, false},
		"room for all rows of a quantized":   {collection(qdrant.PtrOf(uint64(10)), 1), quantized, 10, true},
		"quantized, below the threshold":     {collection(qdrant.PtrOf(uint64(11)), 1), quantized, 10, false},
		"multi-vectors, below the threshold": {collection(qdrant.PtrOf(uint64(11)), 1), multi, 10, false},
	} {
		if got := c.in.scansAnyway(c.field, c.depth); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestKeepsFloat32: a setting of a newer server may mean that it keeps rounded vectors only.
func TestKeepsFloat32(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 1)
	half, turbo4 := qdrant.Datatype_Float16, qdrant.Datatype(4) // of Qdrant 1.20, 4 bits for an element and no original
	onDisk := &qdrant.VectorParams{}
	onDisk.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.VarintType), 2))
	newer := &qdrant.VectorParams{}
	newer.ProtoReflect().SetUnknown(unknown)
	inside := &qdrant.ScalarQuantization{}
	inside.ProtoReflect().SetUnknown(unknown)
	kind := &qdrant.QuantizationConfig{}
	kind.ProtoReflect().SetUnknown(unknown)
	for name, c := range map[string]struct {
		params *qdrant.VectorParams
		q      *qdrant.QuantizationConfig
		want   bool
	}{
		"default":                      {&qdrant.VectorParams{}, nil, true},
		"quantized":                    {&qdrant.VectorParams{}, qdrant.NewQuantizationScalar(&qdrant.ScalarQuantization{}), true},
		"float16":                      {&qdrant.VectorParams{Datatype: &half}, nil, false},
		"4 bits":                       {&qdrant.VectorParams{Datatype: &turbo4}, nil, false},
		"in memory or on disk":         {onDisk, nil, true},
		"an unknown setting":           {newer, nil, false},
		"an unknown quantization":      {&qdrant.VectorParams{}, kind, false},
		"an unknown setting inside it": {&qdrant.VectorParams{}, qdrant.NewQuantizationScalar(inside), false},
	} {
		if got := keepsFloat32(c.params, c.q); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	if got := quantization(kind); got != "other" {
		t.Errorf("an unknown quantization is called %q", got)
	}
}

// TestTimesAndSizes: Qdrant gets the whole time of a call, in seconds; no message exceeds the
// limit.
func TestTimesAndSizes(t *testing.T) {
	s := &Store{options: Options{Timeout: 7 * time.Second}.completed()}
	if got := *s.timeoutSeconds(t.Context()); got != 7 {
		t.Errorf("without a deadline: %d s", got)
	}
	for left, want := range map[time.Duration]uint64{90 * time.Minute: 5400, 1500 * time.Millisecond: 2, time.Millisecond: 1} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		if got := *s.timeoutSeconds(ctx); got != want {
			t.Errorf("with %s left: %d s, want %d", left, got, want)
		}
		cancel()
	}
	s.options.Limits.MaxMessageBytes = 8000
	if got := s.batchOf([]*field{fieldOf(adapters.L2, 1, true, true)}); got != 2000/(64+8+1+16) {
		t.Errorf("a page has %d rows", got)
	}
	if got := s.batchOf([]*field{{VectorField: adapters.VectorField{Dim: 1 << 20}}}); got != 1 {
		t.Errorf("a page of long rows has %d", got)
	}
	rows := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(10, 100)}} // 528 bytes each, of 2,000
	var sizes []int
	for _, part := range s.splitBatches(make([]*qdrant.PointStruct, 10), rows) {
		sizes = append(sizes, len(part))
	}
	if !slices.Equal(sizes, []int{3, 3, 3, 1}) {
		t.Errorf("ten rows are written in parts of %v", sizes)
	}
	rows.Payloads, sizes = slices.Repeat([]json.RawMessage{bytes.Repeat([]byte{' '}, 200)}, 10), nil // 928 bytes each
	for _, part := range s.splitBatches(make([]*qdrant.PointStruct, 10), rows) {
		sizes = append(sizes, len(part))
	}
	if !slices.Equal(sizes, []int{2, 2, 2, 2, 2}) {
		t.Errorf("ten rows with payloads of 200 bytes are written in parts of %v", sizes)
	}
	var limit *adapters.LimitError
	long := adapters.SearchRequest{Collection: "c", Filter: strings.Repeat(" ", 5000), Probes: make([]rerank.Probe, 2)}
	p := probe{field: fieldOf(adapters.L2, 1, true, true)}
	if _, err := s.queryBatch(t.Context(), long, []probe{p, p}, nil); !errors.As(err, &limit) || limit.Limit != messageLimit || limit.Value < 10000 {
		t.Errorf("two probes with a filter of 5,000 bytes: %v", err)
	}
	without := adapters.SearchRequest{Collection: "c", Exclude: slices.Repeat([]rerank.ID{rerank.TextID("0123456789")}, 500), Probes: make([]rerank.Probe, 2)}
	if _, err := s.queryBatch(t.Context(), without, []probe{p, p}, nil); !errors.As(err, &limit) || limit.Limit != messageLimit || limit.Value < 10000 {
		t.Errorf("two probes without 500 ids of 10 bytes: %v", err)
	}
	for text, ok := range map[string]bool{"": true, "all": true, "majority": true, "quorum": true, "2": true, "0": false, "-1": false, "most": false} {
		if _, err := readConsistency(text); (err == nil) != ok || err != nil && !errors.Is(err, adapters.ErrUnsupported) {
			t.Errorf("consistency %q: %v", text, err)
		}
	}
}

// TestVersionsOfRows: on request a list has the versions of its rows, in the rows' order, unless the answer
// would show a shard key too.
func TestVersionsOfRows(t *testing.T) {
	points := []wirePoint{{id: wireValue{kind: unsigned, number: 2}, score: 1, version: 7}, {id: wireValue{kind: unsigned, number: 1}, score: 1, version: 8}}
	p := probe{field: &field{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}}}
	for name, c := range map[string]struct {
		asked, hasKey bool
		want          []uint64
	}{
		"not asked":        {want: nil},
		"ties are sorted":  {asked: true, want: []uint64{8, 7}},
		"with a shard key": {asked: true, hasKey: true, want: nil},
	} {
		points[1].hasKey = c.hasKey
		l, err := p.makeList(adapters.SearchRequest{Versions: c.asked}, &info{}, &reply{}, points)
		if err != nil || !slices.Equal(l.Versions, c.want) {
			t.Errorf("%s: versions %v, error %v, want %v", name, l.Versions, err, c.want)
		}
	}
}

// TestPartsOfRows: rows that do not exist are left out with their vectors. The parts of a scan touch
// without a gap or an overlap.
func TestPartsOfRows(t *testing.T) {
	rows := adapters.Rows{IDs: []rerank.ID{rerank.UintID(1), rerank.UintID(2), rerank.UintID(3)}, Vectors: []rerank.Matrix{{Rows: 3, Cols: 1, Data: []float32{10, 20, 30}}}}
	got := dropAbsent(rows, []bool{false, true, true})
	if len(got.IDs) != 2 || got.IDs[0] != rerank.UintID(2) || got.Vectors[0].Rows != 2 || got.Vectors[0].Row(0)[0] != 20 || got.Vectors[0].Row(1)[0] != 30 {
		t.Errorf("without the first row: %+v", got)
	}
	number := qdrant.NewIDNum
	points := []*qdrant.RetrievedPoint{{Id: number(1)}, {Id: number(3)}, {Id: number(5)}}
	for name, c := range map[string]struct {
		until, next *qdrant.PointId
		n           int
		goesOn      bool
	}{
		"no end":                 {nil, number(7), 3, true},
		"within the page":        {number(4), number(7), 2, false},
		"at a point":             {number(3), number(7), 1, false},
		"at the next page":       {number(7), number(7), 3, false},
		"between the pages":      {number(6), number(7), 3, false},
		"behind the next page":   {number(8), number(7), 3, true},
		"behind the last page":   {number(8), nil, 3, false},
		"in front of everything": {number(0), number(7), 0, false},
	} {
		kept, next := pointsBefore(c.until, points, c.next)
		if len(kept) != c.n || (next != nil) != c.goesOn {
			t.Errorf("%s: %d points, more: %t", name, len(kept), next != nil)
		}
	}
	for _, cursor := range []string{"", endCursor} {
		if p, err := readCursor(cursor); p != nil || err != nil {
			t.Errorf("cursor %q: %v, %v", cursor, p, err)
		}
	}
	if _, err := readCursor("seven"); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a cursor of another store: %v", err)
	}
}

// TestAnAnswerToFewerProbes: an answer with fewer lists than probes is an error of the store. A search
// without probes makes no call.
func TestAnAnswerToFewerProbes(t *testing.T) {
	silent := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		if answer, ok := reply.(*qdrant.GetCollectionInfoResponse); ok {
			answer.Result = &qdrant.CollectionInfo{Config: &qdrant.CollectionConfig{Params: &qdrant.CollectionParams{
				VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 2, Distance: qdrant.Distance_Dot}),
			}}}
		}
		return nil
	}
	s, err := Open(Options{Address: "localhost:1", DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(silent)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Search(t.Context(), adapters.SearchRequest{Collection: "c", Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 1}}})
	if !errors.Is(err, adapters.ErrStore) || !strings.Contains(err.Error(), "answered 0 probes of 1") {
		t.Errorf("it returned %v", err)
	}
}

// TestWhenACollectionIsDescribedAgain: the description is read again, once, after an error that an outdated
// description explains; not after other errors, and not if it was just read.
// know caches a description of a collection, and reports whether the store has one already.
func know(s *Store, in *info) (known bool) {
	_, known, _ = s.infos.Load(in.collection, func() (*info, error) { return in, nil })
	return known
}

// TestAWrongAddress is named in the error.
func TestAWrongAddress(t *testing.T) {
	if _, err := Open(Options{Address: "host%zz:6334"}); !errors.Is(err, adapters.ErrStore) || !strings.Contains(err.Error(), `address "host%zz:6334"`) {
		t.Errorf("%v", err)
	}
}

// TestWhatForgetsADescription: whatever may change what a name stands for, and nothing else.
func TestWhatForgetsADescription(t *testing.T) {
	s := record(t, Options{DescribeFor: time.Hour})
	schema := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Dim: 1}}}
	write := func(x float32) error {
		return s.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{{Rows: 1, Cols: 1, Data: []float32{x}}}})
	}
	for name, c := range map[string]struct {
		do      func() error
		forgets bool
	}{
		"create":              {func() error { return s.Create(t.Context(), schema) }, true},
		"drop":                {func() error { return s.Drop(t.Context(), "c") }, true},
		"switch of the alias": {func() error { return s.SwitchAlias(t.Context(), "c", "other") }, true},
		"switch of another":   {func() error { return s.SwitchAlias(t.Context(), "other", "c") }, false},
		"longer rows":         {func() error { return write(2) }, true},
		"rows":                {func() error { return write(1) }, false},
		"delete":              {func() error { return s.Delete(t.Context(), "c", ids(1)) }, false},
	} {
		s.infos.Forget("c")
		in := &info{collection: "c", fields: []*field{{VectorField: adapters.VectorField{Dim: 1}, norm: 1}}}
		know(s.Store, in)
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if known := know(s.Store, in); known == c.forgets {
			t.Errorf("%s: the description is known: %t", name, known)
		}
	}
}

func TestWhenACollectionIsDescribedAgain(t *testing.T) {
	described := 0
	counts := func(_ context.Context, method string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		if answer, ok := reply.(*qdrant.GetCollectionInfoResponse); ok {
			described++
			answer.Result = &qdrant.CollectionInfo{}
		}
		return nil
	}
	s, err := Open(Options{Address: "localhost:1", DescribeFor: time.Hour, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(counts)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, c := range map[string]struct {
		known            bool
		err              error
		described, calls int
	}{
		"known, and it works":     {true, nil, 0, 1},
		"not known":               {false, nil, 1, 1},
		"known, and it is stale":  {true, adapters.ErrField, 1, 2},
		"just read":               {false, adapters.ErrField, 1, 1},
		"an error of the request": {true, adapters.ErrFilter, 0, 1},
		"the store is down":       {true, adapters.ErrUnavailable, 0, 1},
	} {
		s.infos.Forget("c")
		if c.known {
			know(s, &info{collection: "c"})
		}
		described = 0
		calls := 0
		err := s.withInfo(t.Context(), "c", func(*info) error { calls++; return c.err })
		if !errors.Is(err, c.err) || described != c.described || calls != c.calls {
			t.Errorf("%s: described %d times, called %d times, %v; want %d and %d", name, described, calls, err, c.described, c.calls)
		}
	}
	s.infos.Keep = 0
	if described = 0; s.withInfo(t.Context(), "c", func(*info) error { return nil }) != nil || described != 1 {
		t.Errorf("an old description is read again %d times", described)
	}
}

// TestExhaustiveSearches: a request for an exhaustive search is passed on wherever the field permits one,
// also if its vectors are quantized and the list is not called exact.
func TestExhaustiveSearches(t *testing.T) {
	s := &Store{options: Options{}.completed()}
	for name, c := range map[string]struct {
		f     *field
		asked bool
		want  bool
	}{
		"float32":         {fieldOf(adapters.InnerProduct, 1, true, true), true, true},
		"quantized":       {fieldOf(adapters.InnerProduct, 1, false, true), true, true},
		"it cannot":       {fieldOf(adapters.InnerProduct, 1, true, false), true, false},
		"nobody asks for": {fieldOf(adapters.InnerProduct, 1, true, true), false, false},
	} {
		p := probe{Probe: rerank.Probe{Depth: 5}, field: c.f, sent: []float32{1}, scan: c.asked && c.f.Exact}
		b, err := s.queryBatch(t.Context(), adapters.SearchRequest{Exact: c.asked, Consistency: "majority", EF: 99}, []probe{p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		params := b.GetQueryPoints()[0].GetParams()
		if params.GetExact() != c.want || (params.GetHnswEf() == 99) == c.want || params.GetQuantization().GetIgnore() != c.want || b.GetReadConsistency() == nil {
			t.Errorf("%s: %v, consistency %v", name, params, b.GetReadConsistency())
		}
	}
}

// TestPagesGoOn: a scan ends with an error if the next page does not begin later than this one.
func TestPagesGoOn(t *testing.T) {
	number, text := qdrant.NewIDNum, qdrant.NewIDUUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	for _, c := range []struct {
		from, next *qdrant.PointId
		goesOn     bool
	}{{nil, number(0), true}, {number(0), nil, true}, {number(9), number(10), true}, {number(9), text, true}, {number(9), number(9), false}, {number(9), number(8), false}, {text, text, false}} {
		if err := checkProgress(c.from, c.next); (err == nil) != c.goesOn || err != nil && !errors.Is(err, adapters.ErrStore) {
			t.Errorf("from %v to %v: %v", c.from, c.next, err)
		}
	}
}

// TestPointsAreAskedForOnce: several spellings of one UUID are one point, which is fetched once.
func TestPointsAreAskedForOnce(t *testing.T) {
	const lower, upper = "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"
	one := rerank.UintID(1)
	points, place, err := distinctPoints([]rerank.ID{rerank.TextID(upper), one, rerank.TextID(lower), one})
	if err != nil || len(points) != 2 || idOf(points[0]) != rerank.TextID(lower) || idOf(points[1]) != one {
		t.Errorf("%v, %v", points, err)
	}
	if at := place[rerank.TextID(lower)]; len(place) != 2 || at != 0 || place[one] != 1 {
		t.Errorf("places %v", place)
	}
	if _, _, err := distinctPoints([]rerank.ID{one, rerank.TextID("no id")}); !errors.Is(err, adapters.ErrID) {
		t.Errorf("an id that Qdrant cannot have: %v", err)
	}
}

// TestLongerVectorsAreSampled: the error of scores follows from the norms in the collection's description.
// When longer vectors are written, the description is read again.
func TestLongerVectorsAreSampled(t *testing.T) {
	fails := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
		return errors.New("no server")
	}
	s, err := Open(Options{Address: "localhost:1", DescribeFor: time.Hour, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(fails)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for length, want := range map[float32]bool{1: true, 2: true, 2.5: false} {
		f := fieldOf(adapters.InnerProduct, 2, true, true)
		s.infos.Forget("c")
		know(s, &info{collection: "c", fields: []*field{f}})
		rows := adapters.Rows{IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{0, length}}}}
		if err := s.Write(t.Context(), "c", adapters.Schema{Collection: "c", Fields: []adapters.VectorField{f.VectorField}}, rows); err == nil {
			t.Errorf("length %v: there is no server, and it is written", length)
		}
		if known := know(s, &info{collection: "c"}); known != want {
			t.Errorf("after a vector of length %v, in a field of vectors up to 2, the description is known: %t", length, known)
		}
	}
}

// TestPartsOfNumbers: parts of numeric ids are even, wherever the ids begin and however far apart they are.
func TestPartsOfNumbers(t *testing.T) {
	const most = math.MaxUint64
	for _, c := range []struct {
		least, greatest uint64
		want            []uint64
	}{{10, 110, []uint64{35, 60, 85}}, {0, most, []uint64{most / 4, most / 2, most/4*3 + 2}}, {most - 4, most, []uint64{most - 3, most - 2, most - 1}}, {7, 7, []uint64{7, 7, 7}}} {
		for i, want := range c.want {
			if got := numberAt(c.least, c.greatest, i+1, 4); got != want {
				t.Errorf("from %d to %d the part %d begins at %d, want %d", c.least, c.greatest, i+1, got, want)
			}
		}
	}
}

// TestExcludedPoints: a filter without some ids keeps every condition of its own.
func TestExcludedPoints(t *testing.T) {
	condition := func(key string) []*qdrant.Condition { return []*qdrant.Condition{qdrant.NewMatch(key, "v")} }
	f := &qdrant.Filter{
		Must: condition("must"), Should: condition("should"), MustNot: condition("must_not"), MinShould: &qdrant.MinShould{Conditions: condition("min"), MinCount: 1},
	}
	for owner, conditions := range map[string]int{"": 2, "owner": 2} {
		got, err := without(f, []rerank.ID{rerank.UintID(7)}, owner)
		if err != nil || len(got.GetMustNot()) < conditions || got.GetMustNot()[0] != f.GetMustNot()[0] || !slices.Equal(got.GetMust(), f.GetMust()) ||
			!slices.Equal(got.GetShould(), f.GetShould()) || got.GetMinShould() != f.GetMinShould() || len(f.GetMustNot()) != 1 {
			t.Errorf("owner %q: %v, %v", owner, got, err)
		}
	}
	if got, err := without(f, nil, ""); err != nil || got != f {
		t.Errorf("without nothing: %v, %v", got, err)
	}
}

// TestRowsOfNobody: a filter for the rows of no owner selects none, where one without conditions would select all.
func TestRowsOfNobody(t *testing.T) {
	if f := ownedBy("owner", nil); len(f.GetShould()) != 1 || f.GetShould()[0].GetField().GetMatch() == nil || len(f.GetShould()[0].GetField().GetMatch().GetKeywords().GetStrings()) != 0 {
		t.Errorf("%v", f)
	}
	if f := ownedBy("owner", []rerank.ID{rerank.UintID(1), rerank.TextID("a")}); len(f.GetShould()) != 2 {
		t.Errorf("of a number and a text: %v", f)
	}
}

// TestNormsOfASample: the greatest norm in a field is taken to be twice the greatest of a sample, and 1 at least.
func TestNormsOfASample(t *testing.T) {
	of := func(x ...float32) *qdrant.ScoredPoint {
		data := &qdrant.VectorOutput{Vector: &qdrant.VectorOutput_Dense{Dense: &qdrant.DenseVector{Data: x}}}
		return &qdrant.ScoredPoint{Vectors: &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vector{Vector: data}}}
	}
	infinite := float32(math.Inf(1))
	for _, c := range []struct {
		sample []*qdrant.ScoredPoint
		want   float64
	}{{nil, 1}, {[]*qdrant.ScoredPoint{of(0.25, 0)}, 1}, {[]*qdrant.ScoredPoint{of(3, 4), of(1, 0)}, 10}, {[]*qdrant.ScoredPoint{of(infinite, 0), of(1, 0)}, 2}} {
		f := &field{norm: 1}
		if f.sampleNorm(c.sample); f.norm != c.want {
			t.Errorf("of %v: %v, want %v", c.sample, f.norm, c.want)
		}
	}
}

// TestPayloadsAreOneObject: what follows a payload's object is refused, and not left out.
func TestPayloadsAreOneObject(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "{}": true, ` {"a":1} `: true, "{} x": false, "{}{}": false, "{},": false, "[]": false, `{"a":9223372036854775808}`: false} {
		if _, err := payloadOf([]byte(text)); (err == nil) != ok || err != nil && !errors.Is(err, adapters.ErrStore) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestIndexing: a collection that Qdrant works on, or has yet to work on, is not indexed yet.
func TestIndexing(t *testing.T) {
	points, indexed := uint64(7), uint64(3)
	for status, want := range map[qdrant.CollectionStatus]string{
		qdrant.CollectionStatus_Green: "", qdrant.CollectionStatus_Red: "", qdrant.CollectionStatus_UnknownCollectionStatus: "",
		qdrant.CollectionStatus_Yellow: "status yellow, 3 of 7 vectors in an index", qdrant.CollectionStatus_Grey: "status grey, 3 of 7 vectors in an index",
	} {
		in := &info{raw: &qdrant.CollectionInfo{Status: status, PointsCount: &points, IndexedVectorsCount: &indexed}}
		if got := in.indexing(); got != want {
			t.Errorf("%v: %q, want %q", status, got, want)
		}
	}
}

package qdrant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// info is the cached description of a collection.
type info struct {
	collection string
	fields     []*field // sorted by name
	maxSim     []*field // fields with several vectors a row, also sorted
	raw        *qdrant.CollectionInfo
	limits     adapters.Limits
	noExact    bool // strict mode forbids exact search
}

// field is a dense vector field.
type field struct {
	adapters.VectorField
	params *qdrant.VectorParams
	// norm is an upper estimate of the rows' norms, for rounding errors.
	norm float64
}

// Describe reads a collection's configuration. It leaves out sparse fields, which no probe
// can search.
func (s *Store) Describe(ctx context.Context, collection string) (adapters.Description, error) {
	in, err := s.refresh(ctx, collection)
	if err != nil {
		return adapters.Description{}, err
	}
	d := adapters.Description{Rows: -1, Limits: in.limits, Settings: in.indexSettings(), Indexing: in.indexing()}
	if in.raw.PointsCount != nil {
		d.Rows = int64(in.raw.GetPointsCount())
	}
	for _, f := range in.fields {
		d.Fields = append(d.Fields, f.VectorField)
	}
	for _, f := range in.maxSim {
		d.MaxSim = append(d.MaxSim, f.VectorField)
	}
	for name := range in.raw.GetConfig().GetParams().GetSparseVectorsConfig().GetMap() {
		if d.Others == nil {
			d.Others = map[string]string{}
		}
		d.Others[name] = "sparse"
	}
	return d, nil
}

// Count counts the points exactly. The number in a collection's description is an
// estimate.
func (s *Store) Count(ctx context.Context, collection string) (int64, error) {
	answer, err := call(ctx, s, "count", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.CountResponse, error) {
		return c.Points().Count(ctx, &qdrant.CountPoints{CollectionName: collection, Exact: qdrant.PtrOf(true), Timeout: s.timeoutSeconds(ctx)})
	})
	return int64(answer.GetResult().GetCount()), err
}

// info returns the description of a collection and reads it again if it is old. fresh
// says whether it was just read.
func (s *Store) info(ctx context.Context, collection string) (in *info, fresh bool, err error) {
	in, cached, err := s.infos.Load(collection, func() (*info, error) { return s.readInfo(ctx, collection) })
	if cached {
		err = ctx.Err()
	}
	return in, !cached, err
}

// withInfo calls do with the description of the collection. If do fails in a way that
// a stale description explains, withInfo reads the description again and calls do once
// more.
func (s *Store) withInfo(ctx context.Context, collection string, do func(*info) error) error {
	in, fresh, err := s.info(ctx, collection)
	if err != nil {
		return err
	}
	err = do(in)
	if err == nil || fresh || !isStale(err) {
		return err
	}
	if in, err = s.refresh(ctx, collection); err != nil {
		return err
	}
	return do(in)
}

// refresh reads the description of a collection again.
func (s *Store) refresh(ctx context.Context, collection string) (*info, error) {
	s.infos.Forget(collection)
	in, _, err := s.info(ctx, collection)
	return in, err
}

// readInfo reads the description of a collection, and estimates the norms of its vectors.
func (s *Store) readInfo(ctx context.Context, collection string) (*info, error) {
	answer, err := call(ctx, s, "describe", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.GetCollectionInfoResponse, error) {
		return c.Collections().Get(ctx, &qdrant.GetCollectionInfoRequest{CollectionName: collection})
	})
	if err != nil {
		return nil, err
	}
	in := &info{collection: collection, raw: answer.GetResult(), limits: s.options.Limits}
	in.readStrictMode()
	if err := in.readFields(); err != nil {
		return nil, fmt.Errorf("qdrant at %s, collection %q: %w", s.options.Address, collection, err)
	}
	if err := s.readNorms(ctx, in); err != nil {
		return nil, err
	}
	return in, nil
}

// readStrictMode lowers the limits to the collection's strict-mode limits.
func (in *info) readStrictMode() {
	strict := in.raw.GetConfig().GetStrictModeConfig()
	if !strict.GetEnabled() {
		return
	}
	narrow := func(limit *int, to uint64) {
		if to > 0 && to < uint64(*limit) {
			*limit = int(to)
		}
	}
	narrow(&in.limits.MaxDepth, uint64(strict.GetMaxQueryLimit()))
	narrow(&in.limits.MaxProbes, strict.GetSearchMaxBatchsize())
	in.noExact = strict.SearchAllowExact != nil && !strict.GetSearchAllowExact()
}

func (in *info) readFields() error {
	config := in.raw.GetConfig().GetParams().GetVectorsConfig()
	params := maps.Clone(config.GetParamsMap().GetMap())
	if one := config.GetParams(); one != nil {
		params = map[string]*qdrant.VectorParams{"": one}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		p := params[name]
		if p.GetSize() > math.MaxInt32 {
			return fmt.Errorf("%w: field %q has dimension %d", adapters.ErrStore, name, p.GetSize())
		}
		q := cmp.Or(p.GetQuantizationConfig(), in.raw.GetConfig().GetQuantizationConfig())
		f := &field{params: p, VectorField: adapters.VectorField{
			Name:          name,
			Dim:           int(p.GetSize()),
			Metric:        metricOf(p.GetDistance()),
			FullPrecision: keepsFloat32(p, q),
			Datatype:      datatypeOf(p.GetDatatype()),
			Exact:         !in.noExact,
			Chain:         int(p.GetSize())/lanes + rest,
			Unsearched:    isUnindexed(p.GetHnswConfig()),
		}}
		if quantization(q) != "none" {
			f.Quantized, f.Rescores = quantization(q), true
		}
		if p.GetMultivectorConfig() != nil { // MAX_SIM, the only comparison that there is
			f.MaxSim, f.norm = true, math.Inf(1) // which is not sampled
			in.maxSim = append(in.maxSim, f)
			continue
		}
		in.fields = append(in.fields, f)
	}
	return nil
}

// memoryFields are the numbers of the fields that say where Qdrant 1.20 keeps vectors, which changes nothing in what it
// keeps.
var memoryFields = map[protoreflect.Name]protowire.Number{
	"VectorParams": 8, "ScalarQuantization": 4, "ProductQuantization": 3, "BinaryQuantization": 4, "TurboQuantization": 3,
}

// keepsFloat32 reports whether Qdrant keeps the vectors of a field as float32, beside what its
// quantization q makes of them. It reports false if the configuration has a datatype or a setting
// that this version does not know: a newer server may keep rounded vectors only.
func keepsFloat32(p *qdrant.VectorParams, q *qdrant.QuantizationConfig) bool {
	isFloat32 := p.GetDatatype() == qdrant.Datatype_Default || p.GetDatatype() == qdrant.Datatype_Float32
	known := isKnown(p.ProtoReflect()) && isKnown(q.ProtoReflect())
	q.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		known = known && (f.Message() == nil || isKnown(v.Message()))
		return known
	})
	return isFloat32 && known
}

// isKnown reports whether a message has no field that its type lacks, but for where vectors are kept.
func isKnown(m protoreflect.Message) bool {
	for rest := m.GetUnknown(); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 || number != memoryFields[m.Descriptor().Name()] {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// scansAnyway reports whether a search of a field compares all vectors whether or not it asks for
// that, so that asking makes its list exact and costs nothing: because the list has room for all
// rows, because no row is in an index yet, or because no segment can have more vectors than Qdrant
// compares without its index. These numbers may be out of date, which changes what a search costs,
// and not what it proves.
func (in *info) scansAnyway(f *field, depth int) bool {
	if in.raw == nil || in.raw.PointsCount == nil {
		return false
	}
	rows := in.raw.GetPointsCount()
	if rows <= uint64(depth) {
		return true
	}
	if f.Quantized != "" || f.MaxSim { // the index compares less than whole vectors, or more than one for a row
		return false
	}
	if indexed := in.raw.IndexedVectorsCount; indexed != nil && *indexed == 0 {
		return true
	}
	threshold := in.raw.GetConfig().GetHnswConfig().GetFullScanThreshold()
	if h := f.params.GetHnswConfig(); h != nil && h.FullScanThreshold != nil {
		threshold = h.GetFullScanThreshold()
	}
	const kilobyte, element = 1 << 10, 4
	return rows*uint64(f.Dim)*element <= threshold*kilobyte
}

// Qdrant sums float32 products in at least sixteen sums at a time, on every processor that
// it is built for (AVX: four of eight lanes, SSE and NEON: four of four). rest is the most
// additions that follow: of the sums, and of the elements that fill no group.
const lanes, rest = 16, 48

// datatypeOf converts Qdrant's datatype. A datatype without a constant keeps Qdrant's
// name.
func datatypeOf(d qdrant.Datatype) adapters.Datatype {
	switch d {
	case qdrant.Datatype_Default, qdrant.Datatype_Float32:
		return adapters.Float32
	case qdrant.Datatype_Float16:
		return adapters.Float16
	case qdrant.Datatype_Uint8:
		return adapters.UInt8
	default:
		return adapters.Datatype(d.String())
	}
}

// metricOf converts Qdrant's distance. A distance without a constant keeps Qdrant's
// name.
func metricOf(d qdrant.Distance) adapters.Metric {
	switch d {
	case qdrant.Distance_Dot:
		return adapters.InnerProduct
	case qdrant.Distance_Cosine:
		return adapters.Cosine
	case qdrant.Distance_Euclid:
		return adapters.L2
	default:
		return adapters.Metric(d.String())
	}
}

// field returns the field with the given name. "" finds the unnamed or the only field.
func (in *info) field(name string) (*field, error) {
	names := make([]string, len(in.fields))
	for i, f := range in.fields {
		if f.Name == name {
			return f, nil
		}
		names[i] = f.Name
	}
	if name == "" && len(in.fields) == 1 {
		return in.fields[0], nil
	}
	if _, multi := in.raw.GetConfig().GetParams().GetVectorsConfig().GetParamsMap().GetMap()[name]; multi {
		return nil, fmt.Errorf("%w: vector %q of collection %q is a multi-vector, whose vectors are read alone", adapters.ErrField, name, in.collection)
	}
	return nil, fmt.Errorf("%w: collection %q has no dense vector %q; it has %q", adapters.ErrField, in.collection, name, names)
}

// searched returns a field that a probe can search, also one of several vectors a row.
func (in *info) searched(name string) (*field, error) {
	f, err := in.field(name)
	if err == nil {
		return f, nil
	}
	for _, multi := range in.maxSim {
		if multi.Name == name || name == "" && len(in.fields) == 0 && len(in.maxSim) == 1 {
			return multi, nil
		}
	}
	return nil, err
}

// resolve returns the fields to read. A field of several vectors a row is read alone.
func (in *info) resolve(names []string) ([]*field, error) {
	if len(names) == 1 {
		f, err := in.searched(names[0])
		return []*field{f}, err
	}
	fields := make([]*field, len(names))
	for i, name := range names {
		var err error
		if fields[i], err = in.field(name); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// normSample is the number of rows from which norms are estimated.
const normSample = 64

// readNorms estimates the greatest norm in each inner-product field as twice the
// greatest norm of a random sample. The rounding error of scores depends on it, and
// Qdrant does not tell it. For unit vectors and cosine fields the norm is 1.
func (s *Store) readNorms(ctx context.Context, in *info) error {
	var dots []*field
	for _, f := range in.fields {
		f.norm = 1
		if f.Metric == adapters.InnerProduct {
			dots = append(dots, f)
		}
	}
	if len(dots) == 0 || in.raw.GetPointsCount() == 0 {
		return nil
	}
	answer, err := call(ctx, s, "sample", in.collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.QueryResponse, error) {
		return c.Points().Query(ctx, &qdrant.QueryPoints{
			CollectionName: in.collection,
			Query:          qdrant.NewQuerySample(qdrant.Sample_Random),
			Limit:          qdrant.PtrOf(uint64(min(normSample, in.limits.MaxDepth))),
			WithPayload:    qdrant.NewWithPayload(false),
			WithVectors:    vectorsSelector(dots),
			Timeout:        s.timeoutSeconds(ctx),
		})
	})
	if err != nil {
		return err
	}
	for _, f := range dots {
		f.sampleNorm(answer.GetResult())
	}
	return nil
}

// sampleNorm raises the field's greatest norm to twice the greatest norm of a sample.
func (f *field) sampleNorm(points []*qdrant.ScoredPoint) {
	for _, p := range points {
		if n := 2 * rerank.Norm(vectorOf(p.GetVectors(), f.Name)); !math.IsInf(n, 0) && n > f.norm {
			f.norm = n
		}
	}
}

// indexing says how far Qdrant is with its index, "" if it is done. Grey are optimizations that wait for a write.
func (in *info) indexing() string {
	status := in.raw.GetStatus()
	if status != qdrant.CollectionStatus_Yellow && status != qdrant.CollectionStatus_Grey {
		return ""
	}
	return fmt.Sprintf("status %s, %d of %d vectors in an index", strings.ToLower(status.String()), in.raw.GetIndexedVectorsCount(), in.raw.GetPointsCount())
}

// indexSettings returns the settings on which a list's recall depends.
func (in *info) indexSettings() map[string]string {
	config := in.raw.GetConfig()
	out := map[string]string{
		"segments":       strconv.FormatUint(in.raw.GetSegmentsCount(), 10),
		"shards":         strconv.FormatUint(uint64(config.GetParams().GetShardNumber()), 10),
		"hnsw":           hnsw(config.GetHnswConfig()),
		"quantization":   quantization(config.GetQuantizationConfig()),
		"indexing_above": strconv.FormatUint(config.GetOptimizerConfig().GetIndexingThreshold(), 10) + " kB",
	}
	for _, f := range slices.Concat(in.fields, in.maxSim) {
		prefix := f.Name + "."
		out[prefix+"datatype"] = f.params.GetDatatype().String()
		if h := f.params.GetHnswConfig(); h != nil {
			out[prefix+"hnsw"] = hnsw(h)
		}
		if q := f.params.GetQuantizationConfig(); q != nil {
			out[prefix+"quantization"] = quantization(q)
		}
	}
	return out
}

func hnsw(h *qdrant.HnswConfigDiff) string {
	return fmt.Sprintf("m %d, ef_construct %d, full_scan_threshold %d kB", h.GetM(), h.GetEfConstruct(), h.GetFullScanThreshold())
}

func quantization(q *qdrant.QuantizationConfig) string {
	switch {
	case q.GetScalar() != nil:
		return "scalar"
	case q.GetProduct() != nil:
		return "product"
	case q.GetBinary() != nil:
		return "binary"
	case q.GetTurboquant() != nil:
		return "turbo"
	case q != nil:
		return "other" // of a newer server
	default:
		return "none"
	}
}

// isUnindexed reports whether a field has no index.
func isUnindexed(h *qdrant.HnswConfigDiff) bool { return h != nil && h.M != nil && h.GetM() == 0 }

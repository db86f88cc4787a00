package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/qdrant/go-client/qdrant"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// firstID is a row that exists from the start.
const firstID = 1 << 30

// content is the vector of a version of a row.
func content(id, version uint64) []float32 { return vector(rand.New(rand.NewPCG(id, version))) }

// writer writes rows of its own, one after the other. After an unacknowledged write it never writes
// that row again, because the row may be in either state, and may still change.
type writer struct {
	upsert func(ctx context.Context, id uint64, v []float32) error
	rng    *rand.Rand
	first  uint64 // its first id

	next    uint64
	acked   map[uint64]uint64 // versions by id
	perhaps map[uint64]uint64 // versions of unacknowledged writes, by id
	sent    int
}

func (x *writer) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		x.one(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (x *writer) one(ctx context.Context) {
	id := x.first + x.next
	if known := slices.Sorted(maps.Keys(x.acked)); len(known) > 0 && x.rng.IntN(3) > 0 {
		id = known[x.rng.IntN(len(known))]
		if _, unsure := x.perhaps[id]; unsure {
			id = x.first + x.next
		}
	}
	if id == x.first+x.next {
		x.next++
	}
	version := x.acked[id] + 1
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	x.sent++
	if err := x.upsert(call, id, content(id, version)); err != nil {
		x.perhaps[id] = version
		return
	}
	x.acked[id] = version
}

// writers returns two writers for each sidecar of Qdrant, over gRPC and REST, and one for the
// sidecar of Milvus.
func (w *world) writers() (ofQdrant, ofMilvus []*writer) {
	n := uint64(0)
	add := func(upsert func(context.Context, uint64, []float32) error) *writer {
		n++
		return &writer{upsert: upsert, rng: rand.New(rand.NewPCG(n, 3)), first: n << 20, acked: map[uint64]uint64{}, perhaps: map[uint64]uint64{}}
	}
	for _, s := range []*sidecar{w.one, w.two} {
		ofQdrant = append(ofQdrant, add(upsertGRPC(s)), add(upsertREST(s)))
	}
	direct := milvuspb.NewMilvusServiceClient(w.three.proxy)
	ofMilvus = append(ofMilvus, add(func(ctx context.Context, id uint64, v []float32) error {
		return milvusUpsert(ctx, direct, written, map[uint64][]float32{id: v})
	}))
	return ofQdrant, ofMilvus
}

func upsertGRPC(s *sidecar) func(context.Context, uint64, []float32) error {
	c := qdrant.NewPointsClient(s.proxy)
	return func(ctx context.Context, id uint64, v []float32) error {
		_, err := c.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: written, Wait: qdrant.PtrOf(true),
			Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...)}}})
		return err
	}
}

func upsertREST(s *sidecar) func(context.Context, uint64, []float32) error {
	return func(ctx context.Context, id uint64, v []float32) error {
		var ignored any
		_, err := s.post(ctx, http.MethodPut, "/collections/"+written+"/points?wait=true",
			map[string]any{"points": []map[string]any{{"id": id, "vector": v}}}, &ignored)
		return err
	}
}

func milvusUpsert(ctx context.Context, c milvuspb.MilvusServiceClient, collection string, rows map[uint64][]float32) error {
	var ids []int64
	var values []float32
	for id, v := range rows {
		ids, values = append(ids, int64(id)), append(values, v...)
	}
	r, err := c.Upsert(ctx, &milvuspb.UpsertRequest{CollectionName: collection, NumRows: uint32(len(ids)), FieldsData: []*schemapb.FieldData{
		{FieldName: "id", Type: schemapb.DataType_Int64, Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
			Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: ids}}}}},
		{FieldName: "vec", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: dim, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: values}}}}},
	}})
	if err == nil && (r.GetStatus().GetCode() != 0 || r.GetStatus().GetErrorCode() != commonpb.ErrorCode_Success) { //nolint:staticcheck // old servers fill it
		err = fmt.Errorf("status %d: %s", r.GetStatus().GetCode(), r.GetStatus().GetReason())
	}
	return err
}

// writing runs all writers until stop, which waits for them.
func writing(ctx context.Context, all []*writer, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, x := range all {
		wg.Go(func() { x.run(ctx, every) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// qdrantRows reads the rows of the written collection directly from Qdrant.
func (w *world) qdrantRows(t *testing.T) map[uint64][]float32 {
	t.Helper()
	rows := map[uint64][]float32{}
	var from *qdrant.PointId
	for {
		r, err := qdrant.NewPointsClient(w.toQdrant).Scroll(within(t, time.Minute), &qdrant.ScrollPoints{CollectionName: written,
			Limit: qdrant.PtrOf(uint32(1000)), Offset: from, WithVectors: qdrant.NewWithVectors(true)})
		must(t, err)
		for _, p := range r.GetResult() {
			v := p.GetVectors().GetVector()
			data := v.GetDense().GetData()
			if len(data) == 0 {
				data = v.GetData() //nolint:staticcheck // servers fill either place
			}
			rows[p.GetId().GetNum()] = data
		}
		if from = r.GetNextPageOffset(); from == nil {
			return rows
		}
	}
}

func (w *world) milvusRows(t *testing.T) map[uint64][]float32 {
	t.Helper()
	rows := map[uint64][]float32{}
	for from := int64(0); ; {
		ids, values := w.milvusBetween(t, from, from+4096, 4096)
		for i, id := range ids {
			if rows[uint64(id)] != nil {
				t.Errorf("Milvus has row %d twice", id)
			}
			rows[uint64(id)] = values[i*dim : (i+1)*dim]
		}
		from += 4096
		if len(ids) > 0 {
			continue
		}
		for from < firstID { // the ids of the next writer, or the row from the start
			next := (from>>20 + 1) << 20
			if next > 8<<20 {
				next = firstID
			}
			if any, _ := w.milvusBetween(t, from, next, 1); len(any) > 0 {
				break
			}
			from = next
		}
		if from > firstID {
			return rows
		}
	}
}

// milvusBetween reads rows whose ids are in the range [from, to], at most the given number.
func (w *world) milvusBetween(t *testing.T, from, to, most int64) (ids []int64, values []float32) {
	t.Helper()
	r, err := milvuspb.NewMilvusServiceClient(w.toMilvus).Query(within(t, time.Minute), &milvuspb.QueryRequest{CollectionName: written,
		Expr: fmt.Sprintf("id >= %d and id < %d", from, to), OutputFields: []string{"id", "vec"}, ConsistencyLevel: commonpb.ConsistencyLevel_Strong,
		QueryParams: []*commonpb.KeyValuePair{{Key: "limit", Value: strconv.FormatInt(most, 10)}}})
	must(t, err)
	for _, f := range r.GetFieldsData() {
		switch f.GetFieldName() {
		case "id":
			ids = f.GetScalars().GetLongData().GetData()
		case "vec":
			values = f.GetVectors().GetFloatVector().GetData()
		}
	}
	return ids, values
}

// acknowledged compares a store's rows with the acknowledged writes. A store whose upserts are a
// delete and an insert can lose a row to a write that was not acknowledged.
func acknowledged(t *testing.T, store string, rows map[uint64][]float32, all []*writer, deletesFirst bool) (acked, unsure int) {
	t.Helper()
	allowed := map[uint64]bool{firstID: true}
	lost := 0
	for _, x := range all {
		acked, unsure = acked+x.sent-len(x.perhaps), unsure+len(x.perhaps)
		for id, version := range x.acked {
			allowed[id] = true
			later, has := x.perhaps[id]
			got := rows[id]
			switch {
			case slices.Equal(got, content(id, version)):
			case has && slices.Equal(got, content(id, later)):
			case has && got == nil && deletesFirst:
				t.Logf("%s: row %d is gone: an upsert that was not acknowledged deleted it", store, id)
			default:
				if lost++; lost <= 5 {
					t.Errorf("%s: row %d is not as version %d, which was acknowledged (there: %v; later, not acknowledged: %v)", store, id, version, got != nil, has)
				}
			}
		}
		for id, version := range x.perhaps {
			allowed[id] = true
			if got := rows[id]; got != nil && x.acked[id] == 0 && !slices.Equal(got, content(id, version)) {
				t.Errorf("%s: row %d is nothing that was written", store, id)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%s: %d acknowledged writes are lost", store, lost)
	}
	for id := range rows {
		if !allowed[id] {
			t.Errorf("%s: row %d was never written", store, id)
		}
	}
	return acked, unsure
}

// derived reconciles once, and then compares a sidecar's derived data with the store's rows: by a
// second reconcile, which must find no difference, and by searches.
func (w *world) derived(t *testing.T, s *sidecar, rows map[uint64][]float32) {
	t.Helper()
	admin := likenessv1.NewAdminServiceClient(s.conn)
	first, err := admin.Reconcile(within(t, 2*time.Minute), &likenessv1.ReconcileRequest{Route: "live"})
	if err != nil {
		t.Errorf("sidecar %s: reconcile: %v", s.name, err)
		return
	}
	w.followed(t, s)
	second, err := admin.Reconcile(within(t, 2*time.Minute), &likenessv1.ReconcileRequest{Route: "live"})
	if d := second.GetDrift(); err != nil || d.GetMissing()+d.GetChanged()+d.GetSurplus()+d.GetUnfit() > 0 || int(d.GetRows()) != len(rows) {
		t.Errorf("sidecar %s: after one reconcile (%v) another found %v of %d rows, %v", s.name, first.GetDrift(), d, len(rows), err)
	}
	t.Logf("sidecar %s: one reconcile of %d rows found %v", s.name, len(rows), first.GetDrift())
	now := &oracle{w: w.oracle.w, rows: rows}
	ask := api(s, "live")
	for n := range 20 {
		q := content(uint64(n), 99)
		a, err := ask(within(t, 20*time.Second), q)
		if err != nil || a.flag != "" || now.check(a.hits, q) != "" {
			t.Errorf("sidecar %s: search %d of what was written: %v, %q, %s", s.name, n, err, a.flag, now.check(a.hits, q))
			return
		}
	}
}

// followed waits until a sidecar has no pending write, because it proves nothing before.
func (w *world) followed(t *testing.T, s *sidecar) {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		m, err := s.metrics(ctx)
		if pending, known := m[`likeness_follow_pending{route="live"}`]; err == nil && known && pending == 0 && m[`likeness_follow_stale{route="live"}`] == 0 {
			return
		}
		if rest(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Errorf("sidecar %s: a minute after the last write %v are pending, stale: %v", s.name, m[`likeness_follow_pending{route="live"}`], m[`likeness_follow_stale{route="live"}`])
			return
		}
	}
}

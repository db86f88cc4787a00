package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

func rowsOfIDs(all ...uint64) []*row {
	out := make([]*row, len(all))
	for i, id := range idsOf(all...) {
		out[i] = &row{id: id}
	}
	return out
}

// TestApplyEach: a row that fails prevents no other row from being applied. An error of the whole
// collection leaves all its rows unapplied.
func TestApplyEach(t *testing.T) {
	rows := rowsOfIDs(0, 1, 2, 3, 4)
	bad := errors.New("the row is refused")
	for name, c := range map[string]struct {
		fails           map[uint64]error // errors by row
		failed, applied []uint64
		unapplied       []uint64
		err             error
	}{
		"no row fails":         {nil, nil, []uint64{0, 1, 2, 3, 4}, nil, nil},
		"one row fails":        {map[uint64]error{2: bad}, []uint64{2}, []uint64{0, 1, 3, 4}, nil, nil},
		"two rows fail":        {map[uint64]error{0: bad, 4: bad}, []uint64{0, 4}, []uint64{1, 2, 3}, nil, nil},
		"an id of no row":      {map[uint64]error{3: adapters.ErrID}, nil, []uint64{0, 1, 2, 4}, nil, nil},
		"the database is down": {map[uint64]error{0: adapters.ErrUnavailable}, nil, nil, []uint64{0, 1, 2, 3, 4}, adapters.ErrUnavailable},
		"it goes down":         {map[uint64]error{0: bad, 3: adapters.ErrUnavailable}, []uint64{0}, []uint64{1}, []uint64{2, 3, 4}, adapters.ErrUnavailable},
		"it goes down early":   {map[uint64]error{0: bad, 1: adapters.ErrUnavailable}, []uint64{0}, nil, []uint64{1, 2, 3, 4}, adapters.ErrUnavailable},
		"it is not found":      {map[uint64]error{0: adapters.ErrNotFound}, nil, nil, []uint64{0, 1, 2, 3, 4}, adapters.ErrNotFound},
		"another dimension":    {map[uint64]error{0: adapters.ErrDimension}, nil, nil, []uint64{0, 1, 2, 3, 4}, adapters.ErrDimension},
		"it refuses":           {map[uint64]error{0: adapters.ErrRefused}, nil, nil, []uint64{0, 1, 2, 3, 4}, adapters.ErrRefused},
	} {
		var applied []*row
		failed, unapplied, err := applyEach(t.Context(), rows, func(some []*row) error {
			for i, r := range rows {
				if e := c.fails[uint64(i)]; e != nil && slices.Contains(some, r) {
					return fmt.Errorf("applying: %w", e)
				}
			}
			applied = append(applied, some...)
			return nil
		})
		var failedRows []*row
		for _, f := range failed {
			failedRows = append(failedRows, f.row)
		}
		pick := func(indices []uint64) (out []*row) {
			for _, i := range indices {
				out = append(out, rows[i])
			}
			return out
		}
		if !slices.Equal(failedRows, pick(c.failed)) || !slices.Equal(applied, pick(c.applied)) || !slices.Equal(unapplied, pick(c.unapplied)) || !errors.Is(err, c.err) {
			t.Errorf("%s: %d failed, %d applied, %d unapplied, %v", name, len(failed), len(applied), len(unapplied), err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, unapplied, err := applyEach(ended, rows, func([]*row) error { return bad }); len(unapplied) != len(rows) || !errors.Is(err, bad) {
		t.Errorf("at the end of the process: %d rows unapplied, %v", len(unapplied), err)
	}
}

// lastFetch records the last request, and returns no row.
type lastFetch struct {
	request adapters.FetchRequest
	err     error
}

func (f *lastFetch) Fetch(_ context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	f.request = r
	return adapters.Rows{Vectors: make([]rerank.Matrix, len(r.Vectors))}, f.err
}

// TestCompanionReads: what following writes reads of a companion, it reads at the level that shows its own last write.
func TestCompanionReads(t *testing.T) {
	f := &lastFetch{}
	d := &derivation{route: &route.Route{Policy: route.Policy{Companion: "c"}}, store: adapters.Abilities{Fetch: f}, fields: []rerank.Field{}, consistency: "Strong"}
	if err := d.keepNewVectors(t.Context(), rows{ids: idsOf(1)}, &adapters.Rows{}); err != nil || f.request.Collection != "c" || f.request.Consistency != "Strong" {
		t.Errorf("new vectors to keep: %+v, %v", f.request, err)
	}
	f.request = adapters.FetchRequest{}
	f.err = adapters.ErrUnavailable // nothing is compared
	if _, _, err := d.compareCompanion(t.Context(), rows{ids: idsOf(1)}, nil); !errors.Is(err, f.err) || f.request.Collection != "c" || f.request.Consistency != "Strong" {
		t.Errorf("a comparison: %+v, %v", f.request, err)
	}
}

// TestRowReader: rows are read with all that the routes need, in a read that shows the
// write.
func TestRowReader(t *testing.T) {
	f := &lastFetch{}
	reader := rowReader{fetch: f, collection: "items", consistency: "Strong"}
	derivations := func(policies ...route.Policy) (out []*derivation) {
		for _, p := range policies {
			out = append(out, &derivation{route: &route.Route{Policy: p}})
		}
		return out
	}
	tables := derivations(route.Policy{Vector: "a"}, route.Policy{Vector: "b"}, route.Policy{Vector: "a"})
	_, err := reader.read(t.Context(), tables, idsOf(1, 2), false)
	if r := f.request; err != nil || r.Collection != "items" || r.Consistency != "Strong" || r.Payload || !slices.Equal(r.Vectors, []string{"a", "b"}) || !slices.Equal(r.IDs, idsOf(1, 2)) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = reader.read(t.Context(), derivations(route.Policy{Companion: "c"}), nil, false); err != nil || !f.request.Payload {
		t.Errorf("no payload for a companion: %v", err)
	}
	f.err = adapters.ErrNotFound
	if have, err := reader.read(t.Context(), tables, idsOf(1), true); err != nil || len(have) != 1 || len(have[0].IDs) != 0 || len(have[0].Vectors) != 2 {
		t.Errorf("a dropped collection: %+v, %v", have, err)
	}
	if _, err = reader.read(t.Context(), tables, idsOf(1), false); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a collection that is not found: %v", err)
	}
}

// TestMeansNoRows: a collection that is not found is empty only if it may have been
// dropped.
func TestMeansNoRows(t *testing.T) {
	lost := fmt.Errorf("items: %w", adapters.ErrNotFound)
	for _, c := range []struct {
		err     error
		dropped bool
		want    bool
	}{{lost, true, true}, {lost, false, false}, {adapters.ErrUnavailable, true, false}, {nil, true, false}} {
		if got := meansNoRows(c.err, c.dropped); got != c.want {
			t.Errorf("%v, dropped %t: %t", c.err, c.dropped, got)
		}
	}
}

// TestChangedRows: a row is applied unless it equals the row that was applied last. It may have
// another vector or payload, be gone, or be known to differ.
func TestChangedRows(t *testing.T) {
	have := adapters.Rows{IDs: idsOf(1, 2, 3), Vectors: []rerank.Matrix{rerank.NewMatrix(3, 2)}}
	for i := range have.Vectors[0].Data {
		have.Vectors[0].Data[i] = float32(i)
	}
	have.Payloads = append(have.Payloads, []byte(`{"n":1}`), []byte(`{"n":2}`), []byte(`{"n":3}`))
	rows := rowsOfIDs(1, 2, 3, 4)
	changed := func() []rerank.ID {
		ids, checksums := changedRows([]adapters.Rows{have}, rows)
		picked, gone := pickRows(have, ids)
		for i, r := range rows {
			r.checksum, r.applied, r.differs = checksums[i], true, false
		}
		for i, id := range picked.IDs { // with all data of the row
			at := slices.Index(have.IDs, id)
			if !slices.Equal(picked.Vectors[0].Row(i), have.Vectors[0].Row(at)) || string(picked.Payloads[i]) != string(have.Payloads[at]) {
				t.Errorf("row %v was picked with another's content", id)
			}
		}
		return append(picked.IDs, gone...)
	}
	expect := func(when string, want ...uint64) {
		t.Helper()
		if got := changed(); !slices.Equal(got, idsOf(want...)) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("first", 1, 2, 3, 4)
	expect("as they were")
	have.Vectors[0].Row(1)[1] = 99
	expect("another vector", 2)
	have.Payloads[2] = []byte(`{"n":4}`)
	expect("another payload", 3)
	rows[0].differs = true
	expect("found to differ", 1)
	have = adapters.Rows{IDs: idsOf(2, 3), Vectors: []rerank.Matrix{have.Vectors[0].Slice(1, 3)}, Payloads: have.Payloads[1:]}
	expect("gone", 1)
	expect("gone still")
}

// TestChangedRowsOfSeveralVectors: any of a row's vectors changes that row alone, and of several sources any.
func TestChangedRowsOfSeveralVectors(t *testing.T) {
	one := adapters.Rows{IDs: idsOf(1, 2), Vectors: []rerank.Matrix{rerank.NewMatrix(2, 2)}}
	several := adapters.Rows{IDs: idsOf(2, 1), Vectors: []rerank.Matrix{rerank.NewMatrix(5, 2)}, Starts: []int32{0, 2, 5}}
	have, rows := []adapters.Rows{one, several}, rowsOfIDs(1, 2)
	for vector, want := range map[int]uint64{0: 2, 1: 2, 2: 1, 4: 1} {
		_, checksums := changedRows(have, rows)
		for i, r := range rows {
			r.checksum, r.applied = checksums[i], true
		}
		several.Vectors[0].Row(vector)[1]++
		if got, _ := changedRows(have, rows); !slices.Equal(got, idsOf(want)) {
			t.Errorf("vector %d: %v changed, want %d", vector, got, want)
		}
		if picked, _ := pickRows(several, idsOf(want)); !slices.Contains(picked.Vectors[0].Data, several.Vectors[0].Row(vector)[1]) {
			t.Errorf("vector %d is not picked: %+v", vector, picked)
		}
	}
}

// TestFieldsThatChangeAlike: two fields of a row that are read apart do not hide each other's changes.
func TestFieldsThatChangeAlike(t *testing.T) {
	part := func(x float32) adapters.Rows {
		return adapters.Rows{IDs: idsOf(1), Vectors: []rerank.Matrix{{Rows: 1, Cols: 1, Data: []float32{x}}}, Starts: []int32{0, 1}}
	}
	rows := rowsOfIDs(1)
	_, checksums := changedRows([]adapters.Rows{part(1), part(1)}, rows)
	rows[0].checksum, rows[0].applied = checksums[0], true
	if got, _ := changedRows([]adapters.Rows{part(2), part(2)}, rows); len(got) != 1 {
		t.Errorf("%v changed, want the row", got)
	}
}

// TestRowFailuresAreLoggedOnce: rows that fail at every retry make one log line when they begin to
// fail, and one when no row fails any more.
func TestRowFailuresAreLoggedOnce(t *testing.T) {
	var lines strings.Builder
	failures := newRowFailures(slog.New(slog.NewTextHandler(&lines, nil)))
	a, b, c := &row{id: rerank.UintID(1)}, &row{id: rerank.UintID(2)}, &row{id: rerank.UintID(3)}
	full := errors.New("no space left on device")
	for _, step := range []struct {
		rows, unapplied []*row
		failed          []rowFailure
		logged          string
	}{
		{rows: []*row{c}},
		{rows: []*row{a, b}, failed: []rowFailure{{a, full}, {b, full}}, logged: "row failed"},
		{rows: []*row{a, b}, failed: []rowFailure{{a, full}, {b, full}}},
		{rows: []*row{c}},
		{rows: []*row{a, b}, failed: []rowFailure{{a, full}}},
		{rows: []*row{a}, unapplied: []*row{a}},
		{rows: []*row{a}, logged: "no row fails any more"},
		{rows: []*row{b}, failed: []rowFailure{{b, full}}, logged: "row failed"},
	} {
		lines.Reset()
		failures.note(step.rows, step.failed, step.unapplied)
		if got := lines.String(); strings.Count(got, "\n") != min(len(step.logged), 1) || !strings.Contains(got, step.logged) {
			t.Errorf("logged %q, want %q", got, step.logged)
		}
	}
}

// TestSurplusIsRead as following writes reads: at a weaker level a row that was written a moment ago would seem to be
// gone.
func TestSurplusIsRead(t *testing.T) {
	f := &lastFetch{}
	c := comparison{collection: "items", routes: []*derivation{{route: &route.Route{}, store: adapters.Abilities{Fetch: f}, consistency: "Strong"}}}
	var found page
	err := c.surplus(t.Context(), 0, idsOf(1, 2), nil, "next", func(p page) error { found = p; return nil })
	if r := f.request; err != nil || r.Collection != "items" || r.Consistency != "Strong" || !slices.Equal(r.IDs, idsOf(1, 2)) {
		t.Errorf("%+v, %v", r, err)
	}
	if found.drift[0].Surplus != 2 || found.cursor != "next" || found.rows != 2 || !slices.Equal(found.ids, idsOf(1, 2)) {
		t.Errorf("two rows that are gone: %+v", found)
	}
}

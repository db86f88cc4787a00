package follow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// reads records how rows are read, and returns none.
type reads struct {
	adapters.Store

	fetched []adapters.FetchRequest
	scanned []adapters.ScanRequest
}

func (r *reads) Fetch(_ context.Context, f adapters.FetchRequest) (adapters.Rows, error) {
	r.fetched = append(r.fetched, f)
	return adapters.Rows{Vectors: make([]rerank.Matrix, len(f.Vectors))}, nil
}

func (r *reads) Scan(_ context.Context, s adapters.ScanRequest, _ func(adapters.Rows, string) error) error {
	r.scanned = append(r.scanned, s)
	return nil
}

func (*reads) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: []adapters.VectorField{}}, nil
}

// newSyncer opens the syncer of the collection "items", with the state folder dir.
func newSyncer(t *testing.T, dir string) *syncer {
	t.Helper()
	s, err := openSyncer(Options{Store: &reads{}, Dir: dir, Disk: disk.OrOS(nil), Logger: slog.New(slog.DiscardHandler)}, "items", &doubts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

// innerProduct is a model of two dimensions.
func innerProduct(t *testing.T) route.Model {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: "m", Similarity: sim}
}

// TestWritesOfTheLastProcess: of a write in the journal it is not known whether the database has answered it, so its
// rows stay due for as long as it may be applied late, whatever the client waited for.
func TestWritesOfTheLastProcess(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(statedir.Collection(dir, "items"), 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, err := journal.Open(journalDir(Options{Dir: dir}, "items"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1), Waited: true}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s := newSyncer(t, dir)
	if n := len(s.ledger.backlog.writes); n != 1 {
		t.Fatalf("%d writes are taken up", n)
	}
	for w := range s.ledger.backlog.writes {
		if w.readable.Before(began.Add(lag)) || w.seq == 0 {
			t.Errorf("a write is readable %s after the start: %+v", w.readable.Sub(began), w)
		}
	}
}

// TestDamagedRecord: a record that cannot be read may have told of foreign writes, so that the declaration of writes is
// disputed until an operator reconciles.
func TestDamagedRecord(t *testing.T) {
	for content, want := range map[string]route.Dispute{"{}": route.DisputeUnchecked, "{": route.DisputeForeign} {
		dir := t.TempDir()
		at := recordPath(statedir.Collection(dir, "items"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if s := newSyncer(t, dir); s.Horizon().Disputed != want || !s.ledger.missed.isOpen() {
			t.Errorf("record %s: %+v, missed %t; want %s", content, s.Horizon(), s.ledger.missed.isOpen(), want)
		}
	}
}

// TestDoubtEndsLast: once the backlog has the write, so that no search in between is certified without it.
func TestDoubtEndsLast(t *testing.T) {
	for applied, want := range map[bool][]string{true: {"written", "write", "doubt"}, false: {"write", "doubt"}} {
		var got []string
		end := endWrite(func() { got = append(got, "written") }, func(a bool, touched []rerank.ID) {
			if got = append(got, "write"); a != applied || !slices.Equal(touched, idsOf(3)) {
				t.Errorf("the write ends as applied %t with the rows %v", a, touched)
			}
		}, func(a bool) {
			if got = append(got, "doubt"); a != applied {
				t.Errorf("the doubt ends as applied %t", a)
			}
		})
		if end(applied, idsOf(3)); !slices.Equal(got, want) {
			t.Errorf("applied %t: %v, want %v", applied, got, want)
		}
	}
}

// TestRecordThatIsBelieved: derived data is fresh at once only if the last process ended in order, and some process has compared
// all rows.
func TestRecordThatIsBelieved(t *testing.T) {
	for content, missed := range map[string]bool{
		`{"clean":true,"complete":"2026-11-01T00:00:00Z"}`: false,
		`{"clean":true}`: true,
		`{"clean":false,"complete":"2026-11-01T00:00:00Z"}`: true,
	} {
		dir := t.TempDir()
		at := recordPath(statedir.Collection(dir, "items"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		s := newSyncer(t, dir)
		if s.ledger.missed.isOpen() != missed || s.passes.record.Clean {
			t.Errorf("record %s: missed %t, and it stays clean: %t", content, s.ledger.missed.isOpen(), s.passes.record.Clean)
		}
		if kept, err := readRecord(at); err != nil || kept.Clean {
			t.Errorf("record %s: the file is clean while the process runs: %+v, %v", content, kept, err)
		}
	}
}

// TestWhatWakesAFollower: whatever gives it work, or waits for its next step.
func TestWhatWakesAFollower(t *testing.T) {
	given, cancel := context.WithCancel(t.Context())
	cancel()
	upsert := journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1)}
	for name, do := range map[string]func(s *syncer){
		"a write":                   func(s *syncer) { s.begin(t.Context(), upsert)(true, nil) },
		"a write after a doubt":     func(s *syncer) { s.beginApplied(upsert) },
		"a write without a journal": func(s *syncer) { s.missedByJournal(errors.New("full")) },
		"a write of a peer":         func(s *syncer) { s.queuePeerWrite(openWrite{s.seePeerWrite(upsert), upsert}) },
		"missed writes of a peer":   func(s *syncer) { s.missPeerWrites("gone", nil) },
		"a request to compare":      func(s *syncer) { _, _ = s.awaitPass(given) },
		"a wait for a step":         func(s *syncer) { _ = s.waitUnused(given) },
		"the end":                   func(s *syncer) { s.drain(given) },
		"another route": func(s *syncer) {
			if err := s.replace(&route.Route{Policy: route.Policy{Name: "r"}, Parts: route.Parts{Model: innerProduct(t)}}); err != nil {
				t.Error(err)
			}
		},
	} {
		s := newSyncer(t, t.TempDir())
		s.peers = &peers{}
		select {
		case <-s.wake:
		default:
		}
		do(s)
		select {
		case <-s.wake:
		default:
			t.Errorf("%s: it sleeps on", name)
		}
		s.peers = nil
	}
}

// TestAPeersWriteIsTheirsToSettle: a process that ends does not wait for it until its sidecar has read it back.
func TestAPeersWriteIsTheirsToSettle(t *testing.T) {
	s := newSyncer(t, t.TempDir())
	w := s.seePeerWrite(journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1)})
	if !s.ledger.backlog.waitsForPassOnly() || s.Fresh() {
		t.Errorf("after a peer's write: waits for passes alone %t, fresh %t", s.ledger.backlog.waitsForPassOnly(), s.Fresh())
	}
	if s.queuePeerWrite(openWrite{w, journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1)}}); s.ledger.backlog.waitsForPassOnly() {
		t.Error("its rows are not read before the end")
	}
}

// TestStrictestLimits: of the routes of a collection the strictest limits hold, in any order, and 0 is no limit.
func TestStrictestLimits(t *testing.T) {
	for _, order := range [][]int{{3, 2, 0}, {0, 2, 3}, {2, 3, 0}} {
		s := &syncer{}
		for _, n := range order {
			s.applyLimits(Route{WriteBudget: time.Duration(n), Interval: time.Duration(10 * n), RowsPerSecond: 100 * n})
		}
		if s.budget != 2 || s.passes.interval != 20 || s.passes.rate != 200 {
			t.Errorf("%v: %d, %d and %d", order, s.budget, s.passes.interval, s.passes.rate)
		}
	}
}

// TestReplacedDuringAPass: a pass over a route that is replaced is given up. Its writes wait for the next one, which also
// answers the callers of Reconcile.
func TestReplacedDuringAPass(t *testing.T) {
	s := newSyncer(t, t.TempDir())
	w, answer := s.ledger.backlog.addWrite(time.Now()), make(chan map[string]Drift, 1)
	s.passes.running = &pass{writes: []*write{w}, requests: []chan<- map[string]Drift{answer}}
	if err := s.replace(&route.Route{Policy: route.Policy{Name: "r", Collection: "items"}, Parts: route.Parts{Store: &reads{}, Model: innerProduct(t)}}); err != nil {
		t.Fatal(err)
	}
	if s.passes.running != nil || len(s.passes.requests) != 1 || !slices.Contains(s.ledger.backlog.forPass, w) || !s.ledger.missed.isOpen() {
		t.Errorf("%d callers wait, for pass %v with %d writes", len(s.passes.requests), s.passes.running, len(s.ledger.backlog.forPass))
	}
}

// TestPassesThatProveNothingForeign: while a write that names no rows waits or is settled, a row that differs is not
// foreign.
func TestPassesThatProveNothingForeign(t *testing.T) {
	for name, c := range map[string]struct {
		readable time.Time // of a write by filter
		unnamed  bool
	}{"settled by the pass": {time.Now().Add(-time.Minute), true}, "for the next pass": {time.Now().Add(time.Minute), true}} {
		l := ledger{backlog: newBacklog()}
		l.backlog.apply(l.backlog.addWrite(time.Now()), journal.Write{Kind: journal.Delete, Filter: "{}"}, time.Now(), c.readable)
		if new(passes).begin(&l, time.Now()); l.foreign.unnamed != c.unnamed {
			t.Errorf("%s: unnamed %t", name, l.foreign.unnamed)
		}
	}
	l := ledger{backlog: newBacklog()}
	if new(passes).begin(&l, time.Now()); l.foreign.unnamed {
		t.Error("without a write no row is foreign")
	}
}

// TestFactsOfASchedule: whatever decides when a pass is due is the state of the passes and of the ledger.
func TestFactsOfASchedule(t *testing.T) {
	p := passes{running: &pass{}, requests: make([]chan<- map[string]Drift, 1), draining: true, onRequest: true, interval: time.Hour, ended: at(2)}
	p.record.Reconciled = at(1)
	l := ledger{backlog: newBacklog(), missed: gap{at(3), at(4)}}
	l.backlog.leaveToPass(&write{})
	l.backlog.rowsChanged = true
	want := schedule{
		underWay: true, requested: true, draining: true, onRequest: true, interval: time.Hour, full: at(1), ended: at(2),
		missed: gap{at(3), at(4)}, writes: l.backlog.forPass, rowsChanged: true,
	}
	if got := p.schedule(&l); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestWhatAPassCloses: only a pass over all rows, from the first one on, shows the writes that were missed before it.
func TestWhatAPassCloses(t *testing.T) {
	for name, c := range map[string]struct {
		full, complete, closes bool
	}{"whole": {true, true, true}, "resumed": {true, false, false}, "surplus rows alone": {false, true, false}} {
		s := newSyncer(t, t.TempDir())
		s.passes.record.Complete = time.Time{}
		s.ledger.missed = gap{}
		s.ledger.missed.note(time.Now().Add(-time.Hour))
		began := time.Now().Add(-time.Minute)
		s.passes.running = &pass{began: began, full: c.full, complete: c.complete}
		if err := s.endPass(t.Context(), s.passes.running); err != nil {
			t.Fatal(err)
		}
		if c.closes && !s.passes.record.Complete.Equal(began) {
			t.Errorf("%s: it shows the writes before %s, want those before it began, %s", name, s.passes.record.Complete, began)
		}
		if s.ledger.missed.isOpen() == c.closes || s.passes.record.Complete.IsZero() == c.closes || (s.passes.reconciles == 1) != c.full {
			t.Errorf("%s: missed %t, complete %s, %d reconciles", name, s.ledger.missed.isOpen(), s.passes.record.Complete, s.passes.reconciles)
		}
	}
}

// TestReadsAreConsistent: every read that has to show a write asks for the level of the route, since a replica that is
// behind would look like a row that is missing.
func TestReadsAreConsistent(t *testing.T) {
	store := &reads{}
	d := &derivation{
		route: &route.Route{Policy: route.Policy{Name: "r", Collection: "items", Companion: "derived"}, Parts: route.Parts{Model: innerProduct(t)}},
		store: adapters.AbilitiesOf(store), consistency: "Strong", fields: []rerank.Field{},
	}
	c := comparison{scanner: store, collection: "items", routes: []*derivation{d}}
	yield := func(page) error { return nil }
	one := rows{ids: idsOf(1), features: rerank.NewMatrix(1, 2), sources: []string{"s"}}
	for name, read := range map[string]func() error{
		"after a write": func() error {
			_, err := rowReader{fetch: store, collection: "items", consistency: "Strong"}.read(t.Context(), c.routes, idsOf(1), false)
			return err
		},
		"of surplus rows": func() error { return c.surplus(t.Context(), 0, idsOf(1), nil, "", yield) },
		"of the companion": func() error {
			_, _, _ = d.compareCompanion(t.Context(), one, nil) // the model derives no fields, which is found after the read
			return nil
		},
		"of new vectors": func() error { return d.keepNewVectors(t.Context(), one, &adapters.Rows{}) },
	} {
		store.fetched = nil
		if err := read(); err != nil || len(store.fetched) != 1 || store.fetched[0].Consistency != "Strong" {
			t.Errorf("a read %s: %+v, %v", name, store.fetched, err)
		}
	}
}

// TestPayloadIsComparedForCompanions: a comparison reads payload if a route has a companion, which repeats it.
func TestPayloadIsComparedForCompanions(t *testing.T) {
	for companion, want := range map[string]bool{"": false, "derived": true} {
		store := &reads{}
		c := comparison{scanner: store, collection: "items", routes: []*derivation{{route: &route.Route{Policy: route.Policy{Companion: companion}}}}}
		if err := c.stages()[0].run(t.Context(), "here", nil); err != nil || len(store.scanned) != 1 {
			t.Fatal(store.scanned, err)
		}
		if got := store.scanned[0]; got.Payload != want || got.Cursor != "here" || got.Collection != "items" || got.Batch != compareRows {
			t.Errorf("companion %q: %+v", companion, got)
		}
	}
}

// TestStatus: every route of a collection shows what is known of the collection, and its own drift.
func TestStatus(t *testing.T) {
	s := newSyncer(t, t.TempDir())
	s.ledger.routes = []*derivation{{route: &route.Route{Policy: route.Policy{Name: "a"}}}, {route: &route.Route{Policy: route.Policy{Name: "b"}}}}
	s.passes.record.Reconciled, s.passes.record.Complete, s.passes.record.Foreign = at(2), at(1), &Foreign{Rows: 3}
	s.passes.record.Drift = map[string]Drift{"a": {Rows: 4}, "b": {Missing: 5}}
	s.unjournaled, s.passes.reconciles, s.failures, s.passes.rowsRead = 6, 7, 8, 9
	s.passes.running, s.ledger.missed = &pass{}, gap{}
	s.ledger.backlog.addWrite(time.Now().Add(-time.Hour))
	want := Status{
		Route: "a", Pending: 1, Unjournaled: 6, Drift: Drift{Rows: 4}, Reconciled: at(2), AsOf: at(1), Foreign: s.passes.record.Foreign, Reconciling: true,
		Reconciles: 7, Failures: 8, Rows: 9,
	}
	for i, got := range s.status() {
		if got.Age < time.Hour || got.Age > 2*time.Hour {
			t.Errorf("a write of an hour ago has the age %s", got.Age)
		}
		got.Age = 0
		if i == 1 {
			want.Route, want.Drift = "b", Drift{Missing: 5}
		}
		if got != want {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	}
	s.ledger.missed.note(time.Now().Add(-3 * time.Hour))
	if got := s.status()[0]; !got.Stale || got.Age < 3*time.Hour {
		t.Errorf("three hours after a write was missed: stale %t, age %s", got.Stale, got.Age)
	}
}

// horizon is a Freshness with a horizon.
type horizon struct {
	route.Freshness

	asOf time.Time
}

func (h horizon) Horizon() route.Horizon { return route.Horizon{AsOf: h.asOf} }

// TestHorizonOfFrozenData: an answer is as old as the oldest data on which it rests.
func TestHorizonOfFrozenData(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	for name, c := range map[string]struct {
		built    int64
		followed route.Freshness
		want     time.Time
	}{
		"the table alone":       {late.UnixNano(), nil, late},
		"an older companion":    {late.UnixNano(), horizon{asOf: early}, early},
		"an older table":        {early.UnixNano(), horizon{asOf: late}, early},
		"a table of no date":    {0, horizon{asOf: late}, time.Time{}},
		"no date and no others": {0, nil, time.Time{}},
	} {
		got := (&frozenData{built: c.built, followed: c.followed}).Horizon()
		if !got.AsOf.Equal(c.want) || got.Disputed != route.DisputeUnchecked {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// TestDamagedTimeOfTheLastWrite: if it cannot be read, a write may have come just now. Without a file none is known.
func TestDamagedTimeOfTheLastWrite(t *testing.T) {
	for content, want := range map[string]bool{"": false, "{}": false, "{": true} {
		dir := t.TempDir()
		if at := writtenPath(statedir.Collection(dir, "items")); content != "" {
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f := newFrozen(disk.OrOS(nil), dir, slog.New(slog.DiscardHandler), func(string) *doubts { return &doubts{} })
		c := f.open("items")
		outlived := (&frozenData{clock: c, built: time.Now().Add(-time.Minute).UnixNano()}).isOutlived()
		if outlived != want {
			t.Errorf("%q: a table of a minute ago is outlived: %t", content, outlived)
		}
	}
}

// TestPatienceWithDoubts: a search waits for a write on its way for a quarter of its time, and no longer than patience.
func TestPatienceWithDoubts(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{0: patience, 40 * time.Millisecond: 10 * time.Millisecond, time.Hour: patience} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if left > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, left)
				defer cancel()
			}
			began := time.Now()
			if newRound().Cleared(ctx) || time.Since(began) != want {
				t.Errorf("with %s left, it waits for %s, want %s", left, time.Since(began), want)
			}
		})
	}
}

// TestPeersAreCounted: writes may be missed while fewer sidecars have a journal open than there are.
func TestPeersAreCounted(t *testing.T) {
	o := Options{Shared: t.TempDir(), Replica: "other", Disk: disk.OrOS(nil), Logger: slog.New(slog.DiscardHandler)}
	openShared(t, o)
	o.Replica = "own"
	for replicas, isComplete := range map[int]bool{1: true, 2: true, 3: false} {
		o.Replicas = replicas
		if err := newPeers(o, "items", &recordedWrites{}).read(true); (err == nil) != isComplete {
			t.Errorf("of %d sidecars two are there: %v", replicas, err)
		}
	}
}

// TestPeerBeginsBetweenProbes: a sidecar that starts again and writes before the next probe has not ended with writes on
// their way.
func TestPeerBeginsBetweenProbes(t *testing.T) {
	o := Options{Shared: t.TempDir(), Replica: "other", Replicas: 2, Disk: disk.OrOS(nil), Logger: slog.New(slog.DiscardHandler)}
	if err := openShared(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	own := o
	own.Replica = "own"
	var passed recordedWrites
	p := newPeers(own, "items", &passed)
	_ = p.read(true)
	passed = nil
	again := openShared(t, o)
	if _, err := again.append(t.Context(), journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1)}, 0, func() {}); err != nil {
		t.Fatal(err)
	}
	if err := p.read(false); err != nil || !slices.Equal(passed, []string{"see 1"}) {
		t.Errorf("passed on %q, %v", passed, err)
	}
}

// TestDoubtsThatStay: a doubt that ends while the others cannot be told stays in the journal until they were.
func TestDoubtsThatStay(t *testing.T) {
	for blocked, pending := range map[error]int{nil: 0, errHangs: 1} {
		j := openShared(t, Options{Shared: t.TempDir(), Replica: "own", Disk: disk.OrOS(nil)})
		end := j.beginDoubt("items")
		j.blocked = blocked
		if end(); j.Stats().Pending != pending || len(j.stuckDoubts) != pending {
			t.Errorf("blocked by %v: %d writes are pending, %d doubts stay", blocked, j.Stats().Pending, len(j.stuckDoubts))
		}
	}
}

// TestResumeWaitsForTheDisk: a journal whose disk fails does not say that it has every write, though all writes that it
// lacks are shown.
func TestResumeWaitsForTheDisk(t *testing.T) {
	d := powerloss.New(t)
	j := openShared(t, Options{Shared: d.Root(), Replica: "own", Disk: d})
	add := func() error {
		_, err := j.append(t.Context(), journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1)}, 0, func() {})
		return err
	}
	d.Fail(func(call string) error {
		if filepath.Ext(call) == ".journal" {
			return errors.New("the disk fails")
		}
		return nil
	})
	if err := add(); err == nil || !j.Interrupted() || j.Stats().Failed == nil {
		t.Fatalf("%v, interrupted %t, %v", err, j.Interrupted(), j.Stats().Failed)
	}
	if j.resume(func() bool { return true }); !j.Interrupted() {
		t.Error("the journal is resumed while its disk fails")
	}
}

// TestWhoTakesNewVectors: new vectors go into the companion for which their embedder made them, and nowhere else.
func TestWhoTakesNewVectors(t *testing.T) {
	of := func(name, companion, embedder string, reembed bool) *route.Route {
		r := &route.Route{Policy: route.Policy{Name: name, Companion: companion, EmbedderName: embedder}}
		if reembed {
			r.Reembed.Text = "text"
		}
		return r
	}
	s := newSyncer(t, t.TempDir())
	s.reader.fetch = &reads{}
	job := &reembedding{route: of("r", "c", "e", true)}
	for followed, taken := range map[*route.Route]bool{
		of("r", "c", "e", true): true, of("q", "c", "e", true): false, of("r", "d", "e", true): false, of("r", "c", "f", true): false, of("r", "c", "e", false): false,
	} {
		followed.Model = innerProduct(t)
		_, err := job.run(t.Context(), s.reader, []*derivation{{route: followed}}, false)
		if errors.Is(err, ErrRoute) == taken {
			t.Errorf("%s, %s, %s, %t: %v", followed.Name, followed.Companion, followed.EmbedderName, followed.Reembeds(), err)
		}
	}
}

// TestRemovedFilesStayRemoved: a file that was removed does not come back after a power failure.
func TestRemovedFilesStayRemoved(t *testing.T) {
	d := powerloss.New(t)
	path := filepath.Join(d.Root(), "record.json")
	if err := (record{Clean: true}).write(d, path); err != nil {
		t.Fatal(err)
	}
	var calls []string
	d.Before(func(call string) { calls = append(calls, call) })
	if err := removeFile(d, path); err != nil || len(calls) != 2 {
		t.Errorf("%q, %v; want a removal and a sync of the folder", calls, err)
	}
	if err := removeFile(d, path); err != nil {
		t.Errorf("a file that is not there: %v", err)
	}
}

// assessed is a Freshness with a doubt.
type assessed struct {
	route.Freshness

	doubt route.Doubt
}

func (a assessed) Assess() (bool, route.Doubt) { return true, a.doubt }

// TestDoubtsOfBothKindsOfData: where a route has data that is followed too, a search waits for the write that its Freshness
// has found on its way.
func TestDoubtsOfBothKindsOfData(t *testing.T) {
	d, later := &doubts{}, newRound()
	o := &frozenData{clock: &writeClock{doubts: d}, followed: assessed{doubt: later}}
	if fresh, doubt := o.Assess(); !fresh || doubt != route.Doubt(later) {
		t.Errorf("a write that began between two looks: fresh %t, doubt %v", fresh, doubt)
	}
	o.followed = assessed{}
	end := d.begin()
	defer end(false)
	if fresh, doubt := o.Assess(); !fresh || doubt == nil {
		t.Errorf("a write that only the first look found: fresh %t, doubt %v", fresh, doubt)
	}
}

// TestLastWriteIsSavedAtTheEnd: a process that ends saves when the last write came, even if the disk failed a moment before.
func TestLastWriteIsSavedAtTheEnd(t *testing.T) {
	for atEnd, want := range map[bool]bool{true: true, false: false} {
		c := &writeClock{path: filepath.Join(t.TempDir(), "written.json"), doubts: &doubts{}, tried: make(chan struct{}), wake: make(chan struct{}, 1)}
		c.written()
		c.retry, c.failure = time.Now().Add(time.Hour), errors.New("the disk is full")
		if err := c.save(disk.OrOS(nil), atEnd); (err == nil) != want {
			t.Errorf("at the end %t: %v", atEnd, err)
		}
		if w, err := readWritten(c.path); err != nil || w.Last.IsZero() == want {
			t.Errorf("at the end %t: %+v, %v", atEnd, w, err)
		}
	}
}

// TestStrictestWriteBudget: of the routes of a collection the shortest wait holds, and 0 is no limit.
func TestStrictestWriteBudget(t *testing.T) {
	c := &writeClock{}
	for _, budget := range []time.Duration{3, 0, 2, 5} {
		c.limit(budget)
	}
	if c.budget != 2 {
		t.Errorf("a write waits %d, want 2", c.budget)
	}
}

// TestAccusationsWait: a row that differs accuses nobody while a write on its way may explain it, or while writes of another
// sidecar may be missed.
func TestAccusationsWait(t *testing.T) {
	s := newSyncer(t, t.TempDir())
	suspected := func() { s.ledger.foreign.suspects = []suspect{{rerank.UintID(1), time.Now()}} }
	suspected()
	end := s.doubts.begin()
	if s.findForeign(time.Now(), false); s.passes.record.Foreign != nil {
		t.Fatal("a write whose answer is not here yet is called foreign")
	}
	end(false)
	s.peers = newPeers(Options{Shared: t.TempDir(), Replica: "own", Replicas: 2, Logger: s.log}, "items", s)
	close(s.peers.watchEnded) // nobody reads the others' journals
	if s.beginStep(); s.passes.record.Foreign != nil {
		t.Fatal("a write that another sidecar may have sent is called foreign")
	}
	s.peers = nil
	if s.beginStep(); s.passes.record.Foreign == nil || s.passes.record.Foreign.Rows != 1 {
		t.Errorf("%+v, want the row that nothing explains", s.passes.record.Foreign)
	}
}

// TestWritesThatAPeerLeft: the database may carry out the writes of a sidecar that was killed at any moment, so their rows
// are read once more later.
func TestWritesThatAPeerLeft(t *testing.T) {
	s := newSyncer(t, t.TempDir())
	s.peers = newPeers(Options{Shared: t.TempDir(), Replica: "own", Replicas: 2, Logger: s.log}, "items", s)
	defer func() { s.peers = nil }()
	jw := journal.Write{Collection: "items", Kind: journal.Upsert, IDs: idsOf(1), Waited: true}
	w, began := s.seePeerWrite(jw), time.Now()
	s.missPeerWrites("it ended", []openWrite{{w, jw}})
	if w.readable.Before(began.Add(lag)) || !s.ledger.missed.isOpen() || s.ledger.backlog.rows.len() != 1 {
		t.Errorf("readable after %s, missed %t, %d rows wait", w.readable.Sub(began), s.ledger.missed.isOpen(), s.ledger.backlog.rows.len())
	}
}

// down is a store that is down. It calls ask at each read.
type down struct {
	adapters.Store

	ask func()
}

func (d down) Fetch(context.Context, adapters.FetchRequest) (adapters.Rows, error) {
	d.ask()
	return adapters.Rows{}, adapters.ErrUnavailable
}

func (d down) Scan(context.Context, adapters.ScanRequest, func(adapters.Rows, string) error) error {
	d.ask()
	return adapters.ErrUnavailable
}

// TestADatabaseThatIsDown: it is asked again after longer and longer waits.
func TestADatabaseThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := 0
		store := down{ask: func() {
			if asked++; asked == 1000 {
				cancel() // without waits a minute never ends
			}
		}}
		s := newSyncer(t, t.TempDir())
		s.reader.fetch, s.reader.scan = store, store
		s.ledger.backlog.apply(s.ledger.backlog.addWrite(time.Now()), journal.Write{Kind: journal.Upsert, IDs: idsOf(1)}, time.Now(), time.Now())
		s.run(ctx)
		if asked < 5 || asked > 50 {
			t.Errorf("in a minute it was asked %d times", asked)
		}
	})
}

// TestRowsThatFail: a row that failed waits, one that was not tried is tried at once, and the others are done with. Whatever
// the table cannot hold is remembered.
func TestRowsThatFail(t *testing.T) {
	s, now := newSyncer(t, t.TempDir()), time.Now()
	w := s.ledger.backlog.addWrite(now)
	s.ledger.backlog.apply(w, journal.Write{Kind: journal.Upsert, IDs: idsOf(1, 2, 3)}, now.Add(-time.Minute), now.Add(-time.Minute))
	rows, _ := takeAll(s.ledger.backlog, now)
	if len(rows) != 3 {
		t.Fatalf("%d rows are due", len(rows))
	}
	slices.SortFunc(rows, func(a, b *row) int { return a.id.Compare(b.id) })
	s.noteRows(rows, []rowFailure{{rows[0], errors.New("broken")}}, rows[1:2], now, true)
	if !s.ledger.unfit || s.failures != 1 || w.unread != 2 || s.ledger.backlog.rows.len() != 2 || s.ledger.backlog.rows.byID[rows[2].id] != nil {
		t.Errorf("unfit %t, %d failures, %d rows of the write and %d in all are left", s.ledger.unfit, s.failures, w.unread, s.ledger.backlog.rows.len())
	}
	if early := rows[0].due.Sub(now); early < retryRow || rows[1].due.Sub(now) > retryRow/2 {
		t.Errorf("the row that failed is due after %s, the one that was not tried after %s", early, rows[1].due.Sub(now))
	}
	rows, _ = takeAll(s.ledger.backlog, now.Add(time.Hour))
	if s.noteRows(rows, nil, nil, now, false); !s.ledger.unfit || len(s.ledger.backlog.writes) != 0 {
		t.Errorf("after the last row: unfit %t, %d writes are pending", s.ledger.unfit, len(s.ledger.backlog.writes))
	}
}

// TestWhatAPassCompares: a pass for rows that were deleted by a filter looks only for rows that the collection lacks. A pass
// that somebody asked for begins at the first row, and answers those who asked until then.
func TestWhatAPassCompares(t *testing.T) {
	for name, c := range map[string]struct {
		write journal.Write
		asked int
		full  bool
	}{
		"rows were deleted":  {journal.Write{Kind: journal.Delete, Filter: "{}"}, 0, false},
		"rows were changed":  {journal.Write{Kind: journal.Payload, Filter: "{}"}, 0, true},
		"somebody asked for": {journal.Write{Kind: journal.Delete, Filter: "{}"}, 2, true},
	} {
		s, now := newSyncer(t, t.TempDir()), time.Now()
		s.ledger.missed, s.passes.requests = gap{}, make([]chan<- map[string]Drift, c.asked)
		w := s.ledger.backlog.addWrite(now)
		s.ledger.backlog.apply(w, c.write, now, now)
		p, _ := s.beginPass()
		if p.full != c.full || (p.stage == 0) != c.full || !p.complete || len(p.requests) != c.asked || len(s.passes.requests) != 0 || !slices.Equal(p.writes, []*write{w}) {
			t.Errorf("%s: %+v; %d wait for the next one", name, p, len(s.passes.requests))
		}
		if again, _ := s.beginPass(); again != p {
			t.Errorf("%s: a second pass begins beside the first", name)
		}
		s.passes.running = nil
	}
}

// TestStatusOfFrozenData: a route with data that cannot follow is listed, and stale since the first write that the data does not
// show, or for as long as its other data.
func TestStatusOfFrozenData(t *testing.T) {
	f := newFrozen(disk.OrOS(nil), "", slog.New(slog.DiscardHandler), func(string) *doubts { return &doubts{} })
	c, now := &writeClock{}, time.Now()
	c.last.Store(now.Add(-time.Minute).UnixNano())
	outlived := func(since time.Duration) *frozenData {
		o := &frozenData{clock: c}
		if since > 0 {
			o.since.Store(now.Add(-since).UnixNano())
		}
		return o
	}
	f.served = map[string]*frozenData{
		"fresh": {clock: c, built: now.UnixNano()}, "just seen": outlived(0), "long ago": outlived(time.Hour), "both": outlived(time.Minute),
	}
	all := f.status([]Status{{Route: "both", Age: 3 * time.Hour}, {Route: "other"}})
	for _, s := range all {
		want := map[string]time.Duration{"just seen": time.Minute, "long ago": time.Hour, "both": 3 * time.Hour}[s.Route]
		if s.Stale != (want > 0) || s.Age < want || s.Age > want+time.Minute/2 {
			t.Errorf("%s: stale %t, age %s; want %s", s.Route, s.Stale, s.Age, want)
		}
	}
	if len(all) != 5 {
		t.Errorf("%d routes, want each once", len(all))
	}
}

// stuck is a disk on which nothing can be removed before freed is closed.
type stuck struct {
	disk.Disk

	freed chan struct{}
}

func (s stuck) Remove(path string) error {
	<-s.freed
	return s.Disk.Remove(path)
}

// TestAFolderThatDoesNotAnswer: while the others cannot be told that the journal lacks writes, writes are refused. They are let
// through once the others were told.
func TestAFolderThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		j := openShared(t, Options{Shared: t.TempDir(), Replica: "own", Disk: stuck{disk.OrOS(nil), freed}})
		began := time.Now()
		if j.interrupt(); time.Since(began) != sharedBudget || !errors.Is(j.blocked, errHangs) || !j.isBlocked() {
			t.Errorf("blocked after %s by %v", time.Since(began), j.blocked)
		}
		close(freed)
		if synctest.Wait(); j.isBlocked() || !j.Interrupted() {
			t.Errorf("when the folder answers again: %v, interrupted %t", j.blocked, j.Interrupted())
		}
	})
}

package follow

import (
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestHorizon: a declaration is disputed by a foreign write, and once no comparison that
// began within twice the interval has ended.
func TestHorizon(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		record   record
		interval time.Duration
		want     route.Dispute
	}{
		"compared lately":             {record{Complete: ago(19)}, 10 * time.Second, ""},
		"compared before the window":  {record{Complete: ago(20)}, 10 * time.Second, route.DisputeUnchecked},
		"never compared":              {record{}, 10 * time.Second, route.DisputeUnchecked},
		"no comparisons":              {record{Complete: ago(0)}, 0, route.DisputeUnchecked},
		"compared, and found foreign": {record{Complete: ago(1), Foreign: &Foreign{Rows: 1}}, 10 * time.Second, route.DisputeForeign},
	} {
		if got := horizonOf(c.record, c.interval, now); got.Disputed != c.want || !got.AsOf.Equal(c.record.Complete) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// TestForeignRows: a row that differs is foreign once no write of this process can explain it: no
// write that named it, none in flight, and none that named no rows.
func TestForeignRows(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	id := rerank.UintID
	upsert := func(n uint64) journal.Write { return journal.Write{Kind: journal.Upsert, IDs: []rerank.ID{id(n)}} }
	begun := func() *foreignWrites {
		f := &foreignWrites{}
		f.begin(map[rerank.ID]*row{id(1): nil}, false)
		f.explain(upsert(2))
		f.suspect([]rerank.ID{id(1), id(2), id(3), id(4)}, at(10))
		return f
	}
	for name, c := range map[string]struct {
		after    func(f *foreignWrites)
		onItsWay time.Time
		want     int
	}{
		"nothing else":                    {func(*foreignWrites) {}, time.Time{}, 2},
		"a write explains one later":      {func(f *foreignWrites) { f.explain(upsert(3)) }, time.Time{}, 1},
		"a write before is on its way":    {func(*foreignWrites) {}, at(9), 0},
		"a write after is on its way":     {func(*foreignWrites) {}, at(11), 2},
		"a write that names no rows":      {func(f *foreignWrites) { f.explain(journal.Write{Kind: journal.Delete, Filter: "{}"}) }, time.Time{}, 0},
		"the pass settles unnamed writes": {func(f *foreignWrites) { f.begin(nil, true); f.suspect([]rerank.ID{id(3)}, at(10)) }, time.Time{}, 0},
		"foreign rows are taken once":     {func(f *foreignWrites) { f.takeForeign(time.Time{}) }, time.Time{}, 0},
	} {
		f := begun()
		c.after(f)
		if got := f.takeForeign(c.onItsWay); len(got) != c.want {
			t.Errorf("%s: %v, want %d rows", name, got, c.want)
		}
	}
}

// TestAcknowledges: only a comparison that an operator requested, and that found nothing foreign
// itself, ends a dispute.
func TestAcknowledges(t *testing.T) {
	began := time.Unix(1000, 0)
	asked := []chan<- map[string]Drift{nil}
	for name, c := range map[string]struct {
		requests []chan<- map[string]Drift
		foreign  *Foreign
		suspects []suspect
		want     bool
	}{
		"asked for":              {asked, &Foreign{Last: began.Add(-time.Second)}, nil, true},
		"at its interval":        {nil, &Foreign{Last: began.Add(-time.Second)}, nil, false},
		"found more":             {asked, &Foreign{Last: began.Add(time.Second)}, nil, false},
		"a row is suspected":     {asked, &Foreign{Last: began.Add(-time.Second)}, []suspect{{found: began}}, false},
		"nothing was found ever": {asked, nil, nil, false},
	} {
		p := pass{began: began, requests: c.requests}
		if got := p.acknowledges(c.foreign, c.suspects); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

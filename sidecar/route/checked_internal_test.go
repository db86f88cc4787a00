package route

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// watched is a Freshness with values that a test sets, and a Doubt.
type watched struct {
	fresh   bool
	horizon Horizon
	doubted bool // writes are in flight
	refused bool // the database refuses them all
}

func (w watched) Fresh() bool      { return w.fresh }
func (w watched) Horizon() Horizon { return w.horizon }

func (w watched) Assess() (bool, Doubt) {
	if w.doubted {
		return w.fresh, w
	}
	return w.fresh, nil
}

func (w watched) Cleared(context.Context) bool { return w.refused }

// TestWhatAViewShows: a view is behind if a write was seen that its data may lack, or if its data
// belongs to another collection. If nobody follows writes, it shows the time of the build.
func TestWhatAViewShows(t *testing.T) {
	built, seen := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, c := range map[string]struct {
		freshness Freshness
		switched  bool
		behind    bool // at first
		settled   bool // behind, after the doubt was settled
		asOf      time.Time
	}{
		"nobody watches":          {nil, false, false, false, built},
		"of another collection":   {nil, true, true, true, built},
		"fresh":                   {watched{fresh: true, horizon: Horizon{AsOf: seen}}, false, false, false, seen},
		"not fresh":               {watched{horizon: Horizon{AsOf: seen}}, false, true, true, seen},
		"fresh, and switched":     {watched{fresh: true}, true, true, true, time.Time{}},
		"in doubt, and refused":   {watched{fresh: true, doubted: true, refused: true}, false, false, false, time.Time{}},
		"in doubt, and done":      {watched{fresh: true, doubted: true}, false, false, true, time.Time{}},
		"not fresh, and in doubt": {watched{doubted: true, refused: true}, false, true, true, time.Time{}},
	} {
		checked := &Checked{built: built, switched: c.switched}
		checked.Freshness = c.freshness
		v := checked.View()
		if v.Behind != c.behind || !v.Horizon.AsOf.Equal(c.asOf) {
			t.Errorf("%s: behind %t, as of %v", name, v.Behind, v.Horizon.AsOf)
		}
		if v.SettleDoubt(t.Context()); v.Behind != c.settled {
			t.Errorf("%s: behind %t after the doubt was settled", name, v.Behind)
		}
		if want := c.freshness == nil || !c.settled; c.switched == false && FreshNow(t.Context(), c.freshness) != want {
			t.Errorf("%s: fresh %t", name, !want)
		}
	}
}

// TestAClosedTableProvesNothing: a view without the snapshot of its live table is behind.
func TestAClosedTableProvesNothing(t *testing.T) {
	c := &Checked{}
	c.Live, c.Table = new(table.Live), new(table.Table)
	if v := c.View(); !v.Behind || v.Table != c.Table {
		t.Errorf("behind %t, with the table %p; want the schema's, %p", v.Behind, v.Table, c.Table)
	}
	if got := c.CurrentTable(); got != nil {
		t.Errorf("a live table that is closed is %p now", got)
	}
	if c.Live = nil; c.CurrentTable() != c.Table {
		t.Error("a table of a file is another one")
	}
}

// supports is a model that reads scores of three support items and so many numbers of the query's own vector.
type supports struct {
	rerank.SupportAsker
	own int
}

func (supports) Supports() []rerank.ID { return make([]rerank.ID, 3) }
func (s supports) QueryFeatures() int  { return s.own }

// TestLengthsOfAnEmbedder: an embedder makes vectors as the model takes them, or, where a ranker's scores make
// the query, as the collection or the model's own part of the query has them.
func TestLengthsOfAnEmbedder(t *testing.T) {
	const model, collection = 5, 7
	for name, c := range map[string]struct {
		asks rerank.SupportAsker
		want int
	}{"a model of vectors": {nil, model}, "a model of scores": {supports{}, collection}, "of scores and a vector": {supports{own: 2}, 2}} {
		checked := &Checked{Spec: rerank.Spec{QueryDim: model}, Field: adapters.VectorField{Dim: collection}}
		checked.ModelCan.Supports = c.asks
		for _, dim := range []int{2, 3, model, collection} {
			if err := checked.checkEmbedded([][]float32{make([]float32, c.want), make([]float32, dim)}); (err == nil) != (dim == c.want) || err != nil && !errors.Is(err, ErrSetup) {
				t.Errorf("%s: vectors of %d elements: %v; want %d", name, dim, err, c.want)
			}
		}
	}
}

// TestWhatAnEmbedderIsFor: beside a model of scores an embedder makes vectors for the mix or for the model's own part
// of the query. Where nobody reads its vectors the route is refused.
func TestWhatAnEmbedderIsFor(t *testing.T) {
	for name, c := range map[string]struct {
		asks                    rerank.SupportAsker
		embedder, ranker, store bool
		ok                      bool
	}{
		"a model of vectors":            {nil, true, false, true, true},
		"scores, no embedder":           {supports{}, false, false, false, true},
		"scores, and no ranker":         {supports{own: 2}, true, false, true, false},
		"scores, for the mix":           {supports{}, true, true, true, true},
		"scores, nothing to search":     {supports{}, true, true, false, false},
		"scores and a vector, no store": {supports{own: 2}, true, true, false, true},
	} {
		route := &checking{}
		route.ModelCan.Supports = c.asks
		if c.embedder {
			route.EmbedderName = "e"
		}
		if c.ranker {
			route.RankerName = "r"
		}
		if c.store {
			route.Store = searchOnly{}
		}
		if err := route.checkEmbedding(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSetup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		asks rerank.SupportAsker
		text string
		mix  float64
		want bool
	}{
		"for the mix":        {supports{}, "q", 0.5, true},
		"for the model":      {supports{own: 2}, "q", 0, true},
		"for nothing":        {supports{}, "q", 0, false},
		"of no text":         {supports{own: 2}, "", 0.5, false},
		"a model of vectors": {nil, "q", 0.5, false},
	} {
		route := &Checked{}
		route.ModelCan.Supports, route.Embedder = c.asks, &lengths{}
		if got := route.EmbedsBesideScores(rerank.Query{Text: c.text}, c.mix); got != c.want {
			t.Errorf("%s: a vector beside the scores: %t", name, got)
		}
		route.Embedder = nil
		if route.EmbedsBesideScores(rerank.Query{Text: c.text}, c.mix) {
			t.Errorf("%s: a vector without an embedder", name)
		}
	}
}

// TestSeesEveryWrite: the operator's declaration counts while nothing contradicts it.
func TestSeesEveryWrite(t *testing.T) {
	for _, c := range []struct {
		writes   string
		disputed Dispute
		expires  bool
		want     bool
	}{{"proxy", "", false, true}, {"proxy", DisputeForeign, false, false}, {"proxy", DisputePeers, false, false}, {"proxy", "", true, false}, {"", "", false, false}} {
		v := View{Checked: &Checked{Expires: c.expires}, Horizon: Horizon{Disputed: c.disputed}}
		v.Writes = config.Writes(c.writes)
		if got := v.SeesEveryWrite(); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestForCollection: if a route is directed to a collection other than its table's, the table
// proves nothing, unless a follower knows better.
func TestForCollection(t *testing.T) {
	for name, c := range map[string]struct {
		own, to   string
		freshness Freshness
		want      string
		switched  bool
	}{
		"its own":                  {"c", "", nil, "a", false},
		"the same name":            {"c", "a", nil, "a", false},
		"what the alias stood for": {"c", "c", nil, "c", false},
		"another":                  {"c", "d", nil, "d", true},
		"another, followed":        {"c", "d", watched{}, "d", false},
		"names are not known":      {"", "d", nil, "d", false},
	} {
		route := &Checked{OwnName: c.own}
		route.Collection, route.Freshness = "a", c.freshness
		if got := route.ForCollection(c.to); got.Collection != c.want || got.switched != c.switched || route.Collection != "a" {
			t.Errorf("%s: %q, switched %t", name, got.Collection, got.switched)
		}
	}
	for own, want := range map[string]bool{"": false, "a": false, "c": true} {
		route := &Checked{OwnName: own}
		route.Collection = "a"
		if route.NamesAlias() != want {
			t.Errorf("own name %q: an alias: %t", own, !want)
		}
	}
}

// identifies is a store that only answers for the name of a collection.
type identifies struct {
	adapters.Store
	name string
	err  error
}

func (i identifies) Identify(context.Context, string) (adapters.Identity, error) {
	return adapters.Identity{Collection: i.name}, i.err
}

// TestOwnNames: a store that does not tell what a name stands for hides it. If it fails, the name
// is unknown.
func TestOwnNames(t *testing.T) {
	for _, c := range []struct {
		store  adapters.Store
		name   string
		hidden bool
		err    error
	}{
		{nil, "", false, nil}, {identifies{name: "c"}, "c", false, nil},
		{identifies{err: adapters.ErrRefused}, "", true, nil}, {identifies{err: adapters.ErrUnsupported}, "", true, nil},
		{identifies{err: adapters.ErrUnavailable}, "", false, adapters.ErrUnavailable},
	} {
		route := &Checked{Route: Route{StoreCan: adapters.AbilitiesOf(c.store)}}
		name, hidden, err := route.askOwnName(t.Context())
		if name != c.name || hidden != c.hidden || !errors.Is(err, c.err) || route.ReadAlias(t.Context()) != c.name {
			t.Errorf("%+v: %q, hidden %t, %v", c.store, name, hidden, err)
		}
	}
}

// TestItemsAreCached: items are cached for a minute, by the fields that a ranker reads.
func TestItemsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wants, others := plugin.Description{Payload: true}, plugin.Description{Vectors: true}
		var c ItemCache
		if _, ok := c.Get(wants); ok {
			t.Error("an empty cache has items")
		}
		c.Put([]plugin.Item{{ID: rerank.UintID(1)}}, wants)
		time.Sleep(itemCacheTTL - 1) //nolint:forbidigo // of the bubble: no time passes
		if items, ok := c.Get(wants); !ok || len(items) != 1 {
			t.Errorf("%v, %t", items, ok)
		}
		if _, ok := c.Get(others); ok {
			t.Error("items without what the ranker reads")
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // of the bubble: no time passes
		if _, ok := c.Get(wants); ok {
			t.Error("items of a minute ago")
		}
	})
}

// TestPartitionsOfARoute: a request may name partitions that the route sees and that its first
// stage can tell apart.
func TestPartitionsOfARoute(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		asked  []string
		takes  bool
		misses bool // of the companion
	}{
		"any of a whole route":     {Policy{Strategy: rerank.Average}, []string{"a"}, true, false},
		"of a narrow route":        {Policy{Strategy: rerank.Average, Partitions: []string{"a", "b"}}, []string{"a"}, true, false},
		"another of a narrow one":  {Policy{Strategy: rerank.Average, Partitions: []string{"a"}}, []string{"a", "b"}, false, false},
		"of a scan":                {Policy{Strategy: rerank.Scan}, []string{"a"}, false, false},
		"of a companion":           {Policy{Strategy: rerank.Average, Companion: "d"}, []string{"a"}, false, true},
		"all of a companion":       {Policy{Strategy: rerank.Average, Companion: "d", Partitions: []string{"a"}}, []string{"a"}, false, false},
		"distilled, of the stored": {Policy{Strategy: rerank.Distilled, Companion: "d"}, []string{"a"}, true, false},
	} {
		route := &Checked{Route: Route{Policy: c.policy}}
		if got := route.TakesPartitions(c.asked); got != c.takes {
			t.Errorf("%s: taken: %t", name, got)
		}
		if got := route.MissesPartitions(c.policy.Strategy, c.asked); got != c.misses {
			t.Errorf("%s: missed: %t", name, got)
		}
	}
}

// TestOwners: a model with behavioural vectors has several rows an item in its companion alone.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		behavioural bool
		collection  string
		want        string
	}{{false, "c", "item"}, {true, "c", ""}, {true, "d", "item"}} {
		route := &Checked{Behavioural: c.behavioural, Route: Route{Policy: Policy{Owner: "item", Collection: "c", Companion: "d"}}}
		if got := route.OwnerIn(c.collection); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestNarrow: a store's limits lower the route's, and never raise them.
func TestNarrow(t *testing.T) {
	for name, c := range map[string]struct {
		store                          adapters.Limits
		maxDepth, depth, average, most int
	}{
		"none":    {adapters.Limits{}, 100, 50, 80, 7},
		"lower":   {adapters.Limits{MaxDepth: 60, MaxProbes: 5}, 60, 50, 60, 5},
		"lowest":  {adapters.Limits{MaxDepth: 20}, 20, 20, 20, 7},
		"greater": {adapters.Limits{MaxDepth: 1000, MaxProbes: 9}, 100, 50, 80, 7},
	} {
		route := &checking{Checked: Checked{MaxProbes: 7, Route: Route{Policy: Policy{MaxDepth: 100, Depth: 50, AverageDepth: 80}}}}
		if route.narrow(c.store); route.MaxDepth != c.maxDepth || route.Depth != c.depth || route.AverageDepth != c.average || route.MaxProbes != c.most {
			t.Errorf("%s: %d, %d, %d, %d probes", name, route.MaxDepth, route.Depth, route.AverageDepth, route.MaxProbes)
		}
	}
	first := &checking{}
	if first.narrow(adapters.Limits{MaxProbes: 3}); first.MaxProbes != 3 {
		t.Errorf("%d probes", first.MaxProbes)
	}
}

// TestLimitsOfARoute: limits are at least 1, lists are no deeper than max_depth, and neither a
// timeout nor a gap is negative.
func TestLimitsOfARoute(t *testing.T) {
	gap := func(f float32) *float32 { return &f }
	nan := gap(0)
	*nan /= *nan
	for name, c := range map[string]struct {
		change func(*Policy)
		ok     bool
	}{
		"usual":             {func(*Policy) {}, true},
		"max_k":             {func(p *Policy) { p.MaxK = 0 }, false},
		"max_depth":         {func(p *Policy) { p.MaxDepth = -1 }, false},
		"max_rounds":        {func(p *Policy) { p.MaxRounds = 0 }, false},
		"depth":             {func(p *Policy) { p.Depth = 0 }, false},
		"average depth":     {func(p *Policy) { p.AverageDepth = 0 }, false},
		"as deep as may be": {func(p *Policy) { p.Depth, p.AverageDepth = 9, 9 }, true},
		"too deep":          {func(p *Policy) { p.Depth = 10 }, false},
		"average too deep":  {func(p *Policy) { p.AverageDepth = 10 }, false},
		"timeout":           {func(p *Policy) { p.Timeout = -1 }, false},
		"gap":               {func(p *Policy) { p.MaxGap = gap(-1) }, false},
		"no number":         {func(p *Policy) { p.MaxGap = nan }, false},
		"exact":             {func(p *Policy) { p.MaxGap = gap(0) }, true},
	} {
		p := Policy{MaxK: 9, MaxDepth: 9, MaxRounds: 9, Depth: 5, AverageDepth: 5}
		c.change(&p)
		if err := (&checking{Checked: Checked{Route: Route{Policy: p}}}).checkLimits(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSetup) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLimitsOfARanker: a ranker is asked about at least one item, in rounds that its model can
// refine, and nothing is proved of its order.
func TestLimitsOfARanker(t *testing.T) {
	for name, c := range map[string]struct {
		policy        Policy
		named         bool
		asks          rerank.SupportAsker
		ok            bool
		calls, rounds int
	}{
		"no ranker":         {Policy{Calls: 5, RankRounds: 3}, false, nil, true, 0, 0},
		"usual":             {Policy{}, true, nil, true, config.DefaultPolicy().Calls, config.DefaultPolicy().RankRounds},
		"as named":          {Policy{Calls: 7, RankRounds: 1}, true, nil, true, 7, 1},
		"no calls":          {Policy{Calls: -1}, true, nil, false, 0, 0},
		"for supports only": {Policy{Calls: 3, RankRounds: 1}, true, supports{}, false, 0, 0},
		"for one item more": {Policy{Calls: 4, RankRounds: 1}, true, supports{}, true, 4, 1},
		"too many rounds":   {Policy{Calls: 7, RankRounds: MaxRankRounds + 1}, true, nil, false, 0, 0},
		"cannot refine":     {Policy{Calls: 7, RankRounds: 2}, true, nil, false, 0, 0},
		"a gap":             {Policy{Calls: 7, RankRounds: 1, MaxGap: new(float32)}, true, nil, false, 0, 0},
	} {
		route := &checking{Checked: Checked{Route: Route{Policy: c.policy}}}
		route.ModelCan.Supports = c.asks
		if c.named {
			route.Ranker = struct{ ranker.Ranker }{}
		}
		err := route.checkRanker()
		if (err == nil) != c.ok || c.ok && (route.Calls != c.calls || route.RankRounds != c.rounds) {
			t.Errorf("%s: %d calls in %d rounds, %v", name, route.Calls, route.RankRounds, err)
		}
	}
}

// TestFieldsOfARoute: the route's settings about vectors must fit the vector field.
func TestFieldsOfARoute(t *testing.T) {
	field := func(m adapters.Metric, dim int) adapters.VectorField {
		return adapters.VectorField{Name: "v", Dim: dim, Metric: m, Datatype: adapters.Float32, FullPrecision: true, Exact: true}
	}
	multi := field(adapters.Cosine, 2)
	multi.MaxSim = true
	for name, c := range map[string]struct {
		have       adapters.Description
		normalise  bool
		unit       bool
		grouped    bool
		owner, err string
		ok         bool
	}{
		"raw vectors, inner product":   {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.InnerProduct, 2)}}, ok: true},
		"unit vectors, cosine":         {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.Cosine, 2)}}, normalise: true, ok: true},
		"raw vectors, cosine":          {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.Cosine, 2)}}},
		"unit vectors, inner product":  {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.InnerProduct, 2)}}, normalise: true},
		"declared, inner product":      {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.InnerProduct, 2)}}, normalise: true, unit: true, ok: true},
		"distance":                     {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.L2, 2)}}},
		"distance of declared vectors": {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.L2, 2)}}, unit: true, ok: true},
		"no index":                     {have: adapters.Description{Fields: []adapters.VectorField{field("", 2)}}},
		"another metric":               {have: adapters.Description{Fields: []adapters.VectorField{field("manhattan", 2)}}, unit: true},
		"another dimension":            {have: adapters.Description{Fields: []adapters.VectorField{field(adapters.InnerProduct, 3)}}},
		"no field":                     {},
		"a multi-vector":               {have: adapters.Description{MaxSim: []adapters.VectorField{multi}}, normalise: true},
		"a multi-vector, grouped":      {have: adapters.Description{MaxSim: []adapters.VectorField{multi}}, normalise: true, grouped: true, ok: true},
		"a multi-vector with an owner": {have: adapters.Description{MaxSim: []adapters.VectorField{multi}}, normalise: true, grouped: true, owner: "item"},
	} {
		route := &checking{Checked: Checked{Spec: rerank.Spec{ItemDim: 2, Normalise: c.normalise, GroupedRows: c.grouped}}}
		route.Vector, route.UnitVectors, route.Owner = "v", c.unit, c.owner
		f, err := route.checkField(c.have)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSetup) {
			t.Errorf("%s: %v", name, err)
		} else if c.ok && (f.Name != "v" || route.Field != f) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestFieldsThatBarRewriting: scores of a field are φ times a scale only if they are inner products
// with the query as it is sent.
func TestFieldsThatBarRewriting(t *testing.T) {
	for name, c := range map[string]struct {
		f       adapters.VectorField
		grouped bool
		named   bool
		ok      bool
	}{
		"inner product":             {adapters.VectorField{Metric: adapters.InnerProduct, Datatype: adapters.Float32}, false, false, true},
		"cosine of float16":         {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float16}, false, false, true},
		"distance":                  {adapters.VectorField{Metric: adapters.L2, Datatype: adapters.Float32}, false, false, false},
		"bytes":                     {adapters.VectorField{Metric: adapters.Cosine, Datatype: "uint8"}, false, false, false},
		"quantized":                 {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32, Quantized: "q"}, false, false, false},
		"quantized, and rescored":   {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32, Quantized: "q", Rescores: true}, false, false, true},
		"quantized, and demanded":   {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32, Quantized: "q"}, false, true, true},
		"one vector, several rows":  {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32}, true, false, false},
		"several vectors, and rows": {adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32, MaxSim: true}, true, false, true},
	} {
		route := &checking{Checked: Checked{Spec: rerank.Spec{GroupedRows: c.grouped}}, rewriteNamed: c.named}
		if why := route.fieldBarsRewrite(c.f); (why == "") != c.ok {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestNeverExact: a search is exact only if it compares all original vectors.
func TestNeverExact(t *testing.T) {
	for _, c := range []struct {
		f  adapters.VectorField
		ok bool
	}{
		{adapters.VectorField{FullPrecision: true, Exact: true}, true}, {adapters.VectorField{FullPrecision: true, AlwaysExact: true}, true},
		{adapters.VectorField{FullPrecision: true}, false}, {adapters.VectorField{Exact: true}, false},
	} {
		if why := neverExact(c.f); (why == "") != c.ok {
			t.Errorf("%+v: %q", c.f, why)
		}
	}
}

// TestNormsAreWatched: a vector without norm 1 is noticed, and logged once.
func TestNormsAreWatched(t *testing.T) {
	ids := []rerank.ID{rerank.UintID(1), rerank.UintID(2)}
	for name, c := range map[string]struct {
		second float32
		wrong  bool
	}{"unit": {1, false}, "nearly": {1.00005, false}, "longer": {1.001, true}, "shorter": {0.999, true}, "zero": {0, true}} {
		n := new(Norms)
		n.See(ids, rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{-1, c.second}})
		w := n.Wrong()
		if (w != nil) != c.wrong || c.wrong && w.ID != ids[1] {
			t.Errorf("%s: %+v", name, w)
		}
		if (n.WrongOnce() != nil) != c.wrong || n.WrongOnce() != nil {
			t.Errorf("%s: it is not told once", name)
		}
	}
	var none *Norms
	if none.See(ids, rerank.NewMatrix(2, 1)); none.Wrong() != nil || none.WrongOnce() != nil {
		t.Error("nobody watches, and a norm is wrong")
	}
}

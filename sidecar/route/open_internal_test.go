package route

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
)

const dim = 3

// newDot returns the inner product of raw vectors, or of unit vectors.
func newDot(t *testing.T, normalise bool) rerank.Similarity {
	t.Helper()
	s, err := dot.New(dot.Config{Dim: dim, Normalise: normalise}, nil)
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTable returns a table of eight items with feature rows of so many numbers.
func newTable(t *testing.T, meta table.Meta, features int) *table.Table {
	t.Helper()
	ids := make([]rerank.ID, 8)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	tab, err := table.FromMemory(meta, ids, waves(len(ids), features), nil)
	must(t, err)
	return tab
}

// newTestRoute returns a route that scores the stored vectors of "items" by a dot product, and has a table of them.
func newTestRoute(t *testing.T) *Route {
	t.Helper()
	store := embedded.New()
	must(t, store.Load("items", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: waves(8, dim)}}}))
	return &Route{
		Policy: Policy{Name: "r", Collection: "items", StoreName: "embedded", Placement: PlacementStored},
		Parts: Parts{
			Store: store, Model: Model{Name: "m", Version: "1", Similarity: newDot(t, false)},
			Table: newTable(t, table.Meta{Model: "m", ModelVersion: "1", Collection: "items"}, dim),
		},
	}
}

// searchOnly hides the optional abilities of a store.
type searchOnly struct{ adapters.Store }

// TestWrongRoutes: a route that contradicts itself, its model, its table or its collection is refused. The error names
// the contradiction and the remedy.
func TestWrongRoutes(t *testing.T) {
	grouped, err := maxsim.New(maxsim.Config{Dim: dim}, nil)
	must(t, err)
	several, err := late.New(late.Config{Dim: dim}, nil)
	must(t, err)
	compared := func(m adapters.Metric, vouched, normalise bool) func(*Route) {
		return func(r *Route) {
			must(t, r.Store.(*embedded.Store).Load("items", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: m}, Vectors: waves(8, dim)}}}))
			r.UnitVectors, r.Model.Similarity = vouched, newDot(t, normalise)
		}
	}
	longer, err := dot.New(dot.Config{Dim: dim + 1}, nil)
	must(t, err)
	negative := float32(-1)
	for name, c := range map[string]struct {
		change func(*Route)
		says   string // "" for a route that opens
	}{
		"stored":                {func(*Route) {}, ""},
		"of a table":            {func(r *Route) { r.Placement = PlacementTable }, ""},
		"of a table, no fetch":  {func(r *Route) { r.Placement, r.Store = PlacementTable, searchOnly{r.Store} }, ""},
		"of a table, no store":  {func(r *Route) { r.Placement, r.Store, r.Strategy = PlacementTable, nil, rerank.Scan }, ""},
		"stored, no store":      {func(r *Route) { r.Store, r.Strategy = nil, rerank.Scan }, ""},
		"rewritten":             {func(r *Route) { r.Placement, r.Table = "", nil }, ""},
		"several rows, owned":   {func(r *Route) { r.Model.Similarity, r.Owner = grouped, "item" }, ""},
		"scan if faster":        {func(r *Route) { r.ScanIfFaster = true }, ""},
		"orders what is found":  {func(r *Route) { r.OptIn = []string{"hybrid"} }, ""},
		"raw, cosine":           {compared(adapters.Cosine, true, false), "loses their norms"},
		"raw, L2":               {compared(adapters.L2, false, false), "unit_vectors: true"},
		"unit, cosine":          {compared(adapters.Cosine, false, true), ""},
		"unit, inner product":   {compared(adapters.InnerProduct, false, true), "unit_vectors: true"},
		"unit, vouched":         {compared(adapters.InnerProduct, true, true), ""},
		"unit, L2, vouched":     {compared(adapters.L2, true, true), ""},
		"no name":               {func(r *Route) { r.Name = "" }, "a route has no name"},
		"no model":              {func(r *Route) { r.Model.Similarity = nil }, "no model"},
		"strategy":              {func(r *Route) { r.Strategy = "guess" }, `"guess" is none of`},
		"failure":               {func(r *Route) { r.Failure = "ajar" }, `"ajar" is neither`},
		"placement":             {func(r *Route) { r.Placement = "here" }, `placement "here" is none of`},
		"field":                 {func(r *Route) { r.Vector = "title" }, `no vector field "title"`},
		"dimension":             {func(r *Route) { r.Model.Similarity, r.Table = longer, nil }, "3 dimensions and its model takes 4"},
		"collection":            {func(r *Route) { r.Collection, r.Table = "x", nil }, "collection not found"},
		"faster than what":      {func(r *Route) { r.ScanIfFaster, r.Table = true, nil }, "scan_if_faster scans a table and it has none"},
		"no table to scan":      {func(r *Route) { r.Strategy, r.Table = rerank.Scan, nil }, "reads a table and it has none"},
		"partitions to scan":    {func(r *Route) { r.Strategy, r.Partitions = rerank.Scan, []string{"p"} }, `not partitions ["p"] of it`},
		"no store to search":    {func(r *Route) { r.Store, r.Strategy = nil, rerank.Average }, "searches a store"},
		"no table":              {func(r *Route) { r.Placement, r.Table = PlacementTable, nil }, "needs a table"},
		"companion of a dot":    {func(r *Route) { r.Companion = "x" }, "derives no fields"},
		"no companion":          {func(r *Route) { r.Placement = PlacementDerived }, "needs a companion"},
		"cannot be fetched":     {func(r *Route) { r.Store = searchOnly{r.Store} }, "fetches vectors by id"},
		"table of a version":    {func(r *Route) { r.Model.Version = "2" }, `version "1" and its model is version "2"`},
		"table of a collection": {func(r *Route) { r.Collection = "others" }, `"items" and the route searches "others"`},
		"table of a kind":       {func(r *Route) { r.Table = newTable(t, r.Table.Meta(), 5) }, "5 numbers and its model has 3"},
		"no owner":              {func(r *Route) { r.Model.Similarity = grouped }, "as owner"},
		"owner of rows":         {func(r *Route) { r.Owner = "item" }, "scores rows one by one"},
		"several, of which":     {func(r *Route) { r.Model.Similarity = several }, "name the multi-vector field"},
		"vectors of a dot":      {func(r *Route) { r.Vectors = "all" }, "takes one vector field"},
		"vectors and an owner":  {func(r *Route) { r.Model.Similarity, r.Vectors, r.Owner = several, "all", "item" }, "remove one of them"},
		"cannot order": {func(r *Route) {
			r.Model.Similarity, r.Store, r.Strategy, r.OptIn = grouped, nil, rerank.Scan, []string{"hybrid"}
		}, "cannot be ordered"},
		"depth":                  {func(r *Route) { r.Depth = -1 }, "depth is -1"},
		"depth over max_depth":   {func(r *Route) { r.Depth, r.MaxDepth = 50, 40 }, "max_depth 40"},
		"max_gap":                {func(r *Route) { r.MaxGap = &negative }, "max_gap"},
		"timeout":                {func(r *Route) { r.Timeout = -1 }, "timeout"},
		"reembeds what is a dot": {func(r *Route) { r.Reembed.Text = "text" }, "reembed keeps new vectors in a companion"},
	} {
		r := newTestRoute(t)
		c.change(r)
		opened, err := Open(t.Context(), r)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says == "" && r.Placement != "" && opened.Placement != r.Placement:
			t.Errorf("%s: placement %q, want %q", name, opened.Placement, r.Placement)
		case c.says == "" && (opened.Costs != nil) != r.ScanIfFaster:
			t.Errorf("%s: costs are measured: %t", name, opened.Costs != nil)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, ErrSetup) && !errors.Is(err, adapters.ErrNotFound)):
			t.Errorf("%s: error %v, want ErrSetup that says %q", name, err, c.says)
		}
	}
}

// TestProbesOfARoute: all probes search the collection, or all search fields that the companion has. They are no more
// than the store takes, and reach the items of the model.
func TestProbesOfARoute(t *testing.T) {
	stored, derived := rerank.Probe{Target: rerank.TargetScore}, rerank.Probe{Field: "f", Vector: make([]float32, 2)}
	for name, c := range map[string]struct {
		probes      []rerank.Probe
		companion   string
		dims        map[string]int
		most        int
		behavioural bool
		ok          bool
	}{
		"none":                      {nil, "", nil, 0, false, true},
		"stored":                    {[]rerank.Probe{stored}, "", nil, 1, false, true},
		"stored, beside derived":    {[]rerank.Probe{stored, derived}, "d", nil, 0, false, false},
		"derived":                   {[]rerank.Probe{derived}, "d", map[string]int{"f": 2}, 0, false, true},
		"derived, not asked yet":    {[]rerank.Probe{derived}, "d", nil, 0, false, true},
		"derived, nowhere":          {[]rerank.Probe{derived}, "", nil, 0, false, false},
		"derived, of another dim":   {[]rerank.Probe{derived}, "d", map[string]int{"f": 3}, 0, false, false},
		"derived, of another field": {[]rerank.Probe{derived}, "d", map[string]int{"g": 2}, 0, false, false},
		"too many":                  {[]rerank.Probe{stored, stored}, "", nil, 1, false, false},
		"out of reach":              {[]rerank.Probe{stored}, "", nil, 0, true, false},
	} {
		checked := &Checked{Behavioural: c.behavioural, MaxProbes: c.most, CompanionDims: c.dims}
		checked.Companion = c.companion
		if err := checked.CheckProbes(c.probes); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSetup) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExactSearchesOfAField: a route says why no search of its field is exact, unless it searches a companion.
func TestExactSearchesOfAField(t *testing.T) {
	approximate := adapters.Description{Fields: []adapters.VectorField{{Name: "v", Dim: 4, Metric: adapters.InnerProduct, FullPrecision: true}}}
	for placement, told := range map[Placement]bool{PlacementStored: true, PlacementDerived: false} {
		checked := &checking{Checked: Checked{Spec: rerank.Spec{ItemDim: 4}}}
		checked.Placement, checked.ExactSearch = placement, true
		if _, err := checked.checkField(approximate); err != nil || (checked.WhyNeverExact != "") != told {
			t.Errorf("%s: %q, %v", placement, checked.WhyNeverExact, err)
		}
	}
}

// TestNormsAreSampled: a route that declares unit vectors looks at some when it opens.
func TestNormsAreSampled(t *testing.T) {
	long := waves(8, dim)
	for i := range long.Data {
		long.Data[i] *= 2
	}
	r := newTestRoute(t)
	must(t, r.Store.(*embedded.Store).Load("items", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: long}}}))
	r.UnitVectors, r.Model.Similarity = true, newDot(t, true)
	opened, err := Open(t.Context(), r)
	must(t, err)
	if opened.Norms.Wrong() == nil {
		t.Error("no vector of norm 2 was seen")
	}
}

// TestPlacements: without a placement of the operator's, a route takes its table, the companion of behavioural vectors,
// the stored vectors beside a companion, or rewrites.
func TestPlacements(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Checked)
		want   Placement
		why    string // why searches are not rewritten
	}{
		"named":            {func(c *Checked) { c.Placement, c.Table = PlacementStored, new(table.Table) }, PlacementStored, ""},
		"auto":             {func(c *Checked) { c.Placement, c.Table = config.PlacementAuto, new(table.Table) }, PlacementTable, ""},
		"a table":          {func(c *Checked) { c.Table, c.Companion = new(table.Table), "d" }, PlacementTable, ""},
		"behavioural":      {func(c *Checked) { c.Behavioural = true }, PlacementDerived, ""},
		"a companion":      {func(c *Checked) { c.Companion = "d" }, PlacementStored, ""},
		"one product":      {func(*Checked) {}, PlacementRewrite, ""},
		"no product":       {func(c *Checked) { c.Spec.SingleInnerProduct = false }, PlacementStored, "depend on the item"},
		"a ranker's":       {func(c *Checked) { c.Spec.Kind = rerank.KindRBE }, PlacementStored, "a ranker's answers"},
		"several vectors":  {func(c *Checked) { c.Spec.Kind = rerank.KindLate }, PlacementStored, "several vectors"},
		"several rows":     {func(c *Checked) { c.Spec.GroupedRows, c.Owner = true, "item" }, PlacementStored, "best of several rows"},
		"no store":         {func(c *Checked) { c.Store = nil }, PlacementStored, "no store"},
		"scans":            {func(c *Checked) { c.Strategy = rerank.Scan }, PlacementStored, "does not search by φ"},
		"distilled":        {func(c *Checked) { c.Strategy = rerank.Distilled }, PlacementStored, "does not search by φ"},
		"learned vectors":  {func(c *Checked) { c.Strategy = rerank.Companion }, PlacementStored, "does not search by φ"},
		"other strategies": {func(c *Checked) { c.Strategy = rerank.Average }, PlacementRewrite, ""},
	} {
		r := newTestRoute(t)
		r.Placement, r.Table = "", nil
		checked := &checking{Checked: Checked{Route: *r, Spec: r.Model.Similarity.Spec()}}
		c.change(&checked.Checked)
		if checked.fillPlacement(); checked.Placement != c.want || (checked.WhyNotRewritten == "") != (c.why == "") || !strings.Contains(checked.WhyNotRewritten, c.why) {
			t.Errorf("%s: placement %q, because %q; want %q, because %q", name, checked.Placement, checked.WhyNotRewritten, c.want, c.why)
		}
	}
}

// planned is a similarity that keeps the plan of the last probes.
type planned struct {
	rerank.Similarity
	rerank.Encoded
	plan rerank.Plan
}

func (p *planned) Encode(q rerank.Query) (rerank.Encoded, error) {
	var err error
	p.Encoded, err = p.Similarity.Encode(q)
	return p, err
}

func (p *planned) Probes(plan rerank.Plan) ([]rerank.Probe, error) {
	p.plan = plan
	return p.Encoded.Probes(rerank.Plan{Strategy: rerank.Average, Depth: plan.Depth})
}

// TestPlanOfARoute: the trial query of a route is planned by all its settings.
func TestPlanOfARoute(t *testing.T) {
	p := &planned{Similarity: newDot(t, false)}
	checked := &checking{Checked: Checked{Spec: p.Spec()}}
	checked.Model.Similarity, checked.Companion = p, "d"
	want := rerank.Plan{Strategy: rerank.Combined, Depth: 3, AverageDepth: 4, Weights: rerank.GateWeights, Head: "linear", Derived: true}
	checked.Strategy, checked.Depth, checked.AverageDepth, checked.Weights, checked.Head = want.Strategy, want.Depth, want.AverageDepth, want.Weights, want.Head
	if _, err := checked.trialProbes(); err != nil || p.plan != want {
		t.Errorf("the plan is %+v, want %+v; %v", p.plan, want, err)
	}
}

// TestVectorsElsewhere: a ranker's scores are no vectors of the collection, so that their number need not be its
// dimension, and nobody samples its norms.
func TestVectorsElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		kind      rerank.Kind
		strategy  rerank.Strategy
		placement Placement
		companion string
		want      bool
	}{
		"scanned":                {rerank.KindRBE, rerank.Scan, PlacementTable, "", true},
		"of a companion":         {rerank.KindRBE, rerank.Average, PlacementDerived, "d", true},
		"searches the database":  {rerank.KindRBE, rerank.Average, PlacementTable, "", false},
		"scored as it is stored": {rerank.KindRBE, rerank.Scan, PlacementStored, "", false},
		"a dot":                  {rerank.KindDot, rerank.Scan, PlacementTable, "", false},
	} {
		store := &fieldStore{fields: map[string]adapters.VectorField{"c": {Name: "v", Dim: 4, Metric: adapters.InnerProduct, FullPrecision: true, Exact: true}}}
		checked := &checking{Checked: Checked{Route: Route{StoreCan: adapters.AbilitiesOf(store)}, Spec: rerank.Spec{Kind: c.kind, ItemDim: 7}}}
		checked.Collection, checked.Strategy, checked.Placement, checked.Companion = "c", c.strategy, c.placement, c.companion
		checked.Norms = new(Norms)
		described, _ := store.Describe(t.Context(), "c")
		if _, err := checked.checkField(described); checked.VectorsElsewhere != c.want || (err == nil) != c.want {
			t.Errorf("%s: elsewhere %t, %v", name, checked.VectorsElsewhere, err)
		}
		if c.want && c.companion == "" {
			if err := checked.checkStore(t.Context()); err != nil || checked.Norms != nil {
				t.Errorf("%s: the norms are watched: %t, %v", name, checked.Norms != nil, err)
			}
		}
	}
}

// TestFieldOfSeveralVectors: a route that scans a table of late interaction describes the field that it names as vectors.
func TestFieldOfSeveralVectors(t *testing.T) {
	checked := &checking{Checked: Checked{Spec: rerank.Spec{Kind: rerank.KindLate, ItemDim: 4}}}
	checked.Vectors, checked.Strategy = "all", rerank.Scan
	found, err := checked.checkField(adapters.Description{MaxSim: []adapters.VectorField{{Name: "some", Dim: 9}, {Name: "all", Dim: 4}}})
	if err != nil || found.Name != "all" || checked.Field != found {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestCompanionOfARoute: the companion needs the fields of a feature row where items are scored from it, and the others
// only where a strategy searches them.
func TestCompanionOfARoute(t *testing.T) {
	m, err := model.Open("../../examples/models/banking77-mol")
	must(t, err)
	var features, others []string
	all := map[string]adapters.VectorField{}
	for _, f := range rerank.AbilitiesOf(m.Similarity).Derive.Fields() {
		all[f.Name] = adapters.VectorField{Name: f.Name, Dim: f.Dim, Metric: adapters.InnerProduct}
		if f.Feature {
			features = append(features, f.Name)
		} else {
			others = append(others, f.Name)
		}
	}
	for name, c := range map[string]struct {
		placement Placement
		lacks     string
		dim       int // added to the dimension of the first field
		metric    adapters.Metric
		ok        bool
	}{
		"whole":                  {PlacementDerived, "", 0, adapters.InnerProduct, true},
		"without a feature":      {PlacementDerived, features[0], 0, adapters.InnerProduct, false},
		"without what it probes": {PlacementDerived, others[0], 0, adapters.InnerProduct, true},
		"features of a table":    {PlacementTable, features[0], 0, adapters.InnerProduct, true},
		"of another model":       {PlacementTable, "", 1, adapters.InnerProduct, false},
		"by cosine":              {PlacementTable, "", 0, adapters.Cosine, false},
	} {
		have := adapters.Description{Settings: map[string]string{"m": "16"}}
		for n, f := range all {
			if f.Metric = c.metric; n == features[0] {
				f.Dim += c.dim
			}
			if n != c.lacks {
				have.Fields = append(have.Fields, f)
			}
		}
		checked := &checking{Checked: Checked{Route: Route{ModelCan: rerank.AbilitiesOf(m.Similarity)}, Spec: m.Similarity.Spec()}}
		checked.Companion, checked.Placement, checked.Table = "d", c.placement, new(table.Table)
		settings := map[string]string{}
		if err := checked.checkCompanion(t.Context(), describes(have), settings); settings["companion.m"] != "16" || (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSetup) {
			t.Errorf("%s: settings %v, %v", name, settings, err)
		}
		if err := checked.checkPlacement(); err != nil || !slices.Equal(checked.FeatureFields, features) {
			t.Errorf("%s: the feature fields are %q, want %q; %v", name, checked.FeatureFields, features, err)
		}
		if err := checked.checkCompanion(t.Context(), embedded.New(), nil); !errors.Is(err, adapters.ErrNotFound) {
			t.Errorf("%s: a companion that is not there: %v", name, err)
		}
	}
}

// describes is a Describer of one description.
type describes adapters.Description

func (d describes) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description(d), nil
}

// lengths is an Embedder whose vectors have one length. It keeps the last documents.
type lengths struct {
	n         int
	documents []string
}

func (l *lengths) Embed(_ context.Context, queries []string, documents ...string) ([][]float32, error) {
	l.documents = documents
	vectors := make([][]float32, len(queries)+len(documents))
	for i := range vectors {
		vectors[i] = make([]float32, l.n)
	}
	return vectors, nil
}

// TestEmbedderOfARoute: an embedder whose vectors the model does not take is refused when the route opens, and one
// that is taken gets queries and documents.
func TestEmbedderOfARoute(t *testing.T) {
	r := newTestRoute(t)
	r.Embedder = &lengths{n: dim + 1}
	if _, err := Open(t.Context(), r); !errors.Is(err, ErrSetup) {
		t.Errorf("vectors of another length: %v", err)
	}
	taken := &lengths{n: dim}
	r.Embedder = taken
	opened, err := Open(t.Context(), r)
	must(t, err)
	if vectors, err := opened.Embed(t.Context(), []string{"q"}, []string{"a", "b"}); err != nil || len(vectors) != 3 || !slices.Equal(taken.documents, []string{"a", "b"}) {
		t.Errorf("%d vectors of documents %q, %v", len(vectors), taken.documents, err)
	}
}

// cancelling is a store whose description cancels the context of its caller.
type cancelling struct {
	fieldStore
	cancel context.CancelFunc
}

func (s *cancelling) Describe(ctx context.Context, collection string) (adapters.Description, error) {
	s.cancel()
	return s.fieldStore.Describe(ctx, collection)
}

// TestAScanThatCannotBeMeasured: a route is not in service before a scan was measured, if its choice depends on it.
func TestAScanThatCannotBeMeasured(t *testing.T) {
	checked, err := check(newTestRoute(t), turns.New(1))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	field := adapters.VectorField{Name: "v", Dim: dim, Metric: adapters.InnerProduct}
	checked.StoreCan = adapters.AbilitiesOf(&cancelling{fieldStore{fields: map[string]adapters.VectorField{"items": field}}, cancel})
	checked.Costs = new(Costs)
	v := &Version{unchecked: checked, asking: make(chan struct{}, 1)}
	if got, err := v.Check(ctx); !errors.Is(err, context.Canceled) || got != nil || v.checked.Load() != nil {
		t.Errorf("%v, in service %t", err, v.checked.Load() != nil)
	}
}

// TestAnAliasThatCannotBeRead: a store that fails to say what the collection's name stands for leaves the route unchecked.
func TestAnAliasThatCannotBeRead(t *testing.T) {
	checked, err := check(newTestRoute(t), turns.New(1))
	must(t, err)
	checked.StoreCan.Identify = identifies{err: adapters.ErrUnavailable}
	if err := checked.checkStore(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

// TestScannerOfAView: searches of one snapshot share the scanner of it.
func TestScannerOfAView(t *testing.T) {
	checked, err := check(newTestRoute(t), turns.New(1))
	must(t, err)
	v := checked.View()
	defer v.Release()
	if s := v.Scanner(); s == nil || s.Table() != v.Table || v.Scanner() != s || checked.View().Scanner() != s {
		t.Error("the scanner is of another table, or made for each search")
	}
	other := View{Checked: &checked.Checked, Table: newTable(t, v.Table.Meta(), dim)}
	if other.Scanner().Table() != other.Table {
		t.Error("another snapshot is scanned by the scanner of the first")
	}
	if (View{Checked: &checked.Checked}).Scanner() != nil {
		t.Error("a scanner without a table")
	}
}

// TestHoldersOfASet: opening and preparing routes leaves each version with the holders that it had. A prepared version
// shares the turns of the set.
func TestHoldersOfASet(t *testing.T) {
	shared := turns.New(1)
	s, err := NewSet([]*Route{newTestRoute(t)}, shared)
	must(t, err)
	must(t, s.Open(t.Context()))
	first := s.slots["r"].current.Load()
	if n := first.holds.Load(); n != 1 {
		t.Fatalf("%d hold an open route, want its place alone", n) // Switch would wait for it
	}
	next, err := s.Prepare(t.Context(), newTestRoute(t))
	must(t, err)
	if next.Version.holds.Load() != 1 || next.Version.Current().Turns != shared {
		t.Errorf("%d hold the prepared version, of the set's turns %t", next.Version.holds.Load(), next.Version.Current().Turns == shared)
	}
	pinned, release := Pin(t.Context())
	for range 2 {
		v, err := s.Find(pinned, "r")
		must(t, err)
		if v.Release(); v != first {
			t.Error("a call that pins the version in service searches another")
		}
	}
	ended := next.Switch()
	if v, err := s.Find(pinned, "r"); v != first {
		t.Errorf("within one call the version changes, %v", err)
	} else {
		v.Release()
	}
	release()
	release() // nothing is left to give back
	<-ended
	if s.slots["r"].current.Load() != next.Version || first.Hold() {
		t.Error("the version before is still in service")
	}
}

// TestVersionsThatAreNotServed: a route of another name is not prepared, one that is discarded ends, and a broken one is
// not found.
func TestVersionsThatAreNotServed(t *testing.T) {
	broken, other := newTestRoute(t), newTestRoute(t)
	broken.Broken, broken.Name, other.Name = errors.New("no such file"), "broken", "other"
	s, err := NewSet([]*Route{newTestRoute(t), broken}, turns.New(1))
	must(t, err)
	if _, err := s.Prepare(t.Context(), other); !errors.Is(err, ErrUnknown) {
		t.Errorf("a route that nobody configured: %v", err)
	}
	next, err := s.Prepare(t.Context(), newTestRoute(t))
	must(t, err)
	<-next.Discard()
	if _, err := s.Find(t.Context(), "broken"); !errors.Is(err, ErrSetup) || strings.Contains(err.Error(), "no such file") || s.slots["broken"].current.Load().holds.Load() != 1 {
		t.Errorf("a broken route: %v", err)
	}
}

// settingsOf is a store whose collections have one index setting each.
type settingsOf struct {
	adapters.Store

	of map[string]string // by collection
}

func (s settingsOf) Describe(_ context.Context, collection string) (adapters.Description, error) {
	value, ok := s.of[collection]
	if !ok {
		return adapters.Description{}, adapters.ErrNotFound
	}
	return adapters.Description{Settings: map[string]string{"m": value}}, nil
}

// TestSettings: a route's searches depend on the indices of the collection and, if it has one, of the companion.
func TestSettings(t *testing.T) {
	store := settingsOf{of: map[string]string{"items": "16", "derived": "32"}}
	for companion, want := range map[string]map[string]string{
		"":        {"collection.m": "16"},
		"derived": {"collection.m": "16", "companion.m": "32"},
		"gone":    {"collection.m": "16"},
	} {
		got, err := Settings(t.Context(), &Route{Policy: Policy{Collection: "items", Companion: companion}, StoreCan: adapters.AbilitiesOf(store)})
		if !maps.Equal(got, want) || errors.Is(err, adapters.ErrNotFound) != (companion == "gone") {
			t.Errorf("companion %q: %v, %v; want %v", companion, got, err, want)
		}
	}
	if got, err := Settings(t.Context(), &Route{StoreCan: adapters.AbilitiesOf(searchOnly{})}); got != nil || err != nil {
		t.Errorf("of a store that does not tell: %v, %v", got, err)
	}
}

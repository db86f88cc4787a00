package plan

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// promise is a calibration that a test sets.
type promise struct{ calibration *rerank.Calibration }

func (p promise) Calibration() (c *rerank.Calibration, void string) { return p.calibration, "" }
func (promise) Opened(*route.Route, map[string]string)              {}

// someRanker is a ranker that nobody calls here.
type someRanker struct{ ranker.Ranker }

// checked returns a route of a stored vector field, with limits that differ from each other.
func checked(change ...func(*route.Checked)) *route.Checked {
	c := &route.Checked{Spec: rerank.Spec{QueryDim: 2, ItemDim: 2}}
	c.Name, c.Placement, c.Strategy, c.Weights, c.Head = "r", route.PlacementStored, rerank.Average, rerank.UniformWeights, "h"
	c.Depth, c.AverageDepth, c.MaxDepth, c.MaxK = 20, 30, 100, 60
	c.Store = embedded.New()
	for _, f := range change {
		f(c)
	}
	return c
}

func narrowed(c *route.Checked)  { c.Partitions = []string{"a", "b"} }
func withTable(c *route.Checked) { c.Table = new(table.Table) }
func ranked(c *route.Checked) {
	c.Ranker, c.Calls, c.RankRounds = someRanker{}, 50, 2
	c.ModelCan.Refine = refiner{}
}

type refiner struct{ rerank.Refiner }

func gap(x float32) *float32 { return &x }
func calls(n int) *int       { return &n }

// TestResolve: a field that a request leaves empty gets the route's value, and other fields keep
// their own.
func TestResolve(t *testing.T) {
	vector := rerank.Query{Vector: []float32{1, 2}}
	routed := checked(narrowed, ranked, func(c *route.Checked) { c.MaxGap = gap(3) })
	got, err := Resolve(routed, Request{Query: vector, K: 5, Calls: calls(0)})
	if err != nil {
		t.Fatal(err)
	}
	if *got.MaxGap != 3 || !slices.Equal(got.Partitions, routed.Partitions) || got.Strategy != rerank.Average || got.Weights != rerank.UniformWeights ||
		got.Head != "h" || got.Depth != 20 || got.AverageDepth != 30 || *got.Calls != 0 || got.Rounds != 2 {
		t.Errorf("an empty request became %+v", got)
	}
	own := Request{
		Query: vector, K: 5, MaxGap: gap(0), Partitions: []string{"b"}, Strategy: rerank.PerEmbedding, Weights: rerank.GateWeights,
		Head: "other", Depth: 7, AverageDepth: 8, Calls: calls(0), Rounds: 1, MaxRank: 9, Filter: "f", Collection: "c",
	}
	if got, err = Resolve(routed, own); err != nil {
		t.Fatal(err)
	}
	if *got.MaxGap != 0 || !slices.Equal(got.Partitions, own.Partitions) || got.Strategy != own.Strategy || got.Weights != own.Weights || got.Head != own.Head ||
		got.Depth != 7 || got.AverageDepth != 8 || got.Rounds != 1 || got.MaxRank != 9 || got.Filter != "f" || got.Collection != "c" {
		t.Errorf("a request that names every field became %+v", got)
	}
	if got, err = Resolve(checked(ranked), Request{Query: vector, K: 5}); err != nil || *got.Calls != 50 {
		t.Errorf("the calls of the route are %v, %v; want 50", got.Calls, err)
	}
}

// TestLimits tries each limit and one value beyond it.
func TestLimits(t *testing.T) {
	vector := rerank.Query{Vector: []float32{1, 2}}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		route *route.Checked
		r     Request
		field string // named in the error; empty: no error
	}{
		"k":                                  {checked(), Request{Query: vector, K: 60}, ""},
		"k of 1":                             {checked(), Request{Query: vector, K: 1}, ""},
		"k of 0":                             {checked(), Request{Query: vector}, "k"},
		"k too large":                        {checked(), Request{Query: vector, K: 61}, "k"},
		"k is a list":                        {checked(func(c *route.Checked) { c.MaxDepth = 40 }), Request{Query: vector, K: 40}, ""},
		"k is more than a list":              {checked(func(c *route.Checked) { c.MaxDepth = 40 }), Request{Query: vector, K: 41}, "k"},
		"a scan has no lists":                {checked(withTable, func(c *route.Checked) { c.MaxDepth = 40 }), Request{Query: vector, K: 41, Strategy: rerank.Scan}, ""},
		"max_rank":                           {checked(), Request{Query: vector, K: 1, MaxRank: 60}, ""},
		"max_rank too large":                 {checked(), Request{Query: vector, K: 1, MaxRank: 61}, "max_rank"},
		"max_rank below 0":                   {checked(), Request{Query: vector, K: 1, MaxRank: -1}, "max_rank"},
		"depth":                              {checked(), Request{Query: vector, K: 1, Depth: 100}, ""},
		"depth too large":                    {checked(), Request{Query: vector, K: 1, Depth: 101}, "depth"},
		"depth below 0":                      {checked(), Request{Query: vector, K: 1, Depth: -1}, "depth"},
		"average_depth":                      {checked(), Request{Query: vector, K: 1, AverageDepth: 100}, ""},
		"average_depth too large":            {checked(), Request{Query: vector, K: 1, AverageDepth: 101}, "average_depth"},
		"average_depth below 0":              {checked(), Request{Query: vector, K: 1, AverageDepth: -1}, "depth"},
		"gap of 0":                           {checked(), Request{Query: vector, K: 1, MaxGap: gap(0)}, ""},
		"gap below 0":                        {checked(), Request{Query: vector, K: 1, MaxGap: gap(-1)}, "max_gap"},
		"gap infinite":                       {checked(), Request{Query: vector, K: 1, MaxGap: &inf}, "max_gap"},
		"gap no number":                      {checked(), Request{Query: vector, K: 1, MaxGap: &nan}, "max_gap"},
		"weights":                            {checked(), Request{Query: vector, K: 1, Weights: rerank.GateWeights}, ""},
		"other weights":                      {checked(), Request{Query: vector, K: 1, Weights: "heavy"}, "weights"},
		"other strategy":                     {checked(), Request{Query: vector, K: 1, Strategy: "guess"}, "strategy"},
		"partition of the route":             {checked(narrowed), Request{Query: vector, K: 1, Partitions: []string{"b"}}, ""},
		"foreign partition":                  {checked(narrowed), Request{Query: vector, K: 1, Partitions: []string{"b", "c"}}, "partitions"},
		"scan of a table":                    {checked(withTable), Request{Query: vector, K: 1, Strategy: rerank.Scan}, ""},
		"scan without a table":               {checked(), Request{Query: vector, K: 1, Strategy: rerank.Scan}, "strategy"},
		"scan of the route's partitions":     {checked(withTable, narrowed), Request{Query: vector, K: 1, Strategy: rerank.Scan}, "strategy"},
		"scan of partitions":                 {checked(withTable), Request{Query: vector, K: 1, Strategy: rerank.Scan, Partitions: []string{"a"}}, "partitions"},
		"scan with a filter":                 {checked(withTable), Request{Query: vector, K: 1, Strategy: rerank.Scan, Filter: "f"}, "filter"},
		"no store":                           {checked(func(c *route.Checked) { c.Store = nil }), Request{Query: vector, K: 1}, "strategy"},
		"payload that nobody reads":          {checked(), Request{Query: vector, K: 1, Payload: true}, "payload"},
		"partitions of a companion":          {checked(func(c *route.Checked) { c.Companion = "c" }), Request{Query: vector, K: 1, Partitions: []string{"a"}}, "partitions"},
		"no vector":                          {checked(), Request{K: 1}, "query.vector"},
		"no vector for a ranker":             {checked(ranked), Request{K: 1}, "query.vector"},
		"text without a ranker":              {checked(), Request{Query: rerank.Query{Vector: vector.Vector, Text: "t"}, K: 1}, "query.text"},
		"context without a ranker":           {checked(), Request{Query: rerank.Query{Vector: vector.Vector, Context: map[string]float32{"age": 1}}, K: 1}, "query.context"},
		"text for a ranker":                  {checked(ranked), Request{Query: rerank.Query{Vector: vector.Vector, Text: "t"}, K: 1}, ""},
		"calls without a ranker":             {checked(), Request{Query: vector, K: 1, Calls: calls(0)}, "calls"},
		"rounds without a ranker":            {checked(), Request{Query: vector, K: 1, Rounds: 1}, "rounds"},
		"all calls":                          {checked(ranked), Request{Query: vector, K: 1, Calls: calls(50)}, ""},
		"too many calls":                     {checked(ranked), Request{Query: vector, K: 1, Calls: calls(51)}, "calls"},
		"calls below 0":                      {checked(ranked), Request{Query: vector, K: 1, Calls: calls(-1)}, "calls"},
		"rounds":                             {checked(ranked), Request{Query: vector, K: 1, Rounds: route.MaxRankRounds}, ""},
		"too many rounds":                    {checked(ranked), Request{Query: vector, K: 1, Rounds: route.MaxRankRounds + 1}, "rounds"},
		"rounds below 0":                     {checked(ranked), Request{Query: vector, K: 1, Rounds: -1}, "rounds"},
		"rounds of a model that cannot":      {checked(ranked, func(c *route.Checked) { c.ModelCan.Refine = nil }), Request{Query: vector, K: 1, Rounds: 2}, "rounds"},
		"one round of a model that cannot":   {checked(ranked, func(c *route.Checked) { c.ModelCan.Refine = nil }), Request{Query: vector, K: 1, Rounds: 1}, ""},
		"a gap of what a ranker orders":      {checked(ranked), Request{Query: vector, K: 1, MaxGap: gap(1)}, "max_gap"},
		"a gap where the ranker is left out": {checked(ranked), Request{Query: vector, K: 1, MaxGap: gap(1), Calls: calls(0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Resolve(c.route, c.r)
			var field *FieldError
			switch {
			case c.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.field != "" && (!errors.As(err, &field) || field.Field != c.field || !errors.Is(err, ErrRequest)):
				t.Errorf("err = %v, want a *FieldError of %s", err, c.field)
			}
		})
	}
}

// TestDefaultDepths: a request without a depth gets the calibrated depth of its rule, or the
// route's.
func TestDefaultDepths(t *testing.T) {
	calibrated := func(rule rerank.Rule) func(*route.Checked) {
		return func(c *route.Checked) { c.Promise = promise{&rerank.Calibration{K: 10, Rule: rule}} }
	}
	average := rerank.Rule{Strategy: rerank.Average, Weights: rerank.UniformWeights, Head: "h", Depth: 12, AverageDepth: 99}
	combined := rerank.Rule{Strategy: rerank.Combined, Weights: rerank.UniformWeights, Head: "h", Depth: 12, AverageDepth: 14}
	vector := rerank.Query{Vector: []float32{1, 2}}
	rewritten := func(c *route.Checked) { c.Placement = route.PlacementRewrite }
	for name, c := range map[string]struct {
		route          *route.Checked
		r              Request
		depth, average int
	}{
		"the route's":                        {checked(), Request{K: 5}, 20, 30},
		"no calibration yet":                 {checked(func(c *route.Checked) { c.Promise = promise{} }), Request{K: 5}, 20, 30},
		"calibrated":                         {checked(calibrated(average)), Request{K: 10}, 12, 30},
		"calibrated, combined":               {checked(calibrated(combined)), Request{K: 10, Strategy: rerank.Combined}, 12, 14},
		"another strategy":                   {checked(calibrated(average)), Request{K: 5, Strategy: rerank.PerEmbedding}, 20, 30},
		"another head":                       {checked(calibrated(average)), Request{K: 5, Head: "x"}, 20, 30},
		"more rows than calibrated":          {checked(calibrated(average)), Request{K: 11}, 20, 99},
		"another page than calibrated":       {checked(calibrated(average)), Request{K: 5, MaxRank: 11}, 20, 99},
		"more rows, deeper calibrated":       {checked(calibrated(rerank.Rule{Strategy: rerank.Average, Weights: rerank.UniformWeights, Head: "h", Depth: 40})), Request{K: 11}, 40, 30},
		"a rewritten route has the answer's": {checked(rewritten), Request{K: 5, MaxRank: 8}, 8, 30},
		"and not more than the store gives":  {checked(rewritten, func(c *route.Checked) { c.MaxDepth = 6 }), Request{K: 5, MaxRank: 8}, 6, 30},
		"the request's":                      {checked(calibrated(average)), Request{K: 5, Depth: 3, AverageDepth: 4}, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.Query = vector
			if name == "and not more than the store gives" {
				c.route.AverageDepth = 6
				c.average = 6
			}
			got, err := Resolve(c.route, c.r)
			if err != nil || got.Depth != c.depth || got.AverageDepth != c.average {
				t.Errorf("depths %d and %d, %v; want %d and %d", got.Depth, got.AverageDepth, err, c.depth, c.average)
			}
		})
	}
}

// TestFirstDepths: a single list reaches the last rank, and one more if its scores are the
// similarity's.
func TestFirstDepths(t *testing.T) {
	inner := func(c *route.Checked) { c.Spec.SingleInnerProduct = true }
	for name, c := range map[string]struct {
		route          *route.Checked
		r              Request
		depth, average int
	}{
		"deep enough":                {checked(), Request{K: 5, Depth: 20, AverageDepth: 30, Strategy: rerank.Average}, 20, 30},
		"as deep as the last rank":   {checked(), Request{K: 5, MaxRank: 25, Depth: 20, AverageDepth: 20, Strategy: rerank.Average}, 25, 25},
		"one more, for a tie":        {checked(inner), Request{K: 20, Depth: 20, AverageDepth: 20, Strategy: rerank.Average}, 21, 21},
		"not more than the store":    {checked(inner), Request{K: 100, Depth: 20, AverageDepth: 20, Strategy: rerank.Average}, 100, 100},
		"several lists are together": {checked(), Request{K: 25, Depth: 20, AverageDepth: 10, Strategy: rerank.PerEmbedding}, 20, 10},
		"and so are combined":        {checked(), Request{K: 25, Depth: 20, AverageDepth: 10, Strategy: rerank.Combined}, 20, 10},
	} {
		t.Run(name, func(t *testing.T) {
			depth, average := firstDepths(route.View{Checked: c.route}, c.r)
			if depth != c.depth || average != c.average {
				t.Errorf("%d and %d, want %d and %d", depth, average, c.depth, c.average)
			}
		})
	}
}

// TestRewrittenDepth: a rewritten search requests the rows of the answer, and one more if it can be
// proved exact.
func TestRewrittenDepth(t *testing.T) {
	exact := func(c *route.Checked) { c.ExactSearch = true }
	for name, c := range map[string]struct {
		route *route.Checked
		r     Request
		want  int
	}{
		"the answer":              {checked(), Request{K: 5}, 5},
		"its last page":           {checked(), Request{K: 5, MaxRank: 9}, 9},
		"exact":                   {checked(exact), Request{K: 5}, 6},
		"as asked":                {checked(exact), Request{K: 5, Depth: 40}, 40},
		"not more than the store": {checked(exact), Request{K: 100}, 100},
	} {
		if got := rewrittenDepth(route.View{Checked: c.route}, c.r); got != c.want {
			t.Errorf("%s: %d rows, want %d", name, got, c.want)
		}
	}
}

// TestWiden: a search finds as many items as the pages of its query and its ranker need, a scan
// only those of the answer and the ranker.
func TestWiden(t *testing.T) {
	for name, c := range map[string]struct {
		strategy               rerank.Strategy
		rows, maxRank, forRank int
		want                   int
	}{
		"the answer":                   {rerank.Average, 5, 0, 0, 5},
		"other pages":                  {rerank.Average, 5, 40, 0, 40},
		"a ranker":                     {rerank.Average, 5, 40, 50, 50},
		"not more than the store":      {rerank.Average, 5, 150, 200, 100},
		"the pages of a scan":          {rerank.Scan, 5, 40, 0, 5},
		"a scan for a ranker":          {rerank.Scan, 5, 40, 200, 200},
		"an answer that is the widest": {rerank.Average, 60, 40, 50, 60},
	} {
		p := &Plan{AnswerRows: c.rows, Request: Request{Strategy: c.strategy, MaxRank: c.maxRank}}
		p.Widen(route.View{Checked: checked()}, c.forRank)
		if p.Request.K != c.want {
			t.Errorf("%s: %d candidates, want %d", name, p.Request.K, c.want)
		}
	}
}

// TestCanChoose: measured costs choose a scan only if the scan can answer.
func TestCanChoose(t *testing.T) {
	matches := func(c *route.Checked) { c.StoreCan.Match = matcher{} }
	empty, err := table.FromMemory(table.Meta{}, nil, rerank.Matrix{Cols: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change []func(*route.Checked)
		r      Request
		want   bool
	}{
		"a table":                  {nil, Request{Strategy: rerank.Average}, true},
		"the route is to scan":     {nil, Request{Strategy: rerank.Scan}, false},
		"partitions":               {nil, Request{Strategy: rerank.Average, Partitions: []string{"a"}}, false},
		"a filter":                 {nil, Request{Strategy: rerank.Average, Filter: "f"}, false},
		"a filter that is matched": {[]func(*route.Checked){matches}, Request{Strategy: rerank.Average, Filter: "f"}, true},
		"not asked to":             {[]func(*route.Checked){func(c *route.Checked) { c.ScanIfFaster = false }}, Request{Strategy: rerank.Average}, false},
		"no table":                 {[]func(*route.Checked){func(c *route.Checked) { c.Table = nil }}, Request{Strategy: rerank.Average}, false},
		"an empty table":           {[]func(*route.Checked){func(c *route.Checked) { c.Table = empty }}, Request{Strategy: rerank.Average}, false},
	} {
		r := checked(append([]func(*route.Checked){func(c *route.Checked) { c.ScanIfFaster, c.Table = true, oneRow(t) }}, c.change...)...)
		if got := canChoose(route.View{Checked: r, Table: r.Table}, c.r); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

type matcher struct{ adapters.Matcher }

// oneRow returns a table of one item.
func oneRow(t *testing.T) *table.Table {
	t.Helper()
	path := t.TempDir() + "/one.table"
	w, err := table.NewWriter(path, table.Meta{ModelVersion: "v", Features: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}), w.Close()); err != nil {
		t.Fatal(err)
	}
	opened, err := table.Open(path, table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// encoded returns given probes, and records the plans for which they are requested.
type encoded struct {
	rerank.Encoded
	probes []rerank.Probe
	asked  *rerank.Plan
}

func (e encoded) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	*e.asked = p
	return slices.Clone(e.probes), nil
}

// TestProbes: the similarity makes the probes of the request, deeper in each round.
func TestProbes(t *testing.T) {
	asked := rerank.Plan{}
	p := &Plan{
		Request: Request{K: 5, Strategy: rerank.Combined, Depth: 30, AverageDepth: 40, Weights: rerank.GateWeights, Head: "x"},
		Encoded: encoded{probes: []rerank.Probe{{Depth: 30}}, asked: &asked},
	}
	v := route.View{Checked: checked()}
	want := rerank.Plan{Strategy: rerank.Combined, Depth: 30, AverageDepth: 40, Weights: rerank.GateWeights, Head: "x"}
	if err := p.Start(v); err != nil || asked != want {
		t.Errorf("asked for %+v, %v; want %+v", asked, err, want)
	}
	for _, depths := range [][2]int{{60, 80}, {100, 100}, {100, 100}} {
		want.Depth, want.AverageDepth = depths[0], depths[1]
		if err := p.Deepen(v); err != nil || asked != want || p.Rule(v).Depth != depths[0] || p.Rule(v).AverageDepth != depths[1] {
			t.Errorf("asked for %+v, %v; want %+v", asked, err, want)
		}
	}
	v.Companion, want.Derived = "companion", true
	if err := p.Deepen(v); err != nil || asked != want {
		t.Errorf("of a companion: asked for %+v, %v; want %+v", asked, err, want)
	}
	p.Encoded = encoded{asked: &asked}
	if err := p.Start(v); !errors.Is(err, rerank.ErrStrategy) {
		t.Errorf("no probes: err = %v, want ErrStrategy", err)
	}
}

// TestCanRewrite: a search can be rewritten if one probe of the stored vectors is the similarity,
// and only then.
func TestCanRewrite(t *testing.T) {
	probe := rerank.Probe{Vector: []float32{3, 4}, Target: rerank.TargetScore}
	huge := float32(math.MaxFloat32)
	for name, c := range map[string]struct {
		change func(*Plan, *route.Checked)
		want   bool
	}{
		"one inner product":     {func(*Plan, *route.Checked) {}, true},
		"explained":             {func(p *Plan, _ *route.Checked) { p.Request.Explain = true }, false},
		"another placement":     {func(_ *Plan, c *route.Checked) { c.Placement = route.PlacementStored }, false},
		"no pull-back":          {func(p *Plan, _ *route.Checked) { p.Can.PullBack = nil }, false},
		"two probes":            {func(p *Plan, _ *route.Checked) { p.Probes = append(p.Probes, probe) }, false},
		"a component":           {func(p *Plan, _ *route.Checked) { p.Probes[0].Target = 1 }, false},
		"a derived field":       {func(p *Plan, _ *route.Checked) { p.Probes[0].Field = "f" }, false},
		"no direction":          {func(p *Plan, _ *route.Checked) { p.Probes[0].Vector = []float32{0, 0} }, false},
		"a norm beyond float32": {func(p *Plan, _ *route.Checked) { p.Probes[0].Vector = []float32{huge, huge} }, true},
		"not a number":          {func(p *Plan, _ *route.Checked) { p.Probes[0].Vector = []float32{float32(math.NaN()), 1} }, false},
		"beyond a float16": {func(p *Plan, c *route.Checked) {
			p.Probes[0].Vector, c.Field.Datatype = []float32{1e6, 1}, adapters.Float16
		}, false},
		"infinite": {func(p *Plan, _ *route.Checked) { p.Probes[0].Vector = []float32{float32(math.Inf(1)), 1} }, false},
	} {
		r := checked(func(c *route.Checked) { c.Placement = route.PlacementRewrite })
		p := &Plan{Probes: []rerank.Probe{probe}, Can: rerank.EncodedAbilities{PullBack: pullBacker{}}}
		c.change(p, r)
		if got := p.canRewrite(route.View{Checked: r}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

type pullBacker struct{ rerank.PullBacker }

// TestReadsDerived: an answer depends on the table or the companion if its rows or its candidates
// come from there.
func TestReadsDerived(t *testing.T) {
	companion := []rerank.Probe{{Field: "f"}}
	for name, c := range map[string]struct {
		placement route.Placement
		strategy  rerank.Strategy
		probes    []rerank.Probe
		want      bool
	}{
		"stored":                      {route.PlacementStored, rerank.Average, []rerank.Probe{{}}, false},
		"rewritten":                   {route.PlacementRewrite, rerank.Average, []rerank.Probe{{}}, false},
		"table":                       {route.PlacementTable, rerank.Average, []rerank.Probe{{}}, true},
		"derived":                     {route.PlacementDerived, rerank.Average, []rerank.Probe{{}}, true},
		"scan":                        {route.PlacementStored, rerank.Scan, nil, true},
		"candidates of the companion": {route.PlacementStored, rerank.PerEmbedding, companion, true},
	} {
		r := checked(func(r *route.Checked) { r.Placement, r.Collection, r.Companion = c.placement, "rows", "companion" })
		v, p := route.View{Checked: r}, &Plan{Request: Request{Strategy: c.strategy}, Probes: c.probes}
		if got := p.ReadsDerived(v); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got, want := p.Collection(v), map[bool]string{true: "companion", false: "rows"}[len(c.probes) > 0 && c.probes[0].Field != ""]; got != want {
			t.Errorf("%s: the probes search %q, want %q", name, got, want)
		}
	}
}

// TestNeedsStore: only a scan without a filter and without payload calls no store.
func TestNeedsStore(t *testing.T) {
	for want, all := range map[bool][]Request{
		true:  {{Strategy: rerank.Average}, {Strategy: rerank.Scan, Filter: "f"}, {Strategy: rerank.Scan, Payload: true}},
		false: {{Strategy: rerank.Scan}},
	} {
		for _, r := range all {
			if r.NeedsStore() != want {
				t.Errorf("%+v needs the store: %v, want %v", r, !want, want)
			}
		}
	}
	for want, all := range map[bool][]Request{
		true:  {{}, {History: make([]WeightedID, 1), KeepHistory: true}},
		false: {{Filter: "f"}, {Partitions: []string{"a"}}, {Exclude: make([]rerank.ID, 1)}, {History: make([]WeightedID, 1)}},
	} {
		for _, r := range all {
			if r.IsUnrestricted() != want {
				t.Errorf("%+v is about the whole collection: %v, want %v", r, !want, want)
			}
		}
	}
}

// TestScanRule: a scan is calibrated with the route's weights and head, whatever a request names.
func TestScanRule(t *testing.T) {
	p := &Plan{Request: Request{Strategy: rerank.Scan, Weights: rerank.GateWeights, Head: "x", Depth: 3}}
	want := rerank.Rule{Strategy: rerank.Scan, Weights: rerank.UniformWeights, Head: "h"}
	if got := p.Rule(route.View{Checked: checked()}); got != want {
		t.Errorf("the rule is %+v, want %+v", got, want)
	}
}

// TestRefused: a *FieldError names the field and the remedy.
func TestRefused(t *testing.T) {
	err := BadField("k", "%d is not between %d and %d", 0, 1, 60)
	if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "k: 0 is not between 1 and 60") {
		t.Errorf("err = %v", err)
	}
}

// similarity encodes every query as the same value.
type similarity struct {
	rerank.Similarity
	encoded rerank.Encoded
}

func (s similarity) Encode(rerank.Query) (rerank.Encoded, error) { return s.encoded, nil }

// TestNew: a plan holds the request, the encoded query and its abilities. It keeps a strategy that
// the request names.
func TestNew(t *testing.T) {
	r := Request{K: 5, Strategy: rerank.Average, MaxRank: 9}
	q := &pulled{encoded: encoded{asked: new(rerank.Plan)}}
	c := checked(func(c *route.Checked) { c.Model.Similarity = similarity{encoded: q} })
	p, err := New(t.Context(), route.View{Checked: c}, r, false)
	if err != nil {
		t.Fatal(err)
	}
	if p.Request.K != 5 || p.Request.MaxRank != 9 || p.AnswerRows != 5 || p.Encoded != rerank.Encoded(q) || p.Can.PullBack == nil || p.Reason != "" {
		t.Errorf("the plan is %+v", p)
	}
	refined := p.Refined(encoded{asked: new(rerank.Plan)}, 40)
	if refined.Request.K != 40 || refined.Can.PullBack != nil || p.Request.K != 5 || p.Can.PullBack == nil {
		t.Errorf("the refined plan is %+v, and the first one became %+v", refined, p)
	}
	c.ScanIfFaster, c.Table = true, oneRow(t) // without Costs, so that choosing would panic
	if p, err = New(t.Context(), route.View{Checked: c, Table: c.Table}, r, true); err != nil || p.Request.Strategy != rerank.Average {
		t.Errorf("a strategy that was asked for became %s, %v", p.Request.Strategy, err)
	}
}

// pulled is encoded with a pull-back.
type pulled struct {
	encoded
	rerank.PullBacker
}

func (p pulled) Probes(r rerank.Plan) ([]rerank.Probe, error) { return p.encoded.Probes(r) }

// TestStartRewrites: a rewritten plan requests the rows of the answer, in its probe too.
func TestStartRewrites(t *testing.T) {
	probe := rerank.Probe{Vector: []float32{3, 4}, Target: rerank.TargetScore, Depth: 20}
	for placement, want := range map[route.Placement]int{route.PlacementRewrite: 5, route.PlacementStored: 20} {
		p := &Plan{
			Request: Request{K: 5, Strategy: rerank.Average, Depth: 5, AverageDepth: 5}, Can: rerank.EncodedAbilities{PullBack: pullBacker{}},
			Encoded: encoded{probes: []rerank.Probe{probe}, asked: new(rerank.Plan)},
		}
		err := p.Start(route.View{Checked: checked(func(c *route.Checked) { c.Placement = placement })})
		if err != nil || p.Rewritten != (placement == route.PlacementRewrite) || p.Probes[0].Depth != want {
			t.Errorf("%s: rewritten %v, a probe of %d rows, %v; want %d rows", placement, p.Rewritten, p.Probes[0].Depth, err, want)
		}
	}
}

// TestTargetProbe: the probe whose list is ordered by the similarity is found among others.
func TestTargetProbe(t *testing.T) {
	for want, targets := range map[int][]rerank.Target{-1: {1, rerank.TargetNone}, 1: {1, rerank.TargetScore, rerank.TargetNone}, 0: {rerank.TargetScore}} {
		p := &Plan{}
		for _, target := range targets {
			p.Probes = append(p.Probes, rerank.Probe{Target: target})
		}
		got := p.TargetProbe()
		if want < 0 && got != nil || want >= 0 && got != &p.Probes[want] {
			t.Errorf("of %v: %v, want number %d", targets, got, want)
		}
	}
}

// TestRuleOfARequest: the rule of a calibration covers everything that determines the candidates.
func TestRuleOfARequest(t *testing.T) {
	r := Request{Strategy: rerank.Combined, Depth: 3, AverageDepth: 4, Weights: rerank.GateWeights, Head: "x"}
	if got, want := r.Rule(), (rerank.Rule{Strategy: rerank.Combined, Depth: 3, AverageDepth: 4, Weights: rerank.GateWeights, Head: "x"}); got != want {
		t.Errorf("the rule is %+v, want %+v", got, want)
	}
}

// excluder takes every id out of a filter of ids, and records what it was given.
type excluder struct {
	adapters.Excluder
	ids    []rerank.ID
	filter string
}

func (e *excluder) Excluded(ids []rerank.ID, filter string) ([]rerank.ID, string, error) {
	e.ids, e.filter = ids, filter
	return append(slices.Clone(ids), rerank.UintID(99)), "rest", nil
}

// TestExcludedItems: a request excludes the items of its history too, unless it keeps them, and those
// that its filter excludes by id. An item of several rows has no id in a filter. The caller's list stays
// as it was.
func TestExcludedItems(t *testing.T) {
	one, two := rerank.UintID(1), rerank.UintID(2)
	room := make([]rerank.ID, 1, 8)
	room[0] = one
	for name, c := range map[string]struct {
		owner  string
		text   bool
		r      Request
		want   []rerank.ID
		filter string
	}{
		"a filter of ids":          {"", false, Request{Exclude: room, Filter: "f"}, []rerank.ID{one, rerank.UintID(99)}, "rest"},
		"items of several rows":    {"owner", false, Request{Exclude: room, Filter: "f"}, []rerank.ID{one}, "f"},
		"a history":                {"owner", false, Request{Exclude: room, History: []WeightedID{{ID: two}}}, []rerank.ID{one, two}, ""},
		"a history that is wanted": {"owner", false, Request{Exclude: room, History: []WeightedID{{ID: two}}, KeepHistory: true}, []rerank.ID{one}, ""},
		"an empty id":              {"owner", false, Request{Exclude: []rerank.ID{one, {}}}, nil, ""},
		"a number among texts":     {"owner", true, Request{Exclude: room}, nil, ""},
	} {
		e := &excluder{}
		route := checked(func(r *route.Checked) { r.Owner, r.TextIDs, r.StoreCan.Exclude = c.owner, c.text, e })
		c.r.Query, c.r.K = rerank.Query{Vector: []float32{1, 2}}, 5
		got, err := Resolve(route, c.r)
		if (err == nil) != (c.want != nil) || err == nil && (!slices.Equal(got.Exclude, c.want) || got.Filter != c.filter) {
			t.Errorf("%s: excluded %v by filter %q, %v; want %v, %q", name, got.Exclude, got.Filter, err, c.want, c.filter)
		}
	}
	if after := room[:2]; after[0] != one || !after[1].IsZero() {
		t.Errorf("the caller's list became %v", after)
	}
	most := Request{Query: rerank.Query{Vector: []float32{1, 2}}, K: 5, Exclude: slices.Repeat([]rerank.ID{one}, MaxExclude)}
	if _, err := Resolve(checked(), most); err != nil {
		t.Errorf("%d ids: %v", MaxExclude, err)
	}
	most.Exclude = append(most.Exclude, two)
	if _, err := Resolve(checked(), most); !errors.Is(err, ErrRequest) {
		t.Errorf("%d ids: err = %v, want ErrRequest", len(most.Exclude), err)
	}
}

// threeSupports is a model that asks a ranker about three items.
type threeSupports struct{ rerank.SupportAsker }

func (threeSupports) Supports() []rerank.ID { return make([]rerank.ID, 3) }
func (threeSupports) QueryFeatures() int    { return 0 }

// TestCallsForTheVector: a request without a vector needs a call for each support item, or none but those. One that brings
// the vector may make any number.
func TestCallsForTheVector(t *testing.T) {
	c := checked(ranked, func(c *route.Checked) { c.ModelCan.Supports = threeSupports{} })
	for name, try := range map[string]struct {
		vector []float32
		calls  int
		ok     bool
	}{
		"too few": {nil, 2, false}, "enough": {nil, 3, true}, "the support items alone": {nil, 0, true}, "with a vector": {[]float32{1, 2}, 2, true},
	} {
		_, err := Resolve(c, Request{Query: rerank.Query{Vector: try.vector}, K: 1, Calls: calls(try.calls)})
		if (err == nil) != try.ok || err != nil && !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAScanThatTakesTooLong: if time runs out while a scan is measured, the search may still fall back.
func TestAScanThatTakesTooLong(t *testing.T) {
	store := embedded.New()
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(1, 1)}}}
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err := errors.Join(err, store.Load("", in)); err != nil {
		t.Fatal(err)
	}
	c, err := route.Open(t.Context(), &route.Route{
		Policy: route.Policy{Name: "r", StoreName: "s", Strategy: rerank.Average, ScanIfFaster: true},
		Parts:  route.Parts{Store: store, Table: oneRow(t), Model: route.Model{Name: "m", Version: "v", Similarity: sim}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Costs = &route.Costs{} // no scan was measured yet
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	view := c.View()
	defer view.Release()
	var f *failure.Error
	if _, err := New(late, view, Request{Query: rerank.Query{Vector: []float32{1}}, K: 1, Strategy: rerank.Average}, false); !errors.As(err, &f) || f.Reason != failure.Deadline {
		t.Errorf("%v", err)
	}
}

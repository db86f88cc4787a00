package maxsim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
)

// behaviouralCase is a case of testdata/golden/behavioural.
type behaviouralCase struct {
	Name         string  `json:"name"`
	M            int     `json:"m"`
	Best         float64 `json:"best_objective"`
	Alone        float64 `json:"objective_of_document_alone"`
	LloydFrom    []int32 `json:"lloyd_from"`
	LloydLabels  []int32 `json:"lloyd_labels"`
	LloydTotal   float64 `json:"lloyd_objective"`
	LloydHistory []struct {
		In        []int32 `json:"labels_in"`
		Objective float64 `json:"objective"`
	} `json:"lloyd_steps"`
}

type behaviouralCases struct {
	Cases   []behaviouralCase    `json:"cases"`
	Budgets map[string][]float64 `json:"budget_shares_of_30_for_n_1_4_9_100_2500"`
	tensors tensor.Set
}

func behavioural(t *testing.T) behaviouralCases {
	t.Helper()
	const dir = "../../../testdata/golden/behavioural/"
	text, err := os.ReadFile(dir + "cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var all behaviouralCases
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.ReadFile(dir + "cases.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	all.tensors = f.Tensors
	return all
}

// begin returns the clustering with which a case begins.
func (all behaviouralCases) begin(c behaviouralCase) *clustering {
	get := func(name string) tensor.Tensor { return all.tensors[c.Name+"."+name] }
	queries := get("queries")
	k := &clustering{source: rerank.Matrix{Rows: queries.Shape[0], Cols: queries.Shape[1], Data: queries.Data}}
	k.begin(get("document").Data, fittest.AllRows(queries.Shape[0]), get("weights").Data, c.M)
	return k
}

// Lloyd's algorithm from a given first assignment takes the reference's steps.
func TestLloydGolden(t *testing.T) {
	all := behavioural(t)
	for _, c := range all.Cases {
		t.Run(c.Name, func(t *testing.T) {
			k := all.begin(c)
			copy(k.labels, c.LloydFrom)
			for i, step := range c.LloydHistory {
				if !slices.Equal(k.labels, step.In) {
					t.Fatalf("step %d begins with %v, want %v", i, k.labels, step.In)
				}
				k.moveCentres()
				if objective, _ := k.assignQueries(); !(math.Abs(objective-step.Objective) <= 1e-5) {
					t.Errorf("step %d: objective %v, want %v", i, objective, step.Objective)
				}
			}
			if !slices.Equal(k.labels, c.LloydLabels) {
				t.Errorf("labels are %v, want %v", k.labels, c.LloydLabels)
			}
			want := all.tensors[c.Name+".lloyd_centres"]
			for i, v := range k.centres.Data {
				if k.hasCentre[i/k.centres.Cols] && !(math.Abs(float64(v-want.Data[i])) <= 1e-6) {
					t.Errorf("centre %d, number %d: %v, want %v", i/k.centres.Cols, i%k.centres.Cols, v, want.Data[i])
				}
			}
			copy(k.labels, c.LloydFrom)
			if total := k.runLloyd(30); !(math.Abs(total-c.LloydTotal) <= 1e-5) {
				t.Errorf("settles at %v, want %v", total, c.LloydTotal)
			}
		})
	}
}

// The best of several restarts is the best of all partitions, and no step lowers the objective.
func TestClustersReachTheBestPartition(t *testing.T) {
	all := behavioural(t)
	for _, c := range all.Cases {
		rng := rand.New(rand.NewPCG(1, 1))
		best := math.Inf(-1)
		for range 50 {
			k := all.begin(c)
			k.seedCentres(rng)
			last := math.Inf(-1)
			for range 20 {
				k.moveCentres()
				objective, changed := k.assignQueries()
				if objective < last-1e-6 {
					t.Errorf("%s: a step lowers the objective from %v to %v", c.Name, last, objective)
				}
				if last = objective; !changed {
					break
				}
			}
			best = max(best, last)
		}
		if best < c.Best-1e-5 {
			t.Errorf("%s: the best of the restarts is %v, of all partitions %v", c.Name, best, c.Best)
		}
	}
}

// A cluster whose vectors add up to zero has no direction and keeps its centre; so does an empty cluster.
func TestClustersWithoutDirection(t *testing.T) {
	k := &clustering{source: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, -1, 0, 0, 3}}}
	k.begin([]float32{0, -1}, []int32{0, 1, 2}, nil, 3)
	copy(k.centres.Row(1), []float32{1, 0})
	copy(k.centres.Row(2), []float32{0, 1})
	k.hasCentre[1], k.hasCentre[2] = true, true
	k.labels = []int32{1, 1, 1}
	k.moveCentres() // (1,0) + (−1,0) + (0,1): a direction
	if got := k.centres.Row(1); !(math.Abs(float64(got[1]-1)) <= 1e-6) {
		t.Errorf("centre 1 is %v", got)
	}
	if got := k.centres.Row(2); got[1] != 1 {
		t.Errorf("the empty group's centre is %v", got)
	}
	copy(k.centres.Row(1), []float32{1, 0})
	k.labels = []int32{1, 1, 2}
	k.moveCentres()
	if got := k.centres.Row(1); got[0] != 1 {
		t.Errorf("the centre of a sum that vanishes is %v", got)
	}
	if k.assignQueries(); slices.Contains(k.labels, 3) {
		t.Errorf("a group without a centre draws queries: %v", k.labels)
	}
}

func TestBudgetSharesGolden(t *testing.T) {
	traffic := []float64{1, 4, 9, 100, 2500}
	for name, want := range behavioural(t).Budgets {
		var beta float64
		if err := json.Unmarshal([]byte(strings.TrimPrefix(name, "beta=")), &beta); err != nil {
			t.Fatal(err)
		}
		for i, s := range shareOut([]int{0, 1, 2, 3, 4}, traffic, beta, 30) {
			if !(math.Abs(s-want[i]) <= 1e-9) {
				t.Errorf("%s: share %d is %v, want %v", name, i, s, want[i])
			}
		}
	}
}

func TestBudgets(t *testing.T) {
	for _, tc := range []struct {
		name    string
		counts  []int
		traffic []float64
		beta    float64
		total   int
		want    []int
	}{
		{"largest remainders", []int{1, 4, 9, 100, 2500}, []float64{1, 4, 9, 100, 2500}, 0.5, 30, []int{0, 1, 1, 5, 23}},
		{"no more than queries", []int{1, 4, 9, 100, 2500}, []float64{1, 4, 9, 100, 2500}, 0, 30, []int{1, 4, 8, 9, 8}},
		{"ties go to the first rows", []int{5, 5, 5}, []float64{5, 5, 5}, 0.5, 4, []int{2, 1, 1}},
		{"items without queries get none", []int{0, 3, 0, 3}, []float64{0, 3, 0, 3}, 0.5, 2, []int{0, 1, 0, 1}},
		{"all queries at most", []int{2, 3}, []float64{2, 3}, 0.5, 100, []int{2, 3}},
		{"traffic, not queries", []int{5, 5}, []float64{90, 10}, 1, 4, []int{4, 0}},
		{"no more than queries with traffic", []int{2, 5}, []float64{90, 10}, 1, 4, []int{2, 2}},
		{"nobody", []int{0, 0}, []float64{0, 0}, 0.5, 5, []int{0, 0}},
	} {
		got := Budgets(tc.counts, tc.traffic, tc.beta, tc.total)
		if tc.name == "no more than queries" {
			sum := 0
			for x, b := range got {
				if sum += b; b > tc.counts[x] {
					t.Errorf("%s: item %d of %d queries gets %d", tc.name, x, tc.counts[x], b)
				}
			}
			if sum != tc.total {
				t.Errorf("%s: %v adds up to %d", tc.name, got, sum)
			}
			continue
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// FuzzBudgets: budgets add up and stay below the counts.
func FuzzBudgets(f *testing.F) {
	f.Add(uint64(1), 7, 0.5, 20)
	f.Add(uint64(9), 1, 0.0, 0)
	f.Add(uint64(2), 100, 1.0, 100000)
	f.Fuzz(func(t *testing.T, seed uint64, n int, beta float64, total int) {
		if n < 0 || n > 1000 || total < 0 || total > 1<<30 || !(beta >= 0 && beta <= 1) {
			t.Skip()
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		counts, traffic, all := make([]int, n), make([]float64, n), 0
		for x := range counts {
			counts[x] = rng.IntN(50) * rng.IntN(50)
			traffic[x] = float64(counts[x]) * (0.1 + 9*rng.Float64())
			all += counts[x]
		}
		budgets, sum := Budgets(counts, traffic, beta, total), 0
		for x, b := range budgets {
			if sum += b; b < 0 || b > counts[x] {
				t.Fatalf("item %d of %d queries gets %d", x, counts[x], b)
			}
		}
		if sum != min(total, all) {
			t.Fatalf("budgets add up to %d of %d, with %d queries", sum, total, all)
		}
	})
}

// maxsimOf fits a model, and returns its behavioural vectors by the item's row.
func maxsimOf(t testing.TB, d fit.Data, o Options) (*Fitted, map[int]rerank.Matrix) {
	t.Helper()
	vectors := map[int]rerank.Matrix{}
	fitted, err := Fit(t.Context(), d, o, func(item int, v rerank.Matrix) error {
		if _, twice := vectors[item]; twice {
			t.Errorf("item %d comes twice", item)
		}
		vectors[item] = rerank.Matrix{Rows: v.Rows, Cols: v.Cols, Data: slices.Clone(v.Data)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fitted, vectors
}

// TestMaxSimFinds: queries that lie elsewhere than their items are found by the
// behavioural vectors, on any number of cores alike.
func TestMaxSimFinds(t *testing.T) {
	d := elsewhere(400, 20, 8)
	o := DefaultOptions()
	o.MAvg = []float64{0.5, 1, 2}
	fitted, vectors := maxsimOf(t, d, o)
	r := fitted.Report
	if r.MAvg != 1 || r.Logged.Value < 0.95 || r.Logged.Baseline > 0.6 || r.Vectors != len(vectors) || len(r.Trials) != 5 || !r.Trials[1].Chosen {
		t.Errorf("%+v", r)
	}
	for x, v := range vectors {
		if v.Rows != 1 || !(math.Abs(rerank.Norm(v.Row(0))-1) <= 1e-5) {
			t.Errorf("item %d: %v", x, v)
		}
	}
	if _, again := maxsimOf(t, d, o); len(again) != len(vectors) || again[3].Data[0] != vectors[3].Data[0] {
		t.Errorf("a second fit gives other vectors")
	}
}

// elsewhere returns a log whose queries lie around directions that are unrelated to their items' vectors.
func elsewhere(queries, items, dim int) fit.Data {
	rng := rand.New(rand.NewPCG(4, 4))
	d := fit.Data{Items: fittest.NormalMatrix(rng, items, dim), Queries: fittest.NormalMatrix(rng, queries, dim)}
	places := fittest.NormalMatrix(rng, items, dim)
	for q := range queries {
		for i := range dim {
			d.Queries.Row(q)[i] = d.Queries.Row(q)[i]/10 + places.Row(q % items)[i]
		}
		d.Relevant = append(d.Relevant, []int32{int32(q % items)})
	}
	return d
}

// A guarded fit takes no budget under which items without logs lose.
func TestMaxSimGuards(t *testing.T) {
	d := elsewhere(400, 20, 8)
	for x := range d.Items.Rows { // the items are where their queries are: nothing is to be gained
		copy(d.Items.Row(x), d.Queries.Row(x))
	}
	o := DefaultOptions()
	o.Cold, o.HeldOut = fit.ColdGuard, 0.2
	fitted, vectors := maxsimOf(t, d, o)
	for _, trial := range fitted.Report.Trials {
		if trial.Cold == nil {
			t.Fatalf("%+v has no figure of held-out items", trial)
		}
		if trial.Chosen && !trial.Admissible {
			t.Errorf("%+v was taken", trial)
		}
	}
	if !fitted.Report.Guarded || fitted.Report.MAvg == 0 != (len(vectors) == 0) {
		t.Errorf("%+v, %d items with vectors", fitted.Report, len(vectors))
	}
}

func TestMaxSimRefuses(t *testing.T) {
	good := elsewhere(100, 10, 4)
	for name, change := range map[string]func(*fit.Data, *Options){
		"raw vectors":   func(_ *fit.Data, o *Options) { o.Normalise = false },
		"beta":          func(_ *fit.Data, o *Options) { o.Betas = []float64{1.5} },
		"no budget":     func(_ *fit.Data, o *Options) { o.MAvg = nil },
		"budget of 0":   func(_ *fit.Data, o *Options) { o.MAvg = []float64{0} },
		"descending":    func(_ *fit.Data, o *Options) { o.MAvg = []float64{3, 1} },
		"not a number":  func(_ *fit.Data, o *Options) { o.MAvg = []float64{math.NaN()} },
		"passes":        func(_ *fit.Data, o *Options) { o.Passes = 0 },
		"infinite item": func(d *fit.Data, _ *Options) { d.Items.Data[3] = float32(math.Inf(1)) },
	} {
		d, o := good, DefaultOptions()
		d.Items.Data = slices.Clone(d.Items.Data)
		change(&d, &o)
		_, err := Fit(t.Context(), d, o, func(int, rerank.Matrix) error { return nil })
		if !errors.Is(err, fit.ErrOption) && !errors.Is(err, fit.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("disk is full")
	if _, err := Fit(t.Context(), good, DefaultOptions(), func(int, rerank.Matrix) error { return full }); !errors.Is(err, full) {
		t.Errorf("the sink's error became %v", err)
	}
}

// A fit that was interrupted and resumed chooses the same budget and vectors as an undisturbed one.
func TestMaxSimResumes(t *testing.T) {
	d := elsewhere(400, 20, 8)
	o := DefaultOptions()
	want, _ := maxsimOf(t, d, o)
	ctx, cancel := context.WithCancel(t.Context())
	kept := &fittest.Checkpoint{}
	o.Checkpoint, o.Note = kept, func(string) { cancel() }
	if _, err := Fit(ctx, d, o, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	tried := 0
	o.Note = nil
	o.Progress = func(stage string, _ int) func(int) {
		if strings.HasPrefix(stage, "trying") {
			tried++
		}
		return func(int) {}
	}
	got, _ := maxsimOf(t, d, o)
	if tried != len(o.MAvg)+len(o.Betas)-2 || got.Report.MAvg != want.Report.MAvg || got.Report.Logged != want.Report.Logged || got.Report.Vectors != want.Report.Vectors {
		t.Errorf("%d budgets tried again, %+v; want %+v", tried, got.Report, want.Report)
	}
}

// TestMaxSimWeightsAndOddities covers weighted queries, an item and a query with zero vectors, and an item that equals
// a query.
func TestMaxSimWeightsAndOddities(t *testing.T) {
	d := elsewhere(200, 10, 6)
	clear(d.Items.Row(3))    // no direction: its pairs go
	clear(d.Queries.Row(20)) // likewise
	copy(d.Items.Row(4), d.Queries.Row(14))
	d.Weights = make([][]float32, 200)
	for q := range d.Weights {
		d.Weights[q] = []float32{float32(1 + q%3)}
	}
	fitted, vectors := maxsimOf(t, d, DefaultOptions())
	if c := fitted.Report.Counts; c.ZeroItems != 1 || c.ZeroQueries != 1 || c.ZeroPairs != 21 {
		t.Errorf("%+v", c)
	}
	if _, has := vectors[3]; has {
		t.Errorf("an item of norm 0 got vectors")
	}
}

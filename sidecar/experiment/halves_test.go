package experiment_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// visits holds real questions to a bank, the right topic of each, and the topics that two versions answer, best first.
type visits struct {
	right              []int32
	control, candidate [][]int32
}

const dim = 384 // of the vectors of examples/data

// openVisits reads the questions of a file. The candidate ranks by cosine, the control by the cosine of the first
// coordinates alone.
func openVisits(t *testing.T, name string, coordinates int) *visits {
	t.Helper()
	const dir = "../../examples/data/banking77/"
	open := func(name string) *npy.Matrix {
		m, err := npy.Open(dir + name + "_vectors.npy")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	topics, questions := open("items"), open(name)
	rows, err := banking77.Rows(dir + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	v := &visits{}
	for q, r := range rows {
		v.right = append(v.right, int32(r.Item))
		v.candidate = append(v.candidate, nearest(topics.Matrix, questions.Row(q), dim))
		v.control = append(v.control, nearest(topics.Matrix, questions.Row(q), coordinates))
	}
	return v
}

// nearest returns the ten rows nearest to a query by the cosine of their first coordinates.
func nearest(rows rerank.Matrix, query []float32, coordinates int) []int32 {
	scores, order := make([]float64, rows.Rows), make([]int32, rows.Rows)
	for x := range scores {
		order[x] = int32(x)
		var dot, norm float64
		for i, v := range rows.Row(x)[:coordinates] {
			dot, norm = dot+float64(v)*float64(query[i]), norm+float64(v)*float64(v)
		}
		scores[x] = dot / math.Sqrt(norm)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
	return order[:10]
}

// preference returns the preference of a person who asks question q and gets both answers interleaved.
func (v *visits) preference(q int, rng *rand.Rand) float64 {
	placed := experiment.Interleave(v.control[q], v.candidate[q], 10, rng.Uint64())
	relevant := make([]bool, len(placed))
	for i, p := range placed {
		relevant[i] = p.ID == v.right[q]
	}
	s := experiment.Session{}
	for i, clicked := range (clicks.Person{Browsing: clicks.ByPosition, Severity: 1, Noise: 0.02}).Read(relevant, rng) {
		if clicked {
			s.Add(placed[i].Arm, 1)
		}
	}
	return s.Preference()
}

// halvesResult counts halves of questions.
type halvesResult struct {
	refused, wrong int
	// decided counts experiments that found the better version within the plan, early those that did so within the plan
	// for a preference that is known.
	decided, early int
	preference     float64 // as measured, on the mean
}

// runHalf plans an experiment by what a half of the questions shows, each asked once, and runs it on the other half.
func (v *visits) runHalf(t *testing.T, rng *rand.Rand, r *halvesResult) {
	t.Helper()
	all := rng.Perm(len(v.right))
	measured, asked := all[:len(all)/2], all[len(all)/2:]
	var sum, decisive float64
	for _, q := range measured {
		d := v.preference(q, rng)
		sum, decisive = sum+d, decisive+math.Abs(d)
	}
	question := experiment.Question{
		Preference: (1 + sum/decisive) / 2, Measured: decisive, Decisive: decisive / float64(len(measured)), Alpha: 0.05, Power: 0.9, Impressions: 1, Share: 1,
	}
	r.preference += question.Preference
	plan, err := experiment.NewPlan(question)
	if errors.Is(err, experiment.ErrSetting) {
		r.refused++
		return
	}
	question.Measured = 0
	known, err := experiment.NewPlan(question)
	if err != nil {
		t.Fatal(err)
	}
	test, err := experiment.NewTest(question.Alpha)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < plan.Sessions && test.Decided == experiment.Undecided; n++ {
		if _, err := test.Add(v.preference(asked[n%len(asked)], rng)); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case test.Decided == experiment.Worse:
		r.wrong++
	case test.Decided == experiment.Better:
		r.decided++
		if test.DecidedAt <= known.Sessions {
			r.early++
		}
	}
}

// TestPlanOfHalves: a plan for a preference that one half of real questions shows is enough for an experiment with the
// other half. A preference that may be chance gets no plan.
func TestPlanOfHalves(t *testing.T) {
	runs, file, controls := 40, "test", []int{48}
	if os.Getenv("LIKENESS_SOAK") != "" {
		runs, file, controls = 200, "train", []int{16, 32, 64, 96, 128, 192}
	}
	for _, coordinates := range controls {
		v, rng, r := openVisits(t, file, coordinates), rand.New(rand.NewPCG(9, uint64(coordinates))), halvesResult{}
		for range runs {
			v.runHalf(t, rng, &r)
		}
		planned := runs - r.refused
		t.Logf("a preference of %.3f: %d of %d halves have a plan, and %d of these were decided within it, %d within a plan that takes the measured preference for the truth; %d wrongly",
			r.preference/float64(runs), planned, runs, r.decided, r.early, r.wrong)
		if float64(r.decided) < 0.9*float64(planned) || float64(r.wrong) > 0.05*float64(planned) || planned < runs/2 {
			t.Errorf("%d of %d experiments were decided within their plans, %d wrongly; want 0.9 of them at least, 0.05 wrongly at most, and %d plans", r.decided, planned, r.wrong, runs/2)
		}
	}
}

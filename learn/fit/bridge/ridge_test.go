package bridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// TestQueriesWithoutAnAnswerAreDropped with all that belongs to them.
func TestQueriesWithoutAnAnswerAreDropped(t *testing.T) {
	queries := rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}}
	x := trial{oldQueries: queries, nowQueries: queries, relevant: [][]int32{{4}, {}, {6}}, hidden: [][]int32{{7}, {8}, {9}}, segments: []string{"a", "b", "c"}, asked: []int32{10, 11, 12}}
	x.keepAnswerable()
	if kept := []float32{1, 3}; !slices.Equal(x.oldQueries.Data, kept) || !slices.Equal(x.nowQueries.Data, kept) ||
		x.relevant[1][0] != 6 || len(x.hidden) != 2 || x.hidden[1][0] != 9 || !slices.Equal(x.segments, []string{"a", "c"}) || !slices.Equal(x.asked, []int32{10, 12}) {
		t.Errorf("%+v", x)
	}
}

// TestMapUnseen: the closed form maps each text as a regression of the other texts does, without those that
// are left out.
func TestMapUnseen(t *testing.T) {
	const texts, ridge = 60, 0.05
	rng := rand.New(rand.NewPCG(1, 2))
	old, now := fittest.NormalMatrix(rng, texts, 20), fittest.NormalMatrix(rng, texts, 6)
	for r := range texts {
		old.Row(r)[0] += 3 // the vectors have a mean
		now.Row(r)[1] += 2 * old.Row(r)[2]
	}
	without := []int32{3, 40}
	mapped, err := mapUnseen(old, now, without, ridge)
	if err != nil {
		t.Fatal(err)
	}
	for r := range texts {
		var others []int32
		for x := range texts {
			if x != r && !slices.Contains(without, int32(x)) {
				others = append(others, int32(x))
			}
		}
		m := addUp(linalg.Gather(old, others), linalg.Gather(now, others))
		xx, xy, _ := m.centred()
		f, err := m.affineAt(xx, xy, ridge*float64(texts-len(without))/m.n) // the ridge is a share of each text
		if err != nil {
			t.Fatal(err)
		}
		want := linalg.Gather(now, []int32{int32(r)})
		f.apply(want, old.Slice(r, r+1))
		for j, v := range want.Row(0) {
			if !(math.Abs(float64(v-mapped.Row(r)[j])) <= 1e-4) {
				t.Fatalf("text %d, number %d: %g, and %g without the text", r, j, mapped.Row(r)[j], v)
			}
		}
	}
}

// TestLeverageOfALoneText: a text that is alone in its direction is mapped as if it were not there, and its vector stays finite.
func TestLeverageOfALoneText(t *testing.T) {
	old := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 40, 3)
	for r := range old.Rows {
		old.Row(r)[2] = 0
	}
	old.Row(7)[2] = 1
	m := addUp(old, old)
	xx, xy, _ := m.centred()
	f, err := m.affineAt(xx, xy, 1e-12)
	if err != nil {
		t.Fatal(err)
	}
	found, err := m.leverages(old, &f.covariance)
	if err != nil || found[7] != mostLeverage || slices.Max(found) > mostLeverage || slices.Max(slices.Delete(found, 7, 8)) > 0.5 {
		t.Errorf("leverages %v, %v", found, err)
	}
}

// TestGroupsOfQueries: queries for one text win and lose together.
func TestGroupsOfQueries(t *testing.T) {
	x := &trial{options: DefaultOptions(), relevant: make([][]int32, 100)}
	won, lost := make([]float64, 100), make([]float64, 100)
	for q := range won {
		x.relevant[q] = []int32{int32(q % 2), 5}
		won[q] = float64(q % 2)
	}
	if d := x.difference(won, lost, x.everyone()); d.Mean != 0.5 || d.High-d.Mean < 0.6 || d.Queries != 100 {
		t.Errorf("two texts, one of which wins, differ by %+v", d)
	}
	some := []int32{1, 3}
	if d := x.difference(pick(won, some), pick(lost, some), some); d.Mean != 1 || d.Queries != 2 {
		t.Errorf("the queries of the other text differ by %+v", d)
	}
}

// TestTextsThatNoMapMaySee: the drawn answers once each, at most half of the items, and the queries if maps learn from them.
func TestTextsThatNoMapMaySee(t *testing.T) {
	x := &trial{old: rerank.NewMatrix(6, 1)}
	if got := x.unseen([]int32{1, 0}, []int32{4, 2, 4}); !slices.Equal(got, []int32{2, 4}) {
		t.Errorf("%v", got)
	}
	x.asked = []int32{6, 7}
	if got := x.unseen([]int32{1, 0}, []int32{5, 4, 3, 2}); !slices.Equal(got, []int32{2, 3, 4, 6, 7}) {
		t.Errorf("%v", got)
	}
}

// TestItemsEmbeddedAgain: those that answers show among their first ten, then other candidates.
func TestItemsEmbeddedAgain(t *testing.T) {
	x := &trial{options: Options{Lazy: 0.25}, old: rerank.NewMatrix(16, 1)}
	list := []int32{9, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 11, 11, 12} // item 11 is a candidate only, if often
	if got := x.mostTouched(ranking{{Rows: list}, {Rows: []int32{9, 2}}, {Rows: []int32{10}}}); len(got) != 4 || !slices.Contains(got, 9) || !slices.Contains(got, 2) || !slices.Contains(got, 10) || slices.Contains(got, 11) {
		t.Errorf("%v are embedded again", got)
	}
}

// TestCalibrationOfScores: the line through the bridge's scores and the new model's, and the error around it.
func TestCalibrationOfScores(t *testing.T) {
	x := &trial{nowQueries: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}, now: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{3, 5, 8}}}
	got := x.calibrate(ranking{{Rows: []int32{0, 1, 2}, Scores: []float32{1, 2, 3}}})
	if !(math.Abs(got.Slope-2.5) <= 1e-9) || !(math.Abs(got.Offset-1./3) <= 1e-9) || !(math.Abs(got.Error-math.Sqrt(1./18)) <= 1e-9) {
		t.Errorf("%+v", got)
	}
	if got := x.calibrate(ranking{{Rows: []int32{0}, Scores: []float32{1}}}); got != (Calibration{Slope: 1}) {
		t.Errorf("one score has the line %+v", got)
	}
}

// TestTargetsWithoutSomeQueries: an item is drawn towards the queries that it answers, but for those that are left out.
func TestTargetsWithoutSomeQueries(t *testing.T) {
	x := &trial{
		now: rerank.NewMatrix(2, 1), learnedNew: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{10, 20}},
		nowQueries: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{2, 4, 100}}, relevant: [][]int32{{0}, {0}, {0, 1}},
	}
	if got := x.drawTargets(0.25, []int32{2}).Data; !slices.Equal(got, []float32{0.75*10 + 0.25*3, 20}) {
		t.Errorf("targets %v", got)
	}
	if got := x.drawTargets(0, nil).Data; !slices.Equal(got, []float32{10, 20}) || x.learnedNew.Data[0] != 10 {
		t.Errorf("targets %v", got)
	}
}

// TestAnswersOfTheJudges: which items are embedded again for a query, answers to other queries decide.
func TestAnswersOfTheJudges(t *testing.T) {
	const queries, items = queryParts, 20 // a query a part
	eye := rerank.NewMatrix(queries, queries)
	now := rerank.NewMatrix(items, queries)
	x := &trial{options: Options{Lazy: 0.5, Seed: 3}, nowQueries: eye, now: now, old: fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), items, 5)}
	var answers ranking
	for q := range queries {
		eye.Row(q)[q], now.Row(q)[q] = 1, 1
		x.relevant = append(x.relevant, []int32{int32(q)})
		answers = append(answers, teacher.Ranked{Rows: []int32{int32(q)}}) // which no other answer has
	}
	x.learnedOld, x.learnedNew = x.old, now
	_, lazily, err := x.bridged(t.Context(), 0, 0.1, answers, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	again := 0
	for q, list := range lazily {
		if list.Rows[0] == int32(q) && list.Scores[0] == 1 {
			again++
		}
	}
	if again > queries/2 {
		t.Errorf("the items of %d of %d queries are embedded again though only the query itself touched them", again, queries)
	}
}

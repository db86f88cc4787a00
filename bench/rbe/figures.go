package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
)

// rankers lists the rankers in the order of the plot.
var rankers = []string{"boosted", "cross"}

// figures contains the figures of one ranker.
type figures struct {
	Ranker    json.RawMessage `json:"ranker"` // the ranker's own report
	Hits      []hitRow        `json:"hits"`
	Reference apart           `json:"reference"`
	Budget    []budgetRow     `json:"budget"`
}

// estimate is a mean over seeds with half of its 95 % confidence interval.
type estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

// studentT lists the 97.5 % quantiles of Student's t distribution for 1 to 9 degrees of
// freedom.
var studentT = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

func estimateOf(v []float64) estimate {
	var sum, square float64
	for _, x := range v {
		sum += x
	}
	mean := sum / float64(len(v))
	for _, x := range v {
		square += (x - mean) * (x - mean)
	}
	n := len(v)
	if n < 2 {
		return estimate{Mean: mean}
	}
	t := studentT[min(n-1, len(studentT))-1]
	return estimate{Mean: round(mean), Half: round(t * math.Sqrt(square/float64(n-1)/float64(n)))}
}

func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// hitRow is a row of a ranker's table. Rates are for the pairs of rbeOptions.
type hitRow struct {
	Model    string           `json:"model"`
	Supports int              `json:"supports"`
	Select   fitrbe.Selection `json:"select"`
	Lambda   float64          `json:"lambda,omitempty"`
	Rates    [3]estimate      `json:"rates"`
	// Kept is the number of seeds whose fit kept the perceptrons.
	Kept int `json:"kept,omitempty"`
}

// apart contains the differences between the hit rates of the reference implementation and
// of the table.
type apart struct {
	Cells  int       `json:"cells"`
	CUR    deviation `json:"cur"`
	Neural deviation `json:"neural"`
	// Rounds is the number of perceptron fits that kept the same training round.
	Rounds   string `json:"same_round"`
	Supports string `json:"supports_chosen_again"`
}

// deviation summarises differences of hit rates over all pairs of rbeOptions.
type deviation struct {
	Mean   float64 `json:"greatest_of_a_mean"`
	Seed   float64 `json:"greatest_of_one_seed"`
	Within int     `json:"means_within_0.01"`
	Means  int     `json:"means"`
}

// of returns the deviation for a kind of model.
func (a *apart) of(model string) *deviation {
	if model == modelNeural {
		return &a.Neural
	}
	return &a.CUR
}

// budgetRow is a row of the table of budgets.
type budgetRow struct {
	way
	Calls  int         `json:"calls"`
	Recall [2]estimate `json:"recall"`
	MRR    estimate    `json:"mrr"`
}

// write writes the figures and their plot.
func (s settings) write(stdout io.Writer) error {
	all := map[string]figures{}
	for _, name := range rankers {
		s.ranker = name
		f, err := s.figures()
		if errors.Is(err, fs.ErrNotExist) {
			_, _ = fmt.Fprintf(stdout, "left out: %s, %v\n", name, err)
			continue
		}
		if err != nil {
			return err
		}
		all[name] = f
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.out+".json", append(b, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(s.out+".svg", []byte(plot(measured(all), all)), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "wrote", s.out+".json and .svg")
	return err
}

// measured returns the rankers for which there are figures.
func measured(all map[string]figures) []string {
	return slices.DeleteFunc(slices.Clone(rankers), func(name string) bool { return all[name].Ranker == nil })
}

func (s settings) figures() (f figures, err error) {
	if f.Ranker, err = os.ReadFile(strings.TrimSuffix(s.file(""), "_") + ".json"); err != nil {
		return f, err
	}
	cells, err := openLines[cell](s.file("hits.jsonl"))
	if err != nil {
		return f, err
	}
	defer cells.Close()
	f.Hits = hitRows(cells.read)
	spends, err := openLines[spent](s.file("budget.jsonl"))
	if err != nil {
		return f, err
	}
	defer spends.Close()
	f.Budget = budgetRows(spends.read)
	f.Reference, err = s.reference()
	return f, err
}

func hitRows(cells []cell) (rows []hitRow) {
	for _, model := range []string{modelCUR, modelLambda, modelNeural} {
		for _, how := range fitrbe.Selections() {
			for _, m := range supportCounts {
				if row, ok := hitRowOf(cells, hitRow{Model: model, Supports: m, Select: how}); ok {
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// hitRowOf fills in a row with means over the seeds.
func hitRowOf(cells []cell, row hitRow) (hitRow, bool) {
	var rates [3][]float64
	for _, c := range cells {
		if c.Model != row.Model || c.M != row.Supports || c.Select != row.Select {
			continue
		}
		row.Lambda = c.Lambda
		if c.Rounds > 0 {
			row.Kept++
		}
		for i := range rates {
			rates[i] = append(rates[i], c.Rates[i])
		}
	}
	if len(rates[0]) == 0 {
		return row, false
	}
	for i := range rates {
		row.Rates[i] = estimateOf(rates[i])
	}
	return row, true
}

func budgetRows(spends []spent) (rows []budgetRow) {
	for _, calls := range budgets {
		for _, w := range ways(calls) {
			var ten, hundred, mrr []float64
			for _, s := range spends {
				if s.way == w && s.Calls == calls {
					ten, hundred, mrr = append(ten, s.Recall[0]), append(hundred, s.Recall[1]), append(mrr, s.MRR)
				}
			}
			if len(ten) > 0 {
				rows = append(rows, budgetRow{way: w, Calls: calls, Recall: [2]estimate{estimateOf(ten), estimateOf(hundred)}, MRR: estimateOf(mrr)})
			}
		}
	}
	return rows
}

// compared is a line of the output of reference.py.
type compared struct {
	Key          []any     `json:"key"`
	Rates        []float64 `json:"rates"`
	Go           []float64 `json:"go"`
	Round        int       `json:"round"`
	GoRound      int       `json:"go_round"`
	SameSupports *bool     `json:"same_supports"`
}

// reference summarises the output of reference.py.
func (s settings) reference() (a apart, err error) {
	rows, err := openLines[compared](s.file("reference.jsonl"))
	if err != nil {
		return a, err
	}
	defer rows.Close()
	if len(rows.read) == 0 {
		return a, fmt.Errorf("%s: %w", s.file("reference.jsonl"), fs.ErrNotExist)
	}
	type rate struct {
		model, selection, supports any
		pair                       int
	}
	sums := map[rate]float64{} // differences, summed over the seeds
	seeds := map[rate]int{}
	var rounds, supports share
	for _, row := range rows.read {
		model := fmt.Sprint(row.Key[0])
		if model == modelNeural {
			rounds.add(row.Round == row.GoRound)
		}
		if row.SameSupports != nil {
			supports.add(*row.SameSupports)
		}
		for i := range row.Go {
			key, more := rate{model, row.Key[1], row.Key[2], i}, row.Go[i]-row.Rates[i]
			sums[key] += more
			seeds[key]++
			d := a.of(model)
			d.Seed = max(d.Seed, round(math.Abs(more)))
		}
	}
	for key, sum := range sums {
		d, mean := a.of(fmt.Sprint(key.model)), round(math.Abs(sum)/float64(seeds[key]))
		d.Mean = max(d.Mean, mean)
		d.Means++
		if mean <= 0.01 {
			d.Within++
		}
	}
	a.Cells, a.Rounds, a.Supports = len(rows.read), rounds.String(), supports.String()
	return a, nil
}

// share counts how often a condition holds.
type share struct{ yes, all int }

func (s *share) add(so bool) {
	s.all++
	if so {
		s.yes++
	}
}

func (s share) String() string { return fmt.Sprintf("%d of %d", s.yes, s.all) }

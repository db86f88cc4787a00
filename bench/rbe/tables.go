package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
)

const head = `# Any ranker as a retriever, measured

What [relevance-based embeddings](../how-to/rankers.md) find of the best items of two heavy rankers, and what a budget of
the ranker's calls buys. Every figure is of queries whose scores nothing was fitted to. Data, scripts and seeds are in
the repository; ` + "`bench/rbe/run.sh`" + ` makes everything again, from the texts to this page, in some twenty minutes of
one core. The figures are in [rbe.json](rbe.json).

**Collection.** BANKING77 (CC BY 4.0): 2,000 of its train questions are the items, 900 of its test questions the
queries; an item is relevant to a query of its intent. The other 8,003 train questions and their intents are what the
rankers learn from: they see neither text nor label of an item or a query before they score it. **Base vector**: LSA of
character n-grams, 64 numbers, no labels; its inner product is the database's order. 200 of the queries choose λ and the
number of supports. The other 700 are judged: for each of five seeds 70 % of them are support queries and 30 % are
held out.
`

// page formats the figures as a page.
func page(all map[string]figures) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	names := measured(all)
	if err := rankerTable(&b, names, all); err != nil {
		return "", err
	}
	for _, name := range rankers {
		if !slices.Contains(names, name) {
			fmt.Fprintf(&b, "\nThe %s are not measured on this page.\n", titles[name])
		}
	}
	for _, name := range names {
		hitTable(&b, name, all[name])
	}
	referenceTable(&b, names, all)
	b.WriteString("\n![Recall of a ranker's best by calls](rbe.svg)\n")
	for _, name := range names {
		budgetTable(&b, name, all[name])
	}
	return b.String(), nil
}

// measured returns the rankers for which there are figures.
func measured(all map[string]figures) []string {
	return slices.DeleteFunc(slices.Clone(rankers), func(name string) bool { return all[name].Ranker == nil })
}

var titles = map[string]string{"boosted": "boosted trees", "cross": "cross-encoder"}

func rankerTable(b *strings.Builder, names []string, all map[string]figures) error {
	b.WriteString(`
## The rankers

(a) ` + "`boosted.py`" + `: gradient-boosted trees (LambdaMART) over features of a pair: overlap of words, n-grams and rare words,
BM25 both ways, seven edit distances, soft alignment of words, five cosines, products of embeddings. (b) ` + "`cross.py`" + `: a
cross-encoder trained from scratch, in which every word of one question attends to the words of the other. A ranker
counts if it is at least .05 better than the base vector and the base vector finds less than .8 of its best 100.

| | MRR@10 | base vector | base vector's 100 best have of its 100 | size | training, scoring (CPU s) |
|---|---|---|---|---|---|
`)
	for _, name := range names {
		var r struct {
			MRR        float64 `json:"mrr_at_10"`
			Base       float64 `json:"base_mrr_at_10"`
			Found      float64 `json:"base_finds_of_top_100"`
			Features   int     `json:"features"`
			Trees      int     `json:"trees"`
			Parameters int     `json:"parameters"`
			CPU        struct {
				Training int `json:"training"`
				Scoring  int `json:"scoring"`
			} `json:"cpu_seconds"`
		}
		if err := json.Unmarshal(all[name].Ranker, &r); err != nil {
			return err
		}
		size := fmt.Sprintf("%d trees over %d features", r.Trees, r.Features)
		if r.Parameters > 0 {
			size = fmt.Sprintf("%d parameters", r.Parameters)
		}
		fmt.Fprintf(b, "| %s | %.3f | %.3f | %.3f | %s | %d, %d |\n", titles[name], r.MRR, r.Base, r.Found, size, r.CPU.Training, r.CPU.Scoring)
	}
	return nil
}

var modelTitles = map[string]string{modelCUR: "CUR", modelLambda: "CUR, regularised", modelNeural: "neural"}

func hitTable(b *strings.Builder, name string, f figures) {
	fmt.Fprintf(b, "\n## HitRate, %s\n\nMean over five seeds, and the 95 %% interval of the mean (Student's t).\n", titles[name])
	for i, what := range []string{"HitRate(1, 1)", "HitRate(10, 10)", "HitRate(100, 100)"} {
		fmt.Fprintf(b, "\n**%s**\n\n| supports | model |", what)
		for _, how := range fitrbe.Selections() {
			fmt.Fprintf(b, " %s |", how)
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---|", len(fitrbe.Selections())) + "\n")
		for _, m := range supportCounts {
			for _, model := range []string{modelCUR, modelLambda, modelNeural} {
				fmt.Fprintf(b, "| %d | %s |", m, modelTitles[model])
				for _, how := range fitrbe.Selections() {
					if r, ok := f.at(model, how, m); ok {
						fmt.Fprintf(b, " %s |", r.Rates[i])
					} else {
						b.WriteString(" |")
					}
				}
				b.WriteString("\n")
			}
		}
	}
	b.WriteString("\nλ of the regularised CUR, chosen on the tuning queries:")
	for _, m := range supportCounts {
		if r, ok := f.at(modelLambda, fitrbe.SelectL2Greedy, m); ok {
			fmt.Fprintf(b, " %g of %d supports;", r.Lambda, m)
		}
	}
	b.WriteString(" perceptrons of 128 and 64 numbers are kept where a tenth of the support queries says that they find more.\n")
}

func referenceTable(b *strings.Builder, names []string, all map[string]figures) {
	b.WriteString("\n## The reference\n\n`reference.py` computes every cell again, in NumPy (float64) and PyTorch (the perceptrons, float32), from the paper alone:\n" +
		"the same split and the same supports; perceptrons of the same start, the same watched queries and the same order, for\n" +
		"which `gorand.py` draws what Go draws. Support items of the three selections that draw nothing are chosen again, too.\n" +
		"Differences are of HitRate(1, 1), (10, 10) and (100, 100), means of the five seeds or of one.\n\n" +
		"| | cells | CUR, both: greatest of a mean | of one seed | neural: greatest of a mean | of one seed | means within .01 | the same round kept | supports chosen again: the same |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range names {
		r := all[name].Reference
		fmt.Fprintf(b, "| %s | %d | %.4f | %.4f | %.4f | %.4f | %d of %d | %s | %s |\n", titles[name], r.Cells, r.CUR.Mean, r.CUR.Seed,
			r.Neural.Mean, r.Neural.Seed, r.Neural.Within, r.Neural.Means, r.Rounds, r.Supports)
	}
}

func budgetTable(b *strings.Builder, name string, f figures) {
	fmt.Fprintf(b, "\n## What a budget buys, %s\n\nRecall of the 10 and of the 100 items that the ranker itself puts first, and MRR@10 of the labels, all of the same number of\n"+
		"calls. Supports count as calls and as items that were scored. In rounds the query is refined after each by all that\nthe ranker has said of it. Mixed: half of the first round are the database's best.\n\n", titles[name])
	b.WriteString("| calls | way | supports | rounds | recall of 10 | recall of 100 | MRR@10 |\n|---|---|---|---|---|---|---|\n")
	for _, r := range f.Budget {
		supports, rounds := "", ""
		if r.Supports > 0 {
			supports, rounds = fmt.Sprint(r.Supports), fmt.Sprint(r.Rounds)
		}
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %s | %s |\n", r.Calls, r.Name, supports, rounds, r.Recall[0], r.Recall[1], r.MRR)
	}
}

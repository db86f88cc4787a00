package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/eval"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// showIntents compares cosine with a Mixture-of-Logits in the routing of
// questions to intents.
func showIntents(ctx context.Context, c *client, t *banking77.Task, w io.Writer) error {
	cosine, err := c.ask(ctx, t, 1, &likenessv1.SearchRequest{Route: "intents-cosine"})
	if err != nil {
		return err
	}
	mol, err := c.ask(ctx, t, 1, &likenessv1.SearchRequest{Route: "intents-mol"})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\nINTENTS: which of %d intents is meant?\n\n", len(t.Items))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "similarity\tMRR@10\trecall@1\trecall@10\tproved\tp50 ms\tp99 ms\t")
	for _, row := range []struct {
		name string
		*answers
	}{{"cosine", cosine}, {"MoL, 8x4 components", mol}} {
		_, _ = fmt.Fprintf(table, "%s\t%.4f\t%.4f\t%.4f\t%s\t%.1f\t%.1f\t\n", row.name, row.metrics["mrr@10"], row.metrics["recall@1"],
			row.metrics["recall@10"], percent(row.proved), eval.Percentile(row.took, 0.50), eval.Percentile(row.took, 0.99))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return showExamples(t, cosine, mol, w)
}

// showExamples prints the first three intents of each similarity for three
// questions that they answer differently, spread over the data.
func showExamples(t *banking77.Task, cosine, mol *answers, w io.Writer) error {
	const examples = 3
	shown, last := 0, -1
	for i, row := range cosine.rows {
		if shown == examples || i < shown*len(cosine.rows)/examples {
			continue
		}
		right := t.Queries[row].Item
		if cosine.rankings[i][0].ID == mol.rankings[i][0].ID || right == last {
			continue
		}
		shown, last = shown+1, right
		_, _ = fmt.Fprintf(w, "\n  %q  (%s)\n", t.Queries[row].Text, t.Items[right].Text)
		table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintln(table, "     cosine\tMoL")
		for rank := range 3 {
			_, _ = fmt.Fprintf(table, "  %d  %s\t%s\n", rank+1, intent(t, cosine.rankings[i][rank].Index, right), intent(t, mol.rankings[i][rank].Index, right))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// trial is one row of the second table.
type trial struct {
	name    string
	request *likenessv1.SearchRequest
}

func mol(name string, strategy likenessv1.Strategy, depth, averageDepth int32, head string) trial {
	return trial{name, &likenessv1.SearchRequest{Route: "questions-mol", Strategy: strategy, Depth: depth, AverageDepth: averageDepth, Head: head}}
}

func trials() []trial {
	return []trial{
		{"cosine", &likenessv1.SearchRequest{Route: "questions-cosine"}},
		{"bilinear, one probe", &likenessv1.SearchRequest{Route: "questions-bilinear"}},
		mol("MoL, scan of the table", likenessv1.Strategy_STRATEGY_SCAN, 0, 0, ""),
		mol("MoL, per_embedding 50", likenessv1.Strategy_STRATEGY_PER_EMBEDDING, 50, 0, ""),
		mol("MoL, average 200", likenessv1.Strategy_STRATEGY_AVERAGE, 200, 0, ""),
		mol("MoL, average 500", likenessv1.Strategy_STRATEGY_AVERAGE, 500, 0, ""),
		mol("MoL, combined 50 + 500", likenessv1.Strategy_STRATEGY_COMBINED, 50, 500, ""),
		mol("MoL, distilled linear 200", likenessv1.Strategy_STRATEGY_DISTILLED, 200, 0, "linear"),
		mol("MoL, distilled linear 500", likenessv1.Strategy_STRATEGY_DISTILLED, 500, 0, "linear"),
		mol("MoL, distilled residual 200", likenessv1.Strategy_STRATEGY_DISTILLED, 200, 0, "residual"),
		mol("MoL, distilled residual 500", likenessv1.Strategy_STRATEGY_DISTILLED, 500, 0, "residual"),
		mol("MoL, companion 100", likenessv1.Strategy_STRATEGY_COMPANION, 100, 0, ""),
		mol("MoL, companion 200", likenessv1.Strategy_STRATEGY_COMPANION, 200, 0, ""),
	}
}

// showQuestions compares cosine, a bilinear form and a Mixture-of-Logits in the
// search of known questions, and the first stages of the latter.
func showQuestions(ctx context.Context, c *client, t *banking77.Task, every int, w io.Writer) error {
	all := map[string]*answers{}
	var scan *answers
	for _, trial := range trials() {
		a, err := c.ask(ctx, t, every, trial.request)
		if err != nil {
			return err
		}
		all[trial.name] = a
		if trial.request.GetStrategy() == likenessv1.Strategy_STRATEGY_SCAN {
			scan = a
		}
	}
	_, _ = fmt.Fprintf(w, "\nQUESTIONS: which of %d known questions mean the same?\n\n", len(t.Items))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "similarity, strategy\tscored\tfound of top 10\tproved\tMRR@10\tP@1\tP@10\tp50 ms\tp99 ms\t")
	for _, trial := range trials() {
		a := all[trial.name]
		found := ""
		if trial.request.GetRoute() == "questions-mol" {
			found = fmt.Sprintf("%.3f", eval.MeanOverlap(a.rankings, scan.rankings, k))
		}
		_, _ = fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t%.4f\t%.4f\t%.4f\t%.1f\t%.1f\t\n", trial.name, a.candidates, found, percent(a.proved),
			a.metrics["mrr@10"], a.metrics["p@1"], a.metrics["p@10"], eval.Percentile(a.took, 0.50), eval.Percentile(a.took, 0.99))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return explainQuestions(all["cosine"].metrics, scan.metrics, w)
}

// explainQuestions says in words what the table says of the similarity itself.
func explainQuestions(cosine, mol eval.Metrics, w io.Writer) error {
	change := func(name string) string {
		d := mol[name] - cosine[name]
		if d < 0 {
			return fmt.Sprintf("lowers %s by %.3f", name, -d)
		}
		return fmt.Sprintf("raises %s by %.3f", name, d)
	}
	verdict := ""
	if mol["p@10"] > cosine["p@10"] && mol["p@1"] < cosine["p@1"] {
		verdict = ":\nit helps where several good answers count, and not where only the first one does"
	}
	_, err := fmt.Fprintf(w, `
scored: candidates per query. found of top 10: share of the MoL's exact top 10
that a strategy's candidates held. proved: answers that are exact, of the collection
or of the table as it was built.
Beside cosine this MoL %s and %s%s.
`, change("p@10"), change("p@1"), verdict)
	return err
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// intent is an item's text, marked if it is the right one.
func intent(t *banking77.Task, item, right int) string {
	if item == right {
		return t.Items[item].Text + " *"
	}
	return t.Items[item].Text
}

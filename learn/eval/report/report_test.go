package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/eval/report"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
)

// evaluation compares a bilinear model, whose name must be escaped, with cosine.
func evaluation(t *testing.T) *eval.Report {
	t.Helper()
	const dim = 6
	rng := rand.New(rand.NewPCG(5, 6))
	w := tensor.Tensor{Shape: []int{dim, dim}, Data: make([]float32, dim*dim)}
	for i := range dim {
		w.Data[i*dim+i] = float32(1 - 2*(i%2))
	}
	s, err := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: true}, tensor.Set{"W": w})
	if err != nil {
		t.Fatal(err)
	}
	cosine, err := dot.New(dot.Config{Dim: dim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := eval.Input{
		Model: route.Model{Name: `<b>&"w"`, Version: "1", Similarity: s}, Traits: eval.Traits{Spectrum: []float64{2, 1, 0.5}},
		Baseline: route.Model{Name: "cosine", Similarity: cosine}, Items: rerank.NewMatrix(60, dim), Queries: rerank.NewMatrix(80, dim), K: 10,
	}
	for i := range in.Items.Data {
		in.Items.Data[i] = float32(rng.NormFloat64())
	}
	relevant := make([][]int32, in.Queries.Rows)
	for q := range relevant {
		x := rng.IntN(60) * rng.IntN(2)
		relevant[q] = []int32{int32(x)}
		for i, v := range in.Items.Row(x) {
			in.Queries.Row(q)[i] = v*w.Data[i*dim+i] + 0.5*float32(rng.NormFloat64())
		}
	}
	in.Pairs, in.Trials = eval.NewPairs(relevant), eval.StoredTrials(5, 60)
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	r.Models[0].Gates = &eval.GateUsage{PairsQuery: 2, PairsItem: 2, Mean: []float64{0.4, 0.3, 0.2, 0.1}, Largest: 0.7, Entropy: 1.2, Queries: 9}
	return r
}

// The page is well-formed, loads nothing from elsewhere, has a title and a table for every plot,
// and shows the same numbers as the JSON.
func TestPage(t *testing.T) {
	r := evaluation(t)
	path := filepath.Join(t.TempDir(), "r.html")
	if err := report.WriteFile(path, r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, b)
	if count["svg"] != 6 || count["figure"] != count["svg"] || count["table"] != count["svg"]+3 || count["script"]+count["link"]+count["img"] != 0 {
		t.Errorf("%v", count)
	}
	if count["svg>title"] != count["svg"] || count["svg>desc"] != count["svg"] {
		t.Errorf("plots without a title or a description: %v", count)
	}
	page := withoutLabels(string(b))
	for _, want := range []string{
		`name="viewport"`, "@media print", "prefers-color-scheme: dark", `lang="en"`, "&lt;b&gt;&amp;", r.Verdict.Text[2], //nolint:misspell // CSS's name
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if found := regexp.MustCompile(`https?://|url\(|@import|src=`).FindString(page); found != "" {
		t.Errorf("the page refers to elsewhere: %q", found)
	}
	compareWithJSON(t, r, page)
}

// compareWithJSON reads the table of metrics and compares it with the twin.
func compareWithJSON(t *testing.T, r *eval.Report, page string) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var twin struct {
		Baseline map[string]float64
		Models   []struct {
			Metrics  map[string]float64
			Segments []struct {
				Name   string
				Metric float64
			}
		}
	}
	if err := json.Unmarshal(text, &twin); err != nil {
		t.Fatal(err)
	}
	for name, value := range twin.Models[0].Metrics {
		row := fmt.Sprintf(`(?m)^<tr><th scope="row">(.* = )?%s( = .*?)?</th><td>%.4f</td><td>%.4f</td>`, name, twin.Baseline[name], value)
		if !regexp.MustCompile(row).MatchString(page) {
			t.Errorf("the page lacks %s", row)
		}
	}
	for _, s := range twin.Models[0].Segments {
		if !strings.Contains(page, fmt.Sprintf("<td>%.4f</td>", s.Metric)) {
			t.Errorf("the page lacks the %s segment's %v", s.Name, s.Metric)
		}
	}
}

// elements counts elements by name, and those directly within a plot as "svg>name".
func elements(t *testing.T, page []byte) map[string]int {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Entity = xml.HTMLEntity
	count := map[string]int{}
	var open []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			name := e.Name.Local
			count[name]++
			if len(open) > 0 && open[len(open)-1] == "svg" {
				count["svg>"+name]++
			}
			open = append(open, name)
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
}

func TestSpectrum(t *testing.T) {
	_, energy := report.Spectrum("σ", "values", []float64{2, 1})
	if len(energy) != 2 || energy[0] != 0.8 || energy[1] != 1 {
		t.Errorf("energy %v", energy)
	}
}

// TestBarePage: a report without a baseline, strategies and segments also makes a page.
func TestBarePage(t *testing.T) {
	r := evaluation(t)
	r.Baseline, r.BaselineName, r.BaselineHistogram = nil, "", nil
	m := &r.Models[0]
	m.Gains, m.Segments, m.Strategies, m.Regressions, m.Histogram, m.Gates, m.Spectrum = nil, nil, nil, nil, nil, nil, nil
	var b bytes.Buffer
	if err := report.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if count := elements(t, b.Bytes()); count["svg"] != 0 {
		t.Errorf("%v", count)
	}
	if err := report.WriteFile(filepath.Join(t.TempDir(), "none", "r.html"), r); err == nil {
		t.Error("a directory that is not there")
	}
}

// TestTrafficOnThePage: a table says how queries seen before and new ones fare, weighted by how often
// they were asked.
func TestTrafficOnThePage(t *testing.T) {
	r := evaluation(t)
	m := &r.Models[0]
	m.Traffic = []eval.Traffic{
		{Name: "all", Share: 1, Queries: 80, Metrics: eval.Metrics{"mrr@10": 0.97}, Baseline: eval.Metrics{"mrr@10": 0.5}},
		{Name: "seen before", Share: 0.9, Queries: 60, Metrics: eval.Metrics{"mrr@10": 1}, Baseline: eval.Metrics{"mrr@10": 0.5}},
		{Name: "new", Share: 0.1, Queries: 20, Metrics: eval.Metrics{"mrr@10": 0.7}, Baseline: eval.Metrics{"mrr@10": 0.5, "recall@10": 0.25}},
	}
	var b bytes.Buffer
	if err := report.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	elements(t, b.Bytes())
	for _, want := range []string{
		`<th scope="col">mrr@10</th><th scope="col">cosine</th><th scope="col">map@10</th>`,
		`<tr><th scope="row">seen before</th><td>90.0 %</td><td>60</td><td>1.0000</td><td>0.5000</td>`,
		`<tr><th scope="row">new</th><td>10.0 %</td><td>20</td><td>0.7000</td><td>0.5000</td><td>0.0000</td><td>0.0000</td><td>0.0000</td><td>0.2500</td></tr>`,
	} {
		if !strings.Contains(withoutLabels(b.String()), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	r.Baseline, r.BaselineName = nil, ""
	b.Reset()
	if err := report.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if want := `<td>10.0 %</td><td>20</td><td>0.7000</td><td>0.0000</td><td>0.0000</td></tr>`; !strings.Contains(withoutLabels(b.String()), want) {
		t.Errorf("without a baseline the page lacks %s", want)
	}
}

// withoutLabels returns a page without the labels of its cells, which narrow screens show.
func withoutLabels(page string) string {
	return regexp.MustCompile(` data-label="[^"]*"`).ReplaceAllString(page, "")
}

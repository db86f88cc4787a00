// Command pages renders the pages of docs/benchmarks from the figures beside them:
//
//	go run ./bench/pages -figures docs/benchmarks -out docs/benchmarks
//
// A page is one template of this folder. Benchmarks write JSON and no Markdown, so a page
// changes with its figures, and `make lint` fails if it has not.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/likenessdb/likeness/gpu/bench"
	"github.com/likenessdb/likeness/gpu/workload"
)

//go:embed *.md.tmpl
var templates embed.FS

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench/pages:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("pages", flag.ContinueOnError)
	flags.SetOutput(stderr)
	figures := flags.String("figures", "docs/benchmarks", "directory of the figures, *.json")
	out := flags.String("out", "docs/benchmarks", "directory of the pages")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	pages, err := render(os.DirFS(*figures))
	if err != nil {
		return err
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(*out, name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns every page by its file name. A template finds the figures of NAME.json as
// .NAME, with _ for each hyphen.
func render(figures fs.FS) (map[string][]byte, error) {
	data, err := readFigures(figures)
	if err != nil {
		return nil, err
	}
	gpu, err := gpuReport(figures)
	if err != nil {
		return nil, err
	}
	all, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"record": record, "table": table, "fastest": fastest, "where": where, "fix": fix, "percent": percent, "estimate": estimate, "quantiles": quantiles,
		"divide": func(a, b float64) float64 { return a / b }, "add": func(a, b int) int { return a + b }, "multiply": func(a, b float64) float64 { return a * b },
		"contains": strings.Contains, "gpu": gpu.Page, "fuzzing": fuzzing, "missed": missed, "way": findWay, "own": ownTime, "names": names, "models": models, "findModel": findModel, "withCold": withCold, "interval": interval, "oneOf": func(v any, of ...any) bool { return slices.Contains(of, v) }, "list": func(v ...any) []any { return v },
	}).ParseFS(templates, "*.md.tmpl")
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for _, name := range []string{"speed.md", "quality.md", "endurance.md", "sets.md"} {
		var page bytes.Buffer
		if err := all.ExecuteTemplate(&page, name+".tmpl", data); err != nil {
			return nil, err
		}
		pages[name] = page.Bytes()
	}
	return pages, nil
}

// findWay returns the result of a way of a system of proxy-overhead.json.
func findWay(system map[string]any, name string) (map[string]any, error) {
	ways, _ := system["ways"].([]any)
	for _, w := range ways {
		if way, ok := w.(map[string]any); ok && way["way"] == name {
			return way, nil
		}
	}
	return nil, fmt.Errorf("no way is called %q", name)
}

// ownTime returns the processor time of the processes between client and database.
func ownTime(byProcess map[string]any) (sum float64) {
	for process, ms := range byProcess {
		if process != "client" && process != "database" {
			ms, _ := ms.(float64)
			sum += ms
		}
	}
	return sum
}

// models returns one model of each name in the sets of sets.json: cosine, the references, then
// the fits of likeness.
func models(sets []any) []map[string]any {
	var all []map[string]any
	for _, set := range sets {
		for _, m := range set.(map[string]any)["models"].([]any) {
			model := m.(map[string]any)
			if !slices.ContainsFunc(all, func(other map[string]any) bool { return other["name"] == model["name"] }) {
				all = append(all, model)
			}
		}
	}
	groups := []any{"plain", "reference", "likeness"}
	slices.SortStableFunc(all, func(a, b map[string]any) int {
		return slices.Index(groups, a["by"]) - slices.Index(groups, b["by"])
	})
	return all
}

// findModel returns the model of a name in a set of sets.json, or nil.
func findModel(set map[string]any, name string) map[string]any {
	for _, m := range set["models"].([]any) {
		if model := m.(map[string]any); model["name"] == name {
			return model
		}
	}
	return nil
}

// withCold returns the sets of sets.json that have cold queries.
func withCold(sets []any) []any {
	return slices.DeleteFunc(slices.Clone(sets), func(s any) bool { return s.(map[string]any)["cold"].(float64) == 0 })
}

func readFigures(figures fs.FS) (map[string]any, error) {
	files, err := fs.Glob(figures, "*.json")
	if err != nil {
		return nil, err
	}
	data := map[string]any{}
	for _, file := range files {
		text, err := fs.ReadFile(figures, file)
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		data[strings.ReplaceAll(strings.TrimSuffix(file, ".json"), "-", "_")] = value
	}
	return data, nil
}

// gpuReport reads gpu.json. Without it, the report lists what is to be measured.
func gpuReport(figures fs.FS) (*bench.Report, error) {
	text, err := fs.ReadFile(figures, "gpu.json")
	if errors.Is(err, fs.ErrNotExist) {
		return bench.Unmeasured(bench.Options{Cases: workload.Cases()}), nil
	}
	if err != nil {
		return nil, err
	}
	return bench.Read(text)
}

// record formats a table of records.json with the command that made it, the machine and
// what else ran there.
func record(r map[string]any) (string, error) {
	command, machine, load, date := r["command"].(string), r["machine"].(string), r["load"].(string), r["date"].(string)
	if load != "" {
		machine += "; " + load
	}
	head := fmt.Sprintf("`%s` (%s; %s)\n\n", command, machine, date)
	if strings.Contains(command, "\n") {
		head = fmt.Sprintf("```\n%s\n```\n\n%s; %s.\n\n", command, machine, date)
	}
	rows, err := table(r)
	return head + rows, err
}

// table formats the columns and rows of a record.
func table(r map[string]any) (string, error) {
	columns := r["columns"].([]any)
	var b strings.Builder
	line := func(cells []any) {
		for _, c := range cells {
			fmt.Fprintf(&b, "| %v ", c)
		}
		b.WriteString("|\n")
	}
	line(columns)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for i, row := range r["rows"].([]any) {
		cells := row.([]any)
		if len(cells) != len(columns) {
			return "", fmt.Errorf("%v: row %d has %d cells for %d columns", columns, i+1, len(cells), len(columns))
		}
		line(cells)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// fastest returns the engine with the least time in a field, and its time. likeness does
// not count.
func fastest(engines map[string]any, field string) map[string]any {
	best := map[string]any{"engine": "", "ms": math.Inf(1)}
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		ms, measured := engines[name].(map[string]any)[field].(float64)
		if measured && !strings.HasPrefix(name, "likeness") && ms < best["ms"].(float64) {
			best = map[string]any{"engine": name, "ms": ms}
		}
	}
	return best
}

// where returns the objects whose fields have these values: where list "name" value ....
func where(list []any, conditions ...any) []any {
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		for i := 0; i+1 < len(conditions); i += 2 {
			if fmt.Sprint(v.(map[string]any)[conditions[i].(string)]) != fmt.Sprint(conditions[i+1]) {
				return true
			}
		}
		return false
	})
}

// names lists the names of objects: "A, B and C", or "none".
func names(list []any) string {
	var all []string
	for _, v := range list {
		all = append(all, v.(map[string]any)["name"].(string))
	}
	switch n := len(all); n {
	case 0:
		return "none"
	case 1:
		return all[0]
	default:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
}

// interval formats a difference and its interval.
func interval(d map[string]any) string {
	return strings.ReplaceAll(fmt.Sprintf("%+.4f (%+.4f to %+.4f)", d["mean"], d["low"], d["high"]), "0.", ".")
}

func fix(digits int, v float64) string { return fmt.Sprintf("%.*f", digits, v) }

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

// estimate formats a mean and half of its interval.
func estimate(e map[string]any) string {
	text := fmt.Sprintf("%.3f ± %.3f", e["mean"], e["half"])
	return strings.ReplaceAll(text, "0.", ".")
}

// quantiles formats the median and the 99th percentile in milliseconds.
func quantiles(q map[string]any) string { return fmt.Sprintf("%.2f / %.2f", q["p50_ms"], q["p99_ms"]) }

// missed lists the ways of missed targets, "SYSTEM, WAY: FIGURE", each once, after their system.
func missed(list []any) string {
	var systems []string
	ways := map[string][]string{}
	for _, m := range list {
		subject, _, _ := strings.Cut(m.(string), ": ")
		system, way := "", subject
		if comma := strings.LastIndex(subject, ", "); comma >= 0 {
			system, way = subject[:comma], subject[comma+2:]
		}
		if ways[system] == nil {
			systems = append(systems, system)
		}
		if !slices.Contains(ways[system], way) {
			ways[system] = append(ways[system], way)
		}
	}
	for i, system := range systems {
		systems[i] = system + ": " + strings.Join(ways[system], ", ")
	}
	return strings.Join(systems, "; ")
}

// fuzzing counts the fuzz targets of soak.json and their inputs.
func fuzzing(runs []any) (string, error) {
	targets, inputs := 0, 0
	for _, r := range runs {
		run := r.(map[string]any)
		if !strings.HasPrefix(run["run"].(string), "fuzz ") {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(run["result"].(string), "%d inputs", &n); err != nil {
			return "", fmt.Errorf("%s: %w", run["run"], err)
		}
		targets, inputs = targets+1, inputs+n
	}
	return fmt.Sprintf("%d fuzz targets, %d inputs", targets, inputs), nil
}

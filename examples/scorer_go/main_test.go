package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank"
)

const data = "../data/banking77"

// The scorer keeps what likeness relies on, as a process and on real questions.
func TestConformance(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "scorer_go")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	questions, err := banking77.Rows(filepath.Join(data, "train.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var items []plugin.Item
	for row := 0; row < len(questions); row += 500 {
		payload, err := json.Marshal(map[string]string{"text": questions[row].Text})
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, plugin.Item{ID: rerank.UintID(uint64(row)), Payload: payload})
	}
	plugintest.RunCommand(t,
		plugintest.Command{Path: binary, Args: []string{"-corpus", filepath.Join(data, "train.jsonl")}, Stderr: os.Stderr},
		plugintest.Options{Query: &plugin.Query{Text: "Where is my new card?"}, Items: items})
}

// It ranks what means the same as a question before most other questions.
func TestRanking(t *testing.T) {
	b, err := newBM25("text", filepath.Join(data, "train.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	task, err := banking77.Questions(data)
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close()
	var items []plugin.Item
	var meaning []int
	for row := 0; row < len(task.Items); row += 4 {
		payload, _ := json.Marshal(map[string]string{"text": task.Items[row].Text})
		items = append(items, plugin.Item{ID: rerank.UintID(uint64(row)), Payload: payload})
		meaning = append(meaning, task.Items[row].Item)
	}
	right, asked := 0, 0
	for row := 0; row < len(task.Queries); row += 150 {
		scores, err := b.score(t.Context(), plugin.Query{Text: task.Queries[row].Text}, items)
		if err != nil {
			t.Fatal(err)
		}
		best := 0
		for i, s := range scores {
			if s > scores[best] {
				best = i
			}
		}
		asked++
		if meaning[best] == task.Queries[row].Item {
			right++
		}
	}
	t.Logf("the best of %d questions means the same in %d cases of %d", len(items), right, asked)
	if right*10 < asked*7 {
		t.Errorf("the best question means the same in %d cases of %d, want 70 %%", right, asked)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// fakeFit returns a fit command that calls learn.
func fakeFit(t *testing.T, flags []string, learn func(context.Context, *fit.Common, fit.Data) (*learned, error)) (*fitHead, error) {
	t.Helper()
	var f fitInputs
	common := fit.DefaultCommon()
	cmd := &cobra.Command{Use: "fake", SilenceErrors: true, SilenceUsage: true}
	f.register(cmd, &common, true)
	var head *fitHead
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		head, err = f.run(cmd.Context(), newProgress(new(strings.Builder)), func(ctx context.Context, d fit.Data) (*learned, error) {
			return learn(ctx, &common, d)
		})
		return err
	}
	cmd.SetArgs(flags)
	return head, cmd.ExecuteContext(t.Context())
}

var plain = &learned{
	model:   model.Parameters{Kind: rerank.KindDot, Config: json.RawMessage(`{"dim": 8, "normalise": true}`)},
	options: fit.DefaultCommon(), report: "fine",
}

// TestFitInterruptedAndResumed: an interrupted fit writes its best model and its state. When
// resumed, it ends with the model alone.
func TestFitInterruptedAndResumed(t *testing.T) {
	dir, flags := fitFiles(t)
	flags = flags[2:]
	out := filepath.Join(dir, "m.safetensors")
	interrupted := func(_ context.Context, c *fit.Common, _ fit.Data) (*learned, error) {
		if state, err := c.Checkpoint.Load(); state != nil || err != nil {
			t.Errorf("a new fit has the state %q, %v", state, err)
		}
		if err := errors.Join(c.Checkpoint.Save([]byte("one")), c.Checkpoint.Save([]byte("two"))); err != nil {
			t.Error(err)
		}
		return plain, context.Canceled
	}
	head, err := fakeFit(t, flags, interrupted)
	if head == nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "holds the best so far; go on with --resume") {
		t.Fatalf("%+v, %v", head, err)
	}
	if m, err := model.Open(out); err != nil || m.Provenance[interruptedKey] == "" || m.Version != head.Version {
		t.Errorf("%v", err)
	}
	if _, err := fakeFit(t, flags, interrupted); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "go on with --resume, or begin again with --force") {
		t.Errorf("a second fit: %v", err)
	}
	other := func(context.Context, *fit.Common, fit.Data) (*learned, error) { return nil, fit.ErrCheckpoint }
	if _, err := fakeFit(t, append(flags, "--resume"), other); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "begin again with --force") {
		t.Errorf("a state of another fit: %v", err)
	}
	finished := func(_ context.Context, c *fit.Common, _ fit.Data) (*learned, error) {
		if state, err := c.Checkpoint.Load(); string(state) != "two" || err != nil {
			t.Errorf("the fit goes on from %q, %v", state, err)
		}
		return plain, nil
	}
	if _, err := fakeFit(t, append(flags, "--resume"), finished); err != nil {
		t.Fatal(err)
	}
	if m, err := model.Open(out); err != nil || m.Provenance[interruptedKey] != "" {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(out + "*"); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := fakeFit(t, append(flags, "--resume"), finished); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "replace it with --force") {
		t.Errorf("a finished model was replaced: %v", err)
	}
}

// TestFitForceAndFailure: --force discards the files of an interrupted fit, and a fit without a
// result writes nothing.
func TestFitForceAndFailure(t *testing.T) {
	dir, flags := fitFiles(t)
	flags = flags[2:]
	out := filepath.Join(dir, "m.safetensors")
	if err := os.WriteFile(out+".checkpoint", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := fakeFit(t, append(flags, "--force"), func(_ context.Context, c *fit.Common, d fit.Data) (*learned, error) {
		if state, err := c.Checkpoint.Load(); state != nil || err != nil {
			t.Errorf("state %q, %v", state, err)
		}
		if d.Items.Rows != 30 || len(d.Relevant) != 400 || d.Weights != nil {
			t.Errorf("%d items, pairs of %d", d.Items.Rows, len(d.Relevant))
		}
		return nil, context.Canceled
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no model yet") {
		t.Error(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a fit without a result wrote a model")
	}
}

// TestQueriesOfHistories: fit and eval take a history in place of query vectors. Its items are
// seen items, and its mean is of unit vectors where the model compares these.
func TestQueriesOfHistories(t *testing.T) {
	dir, _ := fitFiles(t)
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flags := []string{
		"--items", filepath.Join(dir, "items.npy"), "--half-life", "1h", "--history", path("history.csv", "query,item,time\nann,3,100\nann,4,3700\nbob,5,50\n"),
		"--pairs", path("log.csv", "query,item,time\nann,9,200\nann,8,7300\nbob,7,60\nbob,6,40\n"),
	}
	out := filepath.Join(dir, "m.safetensors")
	head, err := fakeFit(t, append(flags, "--out", out), func(_ context.Context, _ *fit.Common, d fit.Data) (*learned, error) {
		if d.Queries.Rows != 4 || !(math.Abs(rerank.Norm(d.Queries.Row(0))-1) <= 1e-6) || len(d.Relevant[2]) != 0 || !slices.Equal(d.Seen[1], []int32{3, 4}) {
			t.Errorf("queries %v, pairs %v, seen %v", d.Queries, d.Relevant, d.Seen)
		}
		return plain, nil
	})
	if err != nil || head.Log.NoHistory != 1 || head.Log.Pairs != 3 {
		t.Fatalf("%+v, %v", head, err)
	}
	r := execute(t, "", append([]string{"eval", "--model", out, "--output", "json"}, flags...)...)
	var report eval.Report
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil || report.Counts.Queries != 3 || !strings.Contains(r.err, "no item of their history") {
		t.Errorf("code %d, %v, counts %+v\n%s", r.code, err, report.Counts, r.err)
	}
	for want, args := range map[string][]string{
		"--history, --queries": {"--queries", filepath.Join(dir, "queries.npy")},
		"want 0 or more":       {"--half-life", "-1h"},
		"there is no --histor": {"--history", ""},
		"leave out other":      {"--query-ids", path("ids.txt", "ann\nbob\n")},
		"needs the time of ev": {"--history", path("untimed.csv", "query,item\nann,3\n")},
	} {
		if r := execute(t, "", append(append([]string{"eval", "--model", out}, flags...), args...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
	}
}

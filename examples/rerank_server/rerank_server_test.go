package rerankserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/ranker/httprank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const items = "../data/banking77/items.jsonl"

// start runs the server and returns its address.
func start(t *testing.T, args ...string) (url string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the example takes python3")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python, append([]string{"rerank_server.py", "--port", "0", "--texts", items}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log("the server said: ", said.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the server said %q, %v: %s", line, err, said.String())
	}
	return url
}

// counts is an observer that counts calls by outcome.
type counts struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counts) RankerCalled(context.Context, string, int) func(string) {
	return func(outcome string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[outcome]++
	}
}
func (*counts) RankerRetried(string)               {}
func (*counts) RankerNotAsked(string, int, string) {}
func (*counts) RankerBroken(string, bool)          {}

func open(t *testing.T, o httprank.Options) (*ranker.Client, *counts) {
	t.Helper()
	s, err := httprank.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	seen := &counts{calls: map[string]int{}}
	return ranker.New(s, ranker.Options{Name: o.Dialect, Observer: seen, RetryBudget: .1}), seen
}

func texts(n int) []plugin.Item {
	all := make([]plugin.Item, n)
	for i := range all {
		payload, _ := json.Marshal(map[string]any{"title": fmt.Sprintf("question %d", i), "body": "how to top up by bank transfer"})
		all[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: payload}
	}
	return all
}

// TestDialects asks the real server in each dialect for more than it takes at once.
func TestDialects(t *testing.T) {
	url := start(t, "--max-batch", "20", "--max-bytes", "3000", "--token", "canary")
	for _, test := range []struct {
		dialect, path string
		tooLarge      bool // refused before the limit is known
	}{
		{httprank.TEI, "/rerank", false},
		{httprank.Cohere, "/v2/rerank", true},
		{httprank.Jina, "/v1/rerank", true},
	} {
		t.Run(test.dialect, func(t *testing.T) {
			o := httprank.Options{URL: url + test.path, Dialect: test.dialect, Model: "bm25", Token: "canary", Fields: []string{"title", "body"}}
			c, seen := open(t, o)
			all := texts(90)
			all[63].Payload = json.RawMessage(`{"title":"lost card","body":"my card is lost, was it stolen?"}`)
			q := plugin.Query{Text: "I lost my card"}
			r, err := c.Rank(t.Context(), q, all)
			if err != nil {
				t.Fatal(err)
			}
			for i, score := range r.Scores {
				if score != score || i != 63 && score >= r.Scores[63] {
					t.Errorf("item %d has the score %g, item 63 %g", i, score, r.Scores[63])
				}
			}
			// One at a time, where each must have the score that it had among others.
			for _, i := range []int{0, 63, 89} {
				alone, err := c.Rank(t.Context(), q, all[i:i+1])
				if err != nil || alone.Scores[0] != r.Scores[i] {
					t.Errorf("item %d has the score %v alone (%v), %g among others", i, alone.Scores, err, r.Scores[i])
				}
			}
			if refused := seen.calls[ranker.TooLarge] > 0; refused != test.tooLarge || seen.calls[ranker.OK] < 5 {
				t.Errorf("calls %v", seen.calls)
			}
			large := texts(20) // within the number, beyond the bytes
			for i := range large {
				large[i].Payload = json.RawMessage(fmt.Sprintf(`{"body":%q}`, strings.Repeat("a card ", 60)))
			}
			before := seen.calls[ranker.TooLarge]
			if r, err := c.Rank(t.Context(), q, large); err != nil || r.Scores[19] != r.Scores[0] || seen.calls[ranker.TooLarge] == before {
				t.Errorf("beyond the bytes: %v, calls %v", err, seen.calls)
			}
			o.Token = "wrong"
			c, seen = open(t, o)
			if _, err := c.Rank(t.Context(), q, all[:1]); !errors.Is(err, ranker.ErrUnavailable) || !strings.Contains(err.Error(), "invalid token") || seen.calls[ranker.Unavailable] != 1 {
				t.Errorf("a wrong token: %v, calls %v", err, seen.calls)
			}
		})
	}
}

// TestOverload asks more at a time than the server takes: it says when to come back.
func TestOverload(t *testing.T) {
	url := start(t, "--max-concurrent", "1", "--ms-per-text", "5", "--retry-after", "0")
	s, err := httprank.New(httprank.Options{URL: url + "/rerank", Dialect: httprank.TEI, Fields: []string{"body"}, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := 0
	for range 10 {
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.Score(t.Context(), plugin.Query{Text: "bank"}, texts(10))
				results <- err
			}()
		}
		for range 2 {
			var w ranker.Waiter
			switch err := <-results; {
			case err == nil:
			case errors.Is(err, ranker.ErrUnavailable) && errors.As(err, &w):
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if refused == 0 {
		t.Error("no call was refused")
	}
}

// TestTEISaysWhatItServes reads version and limit of it, and asks a refused query once.
func TestTEISaysWhatItServes(t *testing.T) {
	url := start(t)
	c, seen := open(t, httprank.Options{URL: url + "/rerank", Dialect: httprank.TEI, Fields: []string{"body"}})
	d, err := c.Describe(t.Context())
	if err != nil || d.Version != "bm25" || d.MaxItems != 32 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.Rank(t.Context(), plugin.Query{Text: "bank"}, texts(64)); err != nil || seen.calls[ranker.OK] != 2 || len(seen.calls) != 1 {
		t.Errorf("%v, calls %v", err, seen.calls)
	}
	c, seen = open(t, httprank.Options{URL: url + "/v2/rerank", Dialect: httprank.TEI, Fields: []string{"body"}})
	if _, err := c.Rank(t.Context(), plugin.Query{Text: "bank"}, texts(3)); !errors.Is(err, ranker.ErrQuery) || seen.calls[ranker.Query] != 1 {
		t.Errorf("another dialect: %v, calls %v", err, seen.calls)
	}
}

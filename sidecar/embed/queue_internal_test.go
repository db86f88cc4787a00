package embed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// idle returns a client that starts no call, as if as many were in flight as may be.
func idle(t *testing.T) *Client {
	t.Helper()
	c, err := New(Options{Name: "mini", URL: "http://127.0.0.1:1/embed"})
	if err != nil {
		t.Fatal(err)
	}
	c.flying = c.options.Parallel
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestTextsThatNobodyWaitsFor are not kept and not embedded, and are embedded when somebody asks again.
func TestTextsThatNobodyWaitsFor(t *testing.T) {
	c := idle(t)
	_, waits := c.begin(t.Context(), []string{"a", "b"})
	c.leave(waits[0])
	if len(c.asked) != 1 || waits[0].text != "" {
		t.Errorf("%d texts are kept, %q among them: a caller that asks and leaves fills the memory", len(c.asked), waits[0].text)
	}
	if batch := c.takeBatch(); len(batch) != 1 || batch[0].text != "b" {
		t.Fatalf("embedded: %v", batch)
	}
	if _, waits := c.begin(t.Context(), []string{"a"}); waits[0] == nil || c.waiting.first() != waits[0] {
		t.Error("a text that was given up waits for a call that will not come")
	}
}

// textsOf joins the texts of a batch.
func textsOf(batch []*asked) string {
	var all []string
	for _, a := range batch {
		all = append(all, a.text)
	}
	return strings.Join(all, " ")
}

// TestCallersTakeTurns: a query does not wait for all documents of another caller, even if they include its text.
func TestCallersTakeTurns(t *testing.T) {
	c := idle(t)
	c.options.Batch = 3
	_, _ = c.begin(gate.WithCaller(t.Context(), "many"), []string{"1", "2", "3", "4", "5", "same"})
	_, _ = c.begin(gate.WithCaller(t.Context(), "one"), []string{"same"})
	_, _ = c.begin(gate.WithCaller(t.Context(), "two"), []string{"a", "b"})
	for _, want := range []string{"1 same a", "2 b 3", "4 5", ""} {
		if got := textsOf(c.takeBatch()); got != want {
			t.Errorf("a call has %q, want %q", got, want)
		}
	}
	_, _ = c.begin(t.Context(), []string{"x", strings.Repeat("y", batchBytes)})
	if got := textsOf(c.takeBatch()); got != "x" {
		t.Errorf("a call has %d bytes, at most %d", len(got), batchBytes)
	}
}

// TestOneCallIsLeftToOthers: a caller whose long texts take all the time that a call may take leaves a call to others, and
// gets another when one of its own ends. The process itself leaves none.
func TestOneCallIsLeftToOthers(t *testing.T) {
	ends := make(chan struct{})
	arrived := make(chan string, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- string(body)
		<-ends
		_, _ = io.WriteString(w, "[[1]]")
	}))
	defer server.Close()
	c, err := New(Options{Name: "mini", URL: server.URL + "/embed", Batch: 1, Parallel: 3})
	if err != nil {
		t.Fatal(err)
	}
	count := func(ctx context.Context, texts ...string) (flying int) {
		_, _ = c.begin(ctx, texts)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.flying
	}
	many := gate.WithCaller(t.Context(), "many")
	if n := count(many, "a", "b", "c", "d"); n != 2 {
		t.Errorf("one caller has %d of 3 calls, want 2", n)
	}
	if n := count(gate.WithCaller(t.Context(), "one"), "q"); n != 3 {
		t.Errorf("%d calls when another caller came, want 3", n)
	}
	for range 3 {
		<-arrived
	}
	close(ends) // all of them end, and the rest of the first caller's texts are sent
	for range 2 {
		<-arrived
	}
	if err := c.Close(); err != nil || len(c.held) != 0 || c.flying != 0 {
		t.Errorf("%v; callers hold %v, %d calls go on", err, c.held, c.flying)
	}
	own := idle(t)
	own.held[""] = 9
	if !own.mayCall("") || !own.mayCall("many") {
		t.Error("the process itself has no more calls than a caller")
	}
}

// TestALearnedLimitEnds: a service whose limit was seen is asked for whole batches again later.
func TestALearnedLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{options: Options{Batch: 32}}
		c.learnMost(8)
		c.learnMost(16)
		if n := c.mostTexts(); n != 8 {
			t.Errorf("%d texts, want 8", n)
		}
		<-time.After(learnedFor)
		if n := c.mostTexts(); n != 32 {
			t.Errorf("%d texts a while later, want 32", n)
		}
	})
}

// TestACallerLeavesAllItsTexts when its time is over, not only the one that it waits for.
func TestACallerLeavesAllItsTexts(t *testing.T) {
	c := idle(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Embed(ctx, []string{"a", "b", "c"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for text, a := range c.asked {
		if a.callers != 0 {
			t.Errorf("%d callers wait for %q", a.callers, text)
		}
	}
}

// TestCloseEndsCalls: a closed client waits for no answer, and no call of it goes on.
func TestCloseEndsCalls(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices only then that the caller left
		close(asked)
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := New(Options{Name: "mini", URL: server.URL + "/embed", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Embed(context.WithoutCancel(t.Context()), []string{"a"})
		failed <- err
	}()
	<-asked
	began := time.Now()
	if err := c.Close(); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("closed after %s: %v", time.Since(began), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying != 0 {
		t.Errorf("%d calls go on", c.flying)
	}
	if err := <-failed; !errors.Is(err, ErrUnavailable) {
		t.Errorf("the caller got %v", err)
	}
}

// TestTheCacheKeepsWhatIsAsked: the text that was asked for least recently makes room.
func TestTheCacheKeepsWhatIsAsked(t *testing.T) {
	c := newCache(2 * (&entry{"a", []float32{1}}).bytes())
	for _, text := range []string{"a", "b", "a", "c"} {
		if c.get(text) == nil {
			c.put(text, []float32{1})
		}
	}
	if c.get("a") == nil || c.get("b") != nil || c.get("c") == nil || c.bytes > c.limit {
		t.Errorf("kept %v, %d of %d bytes", c.entries, c.bytes, c.limit)
	}
}

// TestTally: the state shows the times of the last calls, and the failure of the last one.
func TestTally(t *testing.T) {
	c := &tally{}
	for range 100 {
		c.add(OK, time.Hour)
	}
	for range recentCalls {
		c.add(OK, time.Second)
	}
	if p50, p95 := c.quantile(.5), c.quantile(.95); p50 != 1 || p95 != 1 {
		t.Errorf("p50 %g s and p95 %g s, want those of the last %d calls", p50, p95, recentCalls)
	}
	if c.add(Timeout, 0); c.failure != Timeout || c.failed != 1 {
		t.Errorf("after a failure: %q, %d", c.failure, c.failed)
	}
	if c.add(OK, 0); c.failure != "" || c.failed != 1 {
		t.Errorf("after a call that succeeded: %q, %d", c.failure, c.failed)
	}
}

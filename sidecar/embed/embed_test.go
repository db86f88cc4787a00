package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "canary-token"

// open makes a client of a service that answers as the handler does. The wire is tested here; that
// a real model's vectors arrive is tested in e2e.
func open(t *testing.T, handler http.HandlerFunc, change func(*embed.Options)) *embed.Client {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	o := embed.Options{
		Name: "mini", URL: server.URL + "/v1/embeddings", Model: "m", Token: token, Transport: server.Client().Transport, BreakFor: time.Hour,
	}
	if change != nil {
		change(&o)
	}
	c, err := embed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func tei(o *embed.Options) {
	o.URL = strings.Replace(o.URL, "/v1/embeddings", "/embed", 1)
	o.Model = ""
}

// requests are the texts of the calls that a service got.
type requests struct {
	mu   sync.Mutex
	seen [][]string
}

func (r *requests) add(texts []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, texts)
	return len(r.seen)
}

func (r *requests) calls() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// lengths answers in the form of TEI, with a vector of the text's length.
func lengths(w http.ResponseWriter, texts []string) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = []float32{float32(len(text)), 1}
	}
	_ = json.NewEncoder(w).Encode(vectors)
}

func inputs(t *testing.T, r *http.Request) []string {
	t.Helper()
	var body struct{ Inputs []string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		t.Error(err)
	}
	return body.Inputs
}

// TestForms sends what the services document, and reads their answers in any order.
func TestForms(t *testing.T) {
	tests := map[string]struct {
		change       func(*embed.Options)
		sent, answer string
	}{
		"openai": {
			nil, `{"model":"m","input":["a","bb"],"encoding_format":"float"}`,
			`{"object":"list","data":[{"object":"embedding","index":1,"embedding":[3,4e0]},{"object":"embedding","index":0,"embedding":[ -1 , 0.5 ]}],"model":"m","usage":{"total_tokens":2}}`,
		},
		"shortened": {
			func(o *embed.Options) { o.Dimension, o.Shorten = 2, true }, `{"model":"m","input":["a","bb"],"encoding_format":"float","dimensions":2}`,
			`{"data":[{"embedding":[-1,0.5]},{"embedding":[3,4]}]}`,
		},
		"tei": {tei, `{"inputs":["a","bb"],"truncate":true}`, `[[-1,0.5],[3,4]]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var sent, want any
			c := open(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+token {
					t.Errorf("%s with %v", r.Method, r.Header)
				}
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, tc.answer)
			}, tc.change)
			got, err := c.Embed(t.Context(), []string{"a", "bb"})
			if err != nil || !reflect.DeepEqual(got, [][]float32{{-1, .5}, {3, 4}}) {
				t.Errorf("%v, %v", got, err)
			}
			if err := json.Unmarshal([]byte(tc.sent), &want); err != nil || !reflect.DeepEqual(sent, want) {
				t.Errorf("sent %v, want %v", sent, want)
			}
		})
	}
}

// TestAnswersThatAreNotValid are refused: never is a vector made up, or one text given another's.
func TestAnswersThatAreNotValid(t *testing.T) {
	data := func(items string) string { return `{"data":[` + items + `]}` }
	for answer, want := range map[string]string{
		data(`{"index":0,"embedding":[1,2]}`):                                                                    "1 vectors for 2 texts",
		data(`{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,2]}`):                                      "two vectors have index 0",
		data(`{"index":0,"embedding":[1,2]},{"index":2,"embedding":[1,2]}`):                                      "index 2 of 2 texts",
		data(`{"index":0,"embedding":[1,2]},{"index":-1,"embedding":[1,2]}`):                                     "index -1 of 2 texts",
		data(`{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1,2,3]}`):                                    "3 elements, want 2",
		data(`{"index":0,"embedding":[1,2]},{"index":1,"embedding":[]}`):                                         "0 elements",
		data(`{"index":0,"embedding":[1,2]},{"index":1}`):                                                        "0 elements",
		data(`{"index":0,"embedding":[1,null]},{"index":1,"embedding":[1,2]}`):                                   "element 1",
		data(`{"index":0,"embedding":[1,NaN]},{"index":1,"embedding":[1,2]}`):                                    "invalid character",
		data(`{"index":0,"embedding":[1,1e39]},{"index":1,"embedding":[1,2]}`):                                   "no finite float32",
		data(`{"index":0,"embedding":[1,"2"]},{"index":1,"embedding":[1,2]}`):                                    "element 1",
		data(`{"index":0,"embedding":[[1],2]},{"index":1,"embedding":[1,2]}`):                                    "element 0",
		data(`{"index":0,"embedding":"AACAPw=="},{"index":1,"embedding":[1,2]}`):                                 "no array of numbers",
		data(`{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1,2]}`) + `{}`:                               "more after the JSON",
		`{"data":[{"index":0,"embedding":[1` + strings.Repeat(" ", 1<<20) + `]},{"index":1,"embedding":[1,2]}]}`: "longer than",
		`[[1,2],[1,2]]`: "cannot unmarshal array",
		`<html>`:        "invalid character",
		``:              "EOF",
	} {
		c := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }, nil)
		got, err := c.Embed(t.Context(), []string{"a", "b"})
		if !errors.Is(err, embed.ErrAnswer) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `embedder "mini"`) {
			t.Errorf("%.80s: %v, %v, want %q", answer, got, err, want)
		}
	}
}

// TestDimension: every vector has the configured length or, without one, the length of the first
// vector.
func TestDimension(t *testing.T) {
	answers := []string{`[[1,2]]`, `[[1,2,3]]`}
	for dimension, want := range map[int][]bool{0: {true, false}, 2: {true, false}, 3: {false, true}} {
		var calls requests
		c := open(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, answers[calls.add(inputs(t, r))-1])
		},
			func(o *embed.Options) { tei(o); o.Dimension = dimension })
		for i, ok := range want {
			if _, err := c.Embed(t.Context(), []string{fmt.Sprint(i)}); (err == nil) != ok || !ok && !errors.Is(err, embed.ErrAnswer) {
				t.Errorf("dimension %d, answer %s: %v", dimension, answers[i], err)
			}
		}
	}
}

// TestTextsShareCalls: texts go out in batches, each once, and a text that was embedded is not sent
// again while the cache has it.
func TestTextsShareCalls(t *testing.T) {
	var calls requests
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		texts := inputs(t, r)
		calls.add(texts)
		lengths(w, texts)
	}, func(o *embed.Options) { tei(o); o.Batch, o.Parallel, o.CacheBytes = 3, 1, 1<<10 })
	texts := []string{"a", "bb", "a", "ccc", "dddd"}
	for range 2 {
		got, err := c.Embed(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			if got[i][0] != float32(len(text)) {
				t.Errorf("%q has the vector %v", text, got[i])
			}
		}
	}
	if want := [][]string{{"a", "bb", "ccc"}, {"dddd"}}; !reflect.DeepEqual(calls.calls(), want) {
		t.Errorf("calls %q, want %q", calls.calls(), want)
	}
	for i := range 100 { // the cache has room for four
		if _, err := c.Embed(t.Context(), []string{strings.Repeat("x", i+10)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Embed(t.Context(), texts[:1]); err != nil || len(calls.calls()) != 103 {
		t.Errorf("%d calls, %v: the cache has no bound", len(calls.calls()), err)
	}
}

// TestRefusedTexts: a service's limit is learned, and only the text that it cannot read fails.
func TestRefusedTexts(t *testing.T) {
	var calls requests
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		texts := inputs(t, r)
		calls.add(texts)
		switch {
		case len(texts) > 2:
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, `{"error":"batch size 4 > maximum allowed batch size 2"}`)
		case slices.Contains(texts, "bad"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error":"Input validation error"}`)
		default:
			lengths(w, texts)
		}
	}, func(o *embed.Options) { tei(o); o.Parallel, o.CacheBytes = 1, 1<<20 })
	if _, err := c.Embed(t.Context(), []string{"a", "bad", "ccc", "dddd"}); !errors.Is(err, embed.ErrText) || !strings.Contains(err.Error(), "Input validation error") {
		t.Error(err)
	}
	if got, err := c.Embed(t.Context(), []string{"a", "ccc", "dddd"}); err != nil || len(got) != 3 {
		t.Error(got, err)
	}
	before := len(calls.calls()) // one text was refused, which says nothing about their number
	for _, texts := range [][]string{{"1", "2", "3", "4"}, {"5", "6", "7", "8"}} {
		if _, err := c.Embed(t.Context(), texts); err != nil {
			t.Error(err)
		}
	}
	if want := [][]string{{"1", "2", "3", "4"}, {"1", "2"}, {"3", "4"}, {"5", "6"}, {"7", "8"}}; !reflect.DeepEqual(calls.calls()[before:], want) {
		t.Errorf("calls %q, want %q: the limit of the service is learned, once", calls.calls()[before:], want)
	}
	for range 6 {
		if _, err := c.Embed(t.Context(), []string{"bad"}); !errors.Is(err, embed.ErrText) {
			t.Error(err)
		}
	}
	if c.State().Breaker != "closed" {
		t.Error("texts that were refused opened the breaker")
	}
	if _, err := c.Embed(t.Context(), []string{"a", ""}); !errors.Is(err, embed.ErrText) {
		t.Errorf("an empty text: %v", err)
	}
}

// TestPrefixes: queries and documents are sent, and kept in the cache, behind their own prefixes; the state counts
// both.
func TestPrefixes(t *testing.T) {
	var calls requests
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		texts := inputs(t, r)
		calls.add(texts)
		lengths(w, texts)
	}, func(o *embed.Options) {
		tei(o)
		o.QueryPrefix, o.DocumentPrefix, o.CacheBytes = "query: ", "passage: ", 1<<20
	})
	for range 2 {
		got, err := c.Embed(t.Context(), []string{"coat"}, "coat", "a")
		want := [][]float32{{11, 1}, {13, 1}, {10, 1}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	if want := [][]string{{"query: coat", "passage: coat", "passage: a"}}; !reflect.DeepEqual(calls.calls(), want) {
		t.Errorf("sent %q, want %q", calls.calls(), want)
	}
	s := c.State()
	if s.P50 <= 0 || s.P95 < s.P50 || s.Host == "" {
		t.Errorf("%+v", s)
	}
	s.P50, s.P95, s.Host = 0, 0, ""
	if want := (embed.State{Name: "mini", Breaker: "closed", Calls: 1, Found: 3, Missed: 3}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestBroken: a service that fails is left alone, and one that is slow costs a caller no more than
// the time limit.
func TestBroken(t *testing.T) {
	var calls requests
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		calls.add(inputs(t, r))
		w.WriteHeader(http.StatusServiceUnavailable)
	}, func(o *embed.Options) { tei(o); o.BreakAfter = 3 })
	for i := range 10 {
		if _, err := c.Embed(t.Context(), []string{fmt.Sprint(i)}); !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("%v is not %v", err, embed.ErrUnavailable)
		}
	}
	if s, n := c.State(), len(calls.calls()); n != 4 || s.Breaker != "open" || s.Calls != 4 || s.Failed != 4 || s.Failure != embed.Unavailable {
		t.Errorf("%d calls of a service that fails, and its state is %+v", n, s)
	}
	once := open(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, func(o *embed.Options) { tei(o); o.BreakAfter, o.RetryBudget = 1, 1 })
	if _, err := once.Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrUnavailable) || strings.Contains(err.Error(), "in a row") {
		t.Errorf("%v: a call that opens the breaker was made again at once", err)
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	slow := open(t, hang, func(o *embed.Options) { tei(o); o.Timeout = time.Millisecond })
	if _, err := slow.Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the embedder's time limit: %v", err)
	}
	patient := open(t, hang, func(o *embed.Options) { tei(o); o.Timeout = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := patient.Embed(ctx, []string{"a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
}

// joins is an observer that tells of every caller that has begun to wait.
type joins struct{ joined chan struct{} }

func (joins) EmbedderCalled(context.Context, string, int) func(string) { return func(string) {} }
func (j joins) EmbedderCached(string, int, int)                        { j.joined <- struct{}{} }
func (joins) EmbedderBroken(string, bool)                              {}

// TestATextWithoutAVector: a text to which a service finds no vector, or on which it fails, fails alone, whoever's texts share its
// call, and does not open the breaker.
func TestATextWithoutAVector(t *testing.T) {
	for want, answer := range map[error]http.HandlerFunc{
		embed.ErrAnswer:      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[null,null]") },
		embed.ErrUnavailable: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(want.Error(), func(t *testing.T) { wantAlone(t, answer, want) })
	}
}

// wantAlone shares a call between a text that a service cannot answer and another caller's.
func wantAlone(t *testing.T, fail http.HandlerFunc, want error) {
	t.Helper()
	release, joined := make(chan struct{}), make(chan struct{})
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		texts := inputs(t, r)
		switch {
		case slices.Contains(texts, "first"):
			<-release
			lengths(w, texts)
		case slices.Contains(texts, "odd"):
			fail(w, r)
		default:
			lengths(w, texts)
		}
	}, func(o *embed.Options) { tei(o); o.Parallel, o.BreakAfter, o.Observer = 1, 2, joins{joined} })
	failed := map[string]chan error{}
	for _, text := range []string{"first", "odd", "a"} {
		failed[text] = make(chan error, 1)
		go func() {
			_, err := c.Embed(gate.WithCaller(t.Context(), "caller of "+text), []string{text})
			failed[text] <- err
		}()
		<-joined
	}
	close(release)
	if err := <-failed["odd"]; !errors.Is(err, want) {
		t.Errorf("the text without a vector: %v", err)
	}
	for _, text := range []string{"first", "a"} {
		if err := <-failed[text]; err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if s := c.State().Breaker; s != "closed" {
		t.Errorf("the breaker is %s", s)
	}
}

// TestOneCallerLeaves: the others that wait for the same text get it.
func TestOneCallerLeaves(t *testing.T) {
	arrived, goOn, callers := make(chan struct{}), make(chan struct{}), joins{make(chan struct{}, 2)}
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		texts := inputs(t, r)
		close(arrived)
		<-goOn
		lengths(w, texts)
	}, func(o *embed.Options) { tei(o); o.Observer = callers })
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := c.Embed(ctx, []string{"abc"})
		first <- err
	}()
	<-arrived
	second := make(chan error, 1)
	go func() {
		got, err := c.Embed(t.Context(), []string{"abc"})
		if err == nil && got[0][0] != 3 {
			err = fmt.Errorf("vector %v", got[0])
		}
		second <- err
	}()
	<-callers.joined
	<-callers.joined
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(goOn)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// TestOptions: what can never work is refused when the configuration is read.
func TestOptions(t *testing.T) {
	for want, o := range map[string]embed.Options{
		"model is empty":  {URL: "https://h/v1/embeddings"},
		"names no method": {URL: "https://h/", Model: "m"},
		`form "cohere"`:   {URL: "https://h/embed", Form: "cohere"},
		"want http://":    {URL: "h/embed"},
		"holds a user":    {URL: "https://a:canary@h/embed"},
		"dimension -1":    {URL: "https://h/embed", Dimension: -1},
		"shorten asks":    {URL: "https://h/v1/embeddings", Model: "m", Shorten: true},
		"the token has a": {URL: "https://h/embed", Token: "a\n"},
	} {
		if _, err := embed.New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// TestAServiceThatAsksToWait is not called again at once; one that only fails is.
func TestAServiceThatAsksToWait(t *testing.T) {
	for after, want := range map[string]int64{"": 2, "30": 1} {
		var calls atomic.Int64
		c := open(t, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}, func(o *embed.Options) { o.RetryBudget = 1 })
		if _, err := c.Embed(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrUnavailable) || calls.Load() != want {
			t.Errorf("Retry-After %q: %d calls, want %d; %v", after, calls.Load(), want, err)
		}
	}
}

// TestOneCallersTextsDoNotBreak: a service that fails for texts of one caller stays in service for the others, and those that share
// their calls get their vectors. A service that fails for every text is left alone.
func TestOneCallersTextsDoNotBreak(t *testing.T) {
	failures := map[string]http.HandlerFunc{
		"rubbish": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[null]") },
		"fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	}
	for name, fail := range failures {
		for _, everybody := range []bool{false, true} {
			t.Run(fmt.Sprint(name, everybody), func(t *testing.T) {
				var calls requests
				c := open(t, func(w http.ResponseWriter, r *http.Request) {
					texts := inputs(t, r)
					calls.add(texts)
					if everybody || strings.HasPrefix(texts[0], "bad") {
						fail(w, r)
						return
					}
					lengths(w, texts)
				}, func(o *embed.Options) { tei(o); o.BreakAfter = 3 })
				for i := range 4 {
					if _, err := c.Embed(t.Context(), []string{fmt.Sprint("bad", i)}); err == nil {
						t.Fatal("a bad text has a vector")
					}
				}
				if _, err := c.Embed(t.Context(), []string{"good"}); (err != nil) != everybody {
					t.Errorf("another caller's text: %v", err)
				}
				want, state := 6, "closed" // four bad texts, one of ours, and the good one
				if everybody {
					want, state = 4, "open"
				}
				if s, n := c.State(), len(calls.calls()); s.Breaker != state || n != want {
					t.Errorf("the breaker is %s after %d calls, want %s after %d", s.Breaker, n, state, want)
				}
			})
		}
	}
}

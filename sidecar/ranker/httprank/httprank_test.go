package httprank_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/ranker/httprank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "canary-token"

func itemsOf(texts ...string) []plugin.Item {
	items := make([]plugin.Item, len(texts))
	for i, text := range texts {
		payload, _ := json.Marshal(map[string]string{"text": text})
		items[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: payload}
	}
	return items
}

// serve answers calls of the rerank method, over TLS, as the handler does.
func serve(t *testing.T, handler http.HandlerFunc, change func(*httprank.Options)) *httprank.Scorer {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	o := httprank.Options{URL: server.URL + "/rerank", Dialect: httprank.TEI, Fields: []string{"text"}, Token: token, Version: "1", Transport: server.Client().Transport}
	if change != nil {
		change(&o)
	}
	s, err := httprank.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPublishedExamples sends what the services document, and reads what they answer.
func TestPublishedExamples(t *testing.T) {
	data, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct {
		Name, Source, Dialect, Model, Query string
		Texts                               []string
		Request                             any
		Answer                              json.RawMessage
		Scores                              []float32
	}
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		t.Run(e.Name, func(t *testing.T) {
			var sent any
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer "+token {
					t.Errorf("%s with %v", r.Method, r.Header)
				}
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
				_, _ = w.Write(e.Answer)
			}, func(o *httprank.Options) { o.Dialect, o.Model = e.Dialect, e.Model })
			scores, err := s.Score(t.Context(), plugin.Query{Text: e.Query}, itemsOf(e.Texts...))
			if err != nil || !slices.Equal(scores, e.Scores) {
				t.Errorf("scores %v (%v), want %v", scores, err, e.Scores)
			}
			if e.Request != nil && !reflect.DeepEqual(sent, e.Request) {
				t.Errorf("sent %v, want %v", sent, e.Request)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	nan := float32(math.NaN())
	for answer, want := range map[string][]float32{
		`[{"index":2,"score":3},{"index":0,"score":1},{"index":1,"score":-2.5}]`:       {1, -2.5, 3},
		`[{"index":1,"score":null},{"index":0,"score":1e-50},{"index":2,"score":3}]`:   {0, nan, 3},
		`[{"score":1,"index":0,"new":{}},{"index":1,"score":2},{"index":2,"score":3}]`: {1, 2, 3},
		`[{"index":0,"score":1},{"index":1,"score":2}]`:                                nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":1,"score":2}]`:          nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":3,"score":2}]`:          nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":-1,"score":2}]`:         nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"score":2}]`:                    nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2}]`:                    nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2,"score":"3"}]`:        nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2.5,"score":3}]`:        nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2,"score":1e39}]`:       nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2,"score":1e999}]`:      nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2,"score":NaN}]`:        nil,
		`[{"index":0,"score":1},{"index":1,"score":2},{"index":2,"score":3}][]`:        nil,
		`{"results":[]}`: nil,
		`null`:           nil,
		``:               nil,
		`<html>`:         nil,
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }, nil)
		scores, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf("a", "b", "c"))
		if want == nil {
			if !errors.Is(err, ranker.ErrAnswer) {
				t.Errorf("%s: %v, %v; want %v", answer, scores, err, ranker.ErrAnswer)
			}
			continue
		}
		if err != nil || !slices.EqualFunc(scores, want, func(a, b float32) bool { return a == b || a != a && b != b }) {
			t.Errorf("%s: %v, %v; want %v", answer, scores, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		status int
		header string
		body   string
		texts  int
		want   error
		after  time.Duration // -1: never
		says   string
	}{
		{413, "", `{"error":"batch size 40 > maximum allowed batch size 32","error_type":"Validation"}`, 40, ranker.ErrTooLarge, 0, "allowed batch size 32"},
		{413, "", "Failed to buffer the request body: length limit exceeded", 3, ranker.ErrTooLarge, 0, "length limit"},
		{422, "", `{"id":"1","message":"too many documents: 1200, at most 1000"}`, 1200, ranker.ErrTooLarge, 0, ""},
		{400, "", `{"detail":"max number of documents is 64"}`, 65, ranker.ErrTooLarge, 0, ""},
		{422, "", `{"detail":[{"loc":["body"],"msg":"List should have at most 16 items","input":["secret"]}]}`, 17, ranker.ErrTooLarge, 0, ""},
		{422, "", `{"error":"Tokenization error","error_type":"Tokenizer"}`, 5, ranker.ErrQuery, 0, "Tokenization"},
		{400, "", `{"message":"the query exceeds 512 tokens"}`, 1, ranker.ErrQuery, 0, ""},
		{429, "7", `{"error":"Model is overloaded","error_type":"Overloaded"}`, 5, ranker.ErrUnavailable, 7 * time.Second, "overloaded"},
		{429, "", ``, 5, ranker.ErrUnavailable, 0, ""},
		{408, "", ``, 5, ranker.ErrUnavailable, 0, "408"},
		{503, "Fri, 01 Jan 2100 00:00:00 GMT", ``, 5, ranker.ErrUnavailable, time.Hour, ""},
		{503, "soon", ``, 5, ranker.ErrUnavailable, 0, ""},
		{424, "", `{"error":"Inference failed","error_type":"backend"}`, 5, ranker.ErrUnavailable, 0, ""},
		{500, "", `<html>oops</html>`, 5, ranker.ErrUnavailable, 0, "500"},
		{401, "", `{"message":"invalid api token"}`, 5, ranker.ErrUnavailable, -1, "invalid api token"},
		{404, "", ``, 5, ranker.ErrUnavailable, -1, ""},
	} {
		t.Run(fmt.Sprint(test.status, test.body), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				if !strings.HasPrefix(test.body, "{") {
					w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, nil)
			_, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf(make([]string, test.texts)...))
			if err != nil {
				t.Fatal("items without text are not sent: ", err)
			}
			_, err = s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf(strings.Split(strings.Repeat("x,", test.texts-1)+"x", ",")...))
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("%v, want %v", err, test.want)
			}
			var w ranker.Waiter
			if has := errors.As(err, &w); has != (test.after != 0) {
				t.Fatalf("says when to come back: %t", has)
			} else if has && max(w.RetryAfter(), -1) != test.after {
				t.Errorf("come back after %s, want %s", w.RetryAfter(), test.after)
			}
		})
	}
}

// TestRedirect keeps the token and the texts from where nobody configured them to go.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL+"/rerank?key=canary-key")
			w.WriteHeader(status)
		}, nil)
		_, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf("a"))
		if !errors.Is(err, ranker.ErrUnavailable) || !strings.Contains(err.Error(), other.URL) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestAServiceMayRepeatTheTexts: an answer may be as much longer as the request is.
func TestAServiceMayRepeatTheTexts(t *testing.T) {
	text := strings.Repeat("a", 1<<20)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `[{"index":0,"score":2,"text":%q}]`, text)
	}, nil)
	if got, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf(text)); err != nil || !slices.Equal(got, []float32{2}) {
		t.Errorf("%v, %v; want the score 2", got, err)
	}
}

func TestLimitsOfWhatIsRead(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "[")
		for range 300 {
			_, _ = io.WriteString(w, strings.Repeat(" ", 8<<10))
		}
	}, nil)
	if _, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf("a")); !errors.Is(err, ranker.ErrAnswer) {
		t.Errorf("an endless answer: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	hang := make(chan struct{})
	s = serve(t, func(http.ResponseWriter, *http.Request) { <-hang }, nil)
	if _, err := s.Score(ctx, plugin.Query{Text: "q"}, itemsOf("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	close(hang)
	s, err := httprank.New(httprank.Options{URL: "http://127.0.0.1:1/rerank?key=canary", Dialect: httprank.TEI, Fields: []string{"text"}, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Score(t.Context(), plugin.Query{Text: "q"}, itemsOf("a")); !errors.Is(err, ranker.ErrUnavailable) || strings.Contains(err.Error(), "canary") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := s.Describe(t.Context()); !errors.Is(err, ranker.ErrUnavailable) {
		t.Errorf("nobody says the version: %v", err)
	}
}

func TestTextOfAnItem(t *testing.T) {
	var sent struct{ Texts []string }
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		ranks := make([]string, len(sent.Texts))
		for i := range ranks {
			ranks[i] = fmt.Sprintf(`{"index":%d,"score":%d}`, i, i+1)
		}
		_, _ = io.WriteString(w, "["+strings.Join(ranks, ",")+"]")
	}, func(o *httprank.Options) { o.Fields = []string{"title", "body", "tags"} })
	items := []plugin.Item{
		{Payload: json.RawMessage(`{"body":"B","title":"T","other":"O"}`)},
		{Payload: nil},
		{Payload: json.RawMessage(`{"title":null,"body":"","tags":[]}`)},
		{Payload: json.RawMessage(`{"title":7,"tags":["a",null,1.5,{"x":true}]}`)},
	}
	scores, err := s.Score(t.Context(), plugin.Query{Text: "q"}, items)
	if err != nil || scores[0] != 1 || scores[1] == scores[1] || scores[2] == scores[2] || scores[3] != 2 {
		t.Errorf("scores %v, %v", scores, err)
	}
	if want := []string{"T\nB", `7` + "\n" + `a, 1.5, {"x":true}`}; !slices.Equal(sent.Texts, want) {
		t.Errorf("sent %q, want %q", sent.Texts, want)
	}
	if _, err := s.Score(t.Context(), plugin.Query{}, items); !errors.Is(err, ranker.ErrQuery) {
		t.Errorf("a query without text: %v", err)
	}
	if _, err := s.Score(t.Context(), plugin.Query{Text: "q"}, []plugin.Item{{Payload: json.RawMessage(`[]`)}}); !errors.Is(err, ranker.ErrQuery) {
		t.Errorf("a payload that is no object: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/base/info" || r.Method != http.MethodGet {
				t.Errorf("%s %s", r.Method, r.URL.Path)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		version string
		want    plugin.Description
		err     error
	}{
		"what TEI documents": {
			answer(200, `{"model_id":"thenlper/gte-base","model_sha":"fca14538aa99","max_client_batch_size":32,"version":"0.5.0"}`), "",
			plugin.Description{Name: "thenlper/gte-base", Version: "thenlper/gte-base@fca14538aa99", MaxItems: 32}, nil,
		},
		"no commit":      {answer(200, `{"model_id":"/data/model","model_sha":null,"max_client_batch_size":32}`), "", plugin.Description{Name: "/data/model", Version: "/data/model", MaxItems: 32}, nil},
		"another server": {answer(404, `nothing here`), "", plugin.Description{Name: "tei", Version: "tei"}, nil},
		"another answer": {answer(200, `[]`), "", plugin.Description{Name: "tei", Version: "tei"}, nil},
		"starting":       {answer(503, ``), "", plugin.Description{}, ranker.ErrUnavailable},
		"busy":           {answer(429, ``), "", plugin.Description{}, ranker.ErrUnavailable},
		"starting, with a version that is configured": {answer(503, ``), "7", plugin.Description{Name: "tei", Version: "7"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.handler, func(o *httprank.Options) {
				o.URL = strings.Replace(o.URL, "/rerank", "/base/rerank", 1)
				o.Version = test.version
			})
			d, err := s.Describe(t.Context())
			if test.err == nil {
				test.want.Parallel, test.want.Text, test.want.PayloadFields = httprank.DefaultParallel, true, []string{"text"}
			}
			if !reflect.DeepEqual(d, test.want) || !errors.Is(err, test.err) {
				t.Errorf("%+v, %v; want %+v, %v", d, err, test.want, test.err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	good := httprank.Options{URL: "https://host/v2/rerank", Dialect: httprank.Cohere, Model: "m", Fields: []string{"text"}, Token: token}
	for says, change := range map[string]func(*httprank.Options){
		`dialect "bm25"`: func(o *httprank.Options) { o.Dialect = "bm25" },
		"does not parse": func(o *httprank.Options) { o.URL = "https://canary%zz" },
		"http:// or":     func(o *httprank.Options) { o.URL = "host/rerank" },
		"holds a user":   func(o *httprank.Options) { o.URL = "https://me:canary@host/rerank" },
		"model is empty": func(o *httprank.Options) { o.Model = "" },
		"fields":         func(o *httprank.Options) { o.Fields = nil },
		"the token":      func(o *httprank.Options) { o.Token = "canary\r\nHost: x" },
	} {
		o := good
		change(&o)
		if _, err := httprank.New(o); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v, want %q", err, says)
		}
	}
	s, err := httprank.New(good)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Describe(t.Context())
	if err != nil || d.Version != "cohere m" || d.Name != "m" {
		t.Errorf("%+v, %v", d, err)
	}
}

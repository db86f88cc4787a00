package embed

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/internal/jsonhttp"
)

// The forms of requests and answers, as named in the configuration.
const (
	OpenAI = "openai"
	TEI    = "tei"
)

// maxDimension is the longest vector that an answer may have.
const maxDimension = 65536

// Bounds of an answer's size.
const (
	answerBytes    = 64 << 10 // beside the vectors
	elementBytes   = 32       // a number as JSON, with a comma and some space
	usualDimension = 8192     // where the dimension is not known yet
)

// form is a format of requests and answers.
type form struct {
	named   bool // requests name the model
	request func(o Options, texts []string) any
	decode  func(answer []byte) ([]embedding, error)
}

// embedding is the result for one text.
type embedding struct {
	index  *int // nil: the results are in order
	vector vector
}

var forms = map[string]form{
	OpenAI: {true, openAIRequest, openAIEmbeddings},
	TEI:    {false, teiRequest, teiEmbeddings},
}

// formOf guesses the form from the path of a URL.
func formOf(address string) string {
	if u, err := url.Parse(address); err == nil && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/embed") {
		return TEI
	}
	return OpenAI
}

func openAIRequest(o Options, texts []string) any {
	request := struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Encoding   string   `json:"encoding_format"`
		Dimensions int      `json:"dimensions,omitempty"`
	}{Model: o.Model, Input: texts, Encoding: "float"}
	if o.Shorten {
		request.Dimensions = o.Dimension
	}
	return request
}

func teiRequest(_ Options, texts []string) any {
	return struct {
		Inputs   []string `json:"inputs"`
		Truncate bool     `json:"truncate"`
	}{texts, true}
}

func openAIEmbeddings(answer []byte) ([]embedding, error) {
	var all struct {
		Data []struct {
			Index     *int   `json:"index"`
			Embedding vector `json:"embedding"`
		} `json:"data"`
	}
	if err := jsonhttp.Decode(answer, &all); err != nil {
		return nil, err
	}
	out := make([]embedding, len(all.Data))
	for i, d := range all.Data {
		out[i] = embedding{d.Index, d.Embedding}
	}
	return out, nil
}

func teiEmbeddings(answer []byte) ([]embedding, error) {
	var all []vector
	if err := jsonhttp.Decode(answer, &all); err != nil {
		return nil, err
	}
	out := make([]embedding, len(all))
	for i, v := range all {
		out[i].vector = v
	}
	return out, nil
}

// vectors decodes an answer for n texts. Each text must have one vector of finite numbers.
func (f form) vectors(answer []byte, n int) ([][]float32, error) {
	all, err := f.decode(answer)
	if err != nil {
		return nil, err
	}
	if len(all) != n {
		return nil, fmt.Errorf("%d vectors for %d texts", len(all), n)
	}
	out := make([][]float32, n)
	for i, e := range all {
		at := i
		if e.index != nil {
			at = *e.index
		}
		switch {
		case at < 0 || at >= n:
			return nil, fmt.Errorf("vector %d has index %d of %d texts", i, at, n)
		case out[at] != nil:
			return nil, fmt.Errorf("two vectors have index %d", at)
		case len(e.vector) == 0 || len(e.vector) > maxDimension:
			return nil, fmt.Errorf("vector %d has %d elements, want 1 to %d", i, len(e.vector), maxDimension)
		}
		out[at] = e.vector
	}
	return out, nil
}

// vector decodes a JSON array of finite float32 numbers, and nothing else.
type vector []float32

// UnmarshalJSON implements json.Unmarshaler.
func (v *vector) UnmarshalJSON(data []byte) error {
	inside, ok := bytes.CutPrefix(data, []byte("["))
	inside, closed := bytes.CutSuffix(inside, []byte("]"))
	if !ok || !closed {
		return errors.New("a vector is no array of numbers")
	}
	*v = make(vector, 0, bytes.Count(inside, []byte(","))+1)
	if len(bytes.TrimSpace(inside)) == 0 {
		return nil
	}
	for element := range bytes.SplitSeq(inside, []byte(",")) {
		f, err := strconv.ParseFloat(string(bytes.TrimSpace(element)), 32)
		if err != nil {
			return fmt.Errorf("element %d of a vector is no finite float32", len(*v))
		}
		*v = append(*v, float32(f))
	}
	return nil
}

// answerBytes bounds the answer for n texts.
func (c *Client) answerBytes(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	dim := c.dim
	if dim == 0 {
		dim = usualDimension
	}
	return answerBytes + n*(dim*elementBytes+256)
}

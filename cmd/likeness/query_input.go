package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/npy"
)

// maxInput limits the length of stdin.
const maxInput = 64 << 20

// vectorFlags name the source of the query vector.
type vectorFlags struct {
	vector, file string
	row          int
}

func (f *vectorFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.vector, "vector", "", "query vector, as a JSON array")
	cmd.Flags().StringVar(&f.file, "vector-file", "", "matrix (.npy, float32 or float16) with the query vector")
	cmd.Flags().IntVar(&f.row, "row", 0, "row of --vector-file")
	cmd.MarkFlagsMutuallyExclusive("vector", "vector-file")
	_ = cmd.MarkFlagFilename("vector-file", "npy")
}

// read returns a request with the query vector of the flags or of stdin. The request has no vector
// if neither is given.
func (f *vectorFlags) read(stdin io.Reader) (*likenessv1.SearchRequest, error) {
	switch {
	case f.vector != "":
		return parseVector([]byte(f.vector))
	case f.file != "":
		return f.readRow()
	case stdin == nil:
		return request(nil), nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading stdin: %w", err)
	case len(data) > maxInput:
		return nil, usagef("stdin holds more than %d bytes; send one request", maxInput)
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil, usagef("a query vector is missing; give --vector, --vector-file, or JSON on stdin")
	}
	if data[0] == '[' {
		return parseVector(data)
	}
	r := &likenessv1.SearchRequest{}
	if err := protojson.Unmarshal(data, r); err != nil {
		return nil, usagef("stdin is neither a JSON array nor a SearchRequest: %w", err)
	}
	if r.GetQuery() == nil {
		r.Query = &likenessv1.Query{}
	}
	return r, nil
}

func parseVector(data []byte) (*likenessv1.SearchRequest, error) {
	var v []float32
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, usagef("the query vector must be a JSON array of numbers: %w", err)
	}
	return request(v), nil
}

func request(vector []float32) *likenessv1.SearchRequest {
	return &likenessv1.SearchRequest{Query: &likenessv1.Query{Vector: vector}}
}

func (f *vectorFlags) readRow() (*likenessv1.SearchRequest, error) {
	m, err := npy.OpenVectors(f.file)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if f.row < 0 || f.row >= m.Rows {
		return nil, usagef("--row %d: %s has rows 0 to %d", f.row, f.file, m.Rows-1)
	}
	return request(slices.Clone(m.Row(f.row))), nil
}

// readItemIDs converts ids of flags and the lines of a file, unless its name is empty.
func readItemIDs(ids []string, path string) ([]*likenessv1.ItemId, error) {
	if path != "" {
		lines, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(lines)) {
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				ids = append(ids, line)
			}
		}
	}
	out := make([]*likenessv1.ItemId, len(ids))
	for i, text := range ids {
		out[i] = itemID(text)
	}
	return out, nil
}

// weightedItem parses ID or ID=WEIGHT.
func weightedItem(text string) (*likenessv1.WeightedItem, error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return &likenessv1.WeightedItem{Id: itemID(text)}, nil
	}
	weight, err := strconv.ParseFloat(text[at+1:], 32)
	if err != nil {
		return nil, usagef("--item %q: %q is no weight; write ID or ID=WEIGHT", text, text[at+1:])
	}
	w := float32(weight)
	return &likenessv1.WeightedItem{Id: itemID(text[:at]), Weight: &w}, nil
}

// itemID returns the id that a text names: a number, or a text. A number in quotes is a text.
func itemID(text string) *likenessv1.ItemId {
	var quoted string
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: n}}
	} else if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Negative{Negative: n}}
	} else if json.Unmarshal([]byte(text), &quoted) == nil {
		text = quoted
	}
	return &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: text}}
}

// enumValue returns the number of an enum value, given in lower case and without its prefix, such
// as per_embedding.
func enumValue(flag, prefix, word string, values map[string]int32) (int32, error) {
	if n, ok := values[prefix+strings.ToUpper(word)]; ok && n != 0 {
		return n, nil
	}
	var known []string
	for i := int32(1); int(i) < len(values); i++ {
		for name, n := range values {
			if n == i {
				known = append(known, strings.ToLower(strings.TrimPrefix(name, prefix)))
			}
		}
	}
	return 0, usagef("--%s: %q is not one of %s", flag, word, strings.Join(known, ", "))
}

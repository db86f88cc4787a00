package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// ReadIDs reads ids: integers from .npy, a column of .parquet (FILE#NAME, by default
// "id"), and from any other file one line of text for each id. It returns ErrInput.
func ReadIDs(spec string) ([]rerank.ID, error) {
	path, name := splitSpec(spec)
	ids, err := readIDs(path, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return ids, nil
}

func readIDs(path, name string) ([]rerank.ID, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npy":
		if name != "" {
			return nil, fmt.Errorf("%s holds one array; leave out #%s", path, name)
		}
		numbers, err := npy.ReadInts(path)
		if err != nil {
			return nil, err
		}
		ids := make([]rerank.ID, len(numbers))
		for i, n := range numbers {
			ids[i] = rerank.IntID(n)
		}
		return ids, nil
	case ".parquet":
		ids, err := readParquetIDs(path, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return ids, nil
	default:
		return readTextIDs(path)
	}
}

func readTextIDs(path string) ([]rerank.ID, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ids []rerank.ID
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			return nil, fmt.Errorf("%s: line %d is empty; a file of ids has one on every line", path, len(ids)+1)
		}
		ids = append(ids, rerank.TextID(line))
	}
	return ids, nil
}

// idIndex finds rows by the text of their id, or by their row number.
type idIndex struct {
	column   string // "query" or "item", for error messages
	rows     int
	rowsByID map[string]int32 // nil if rows are named by number
	// rowsByUUID has the rows whose id is a UUID, by its usual spelling, if some id has
	// another one. A log may spell UUIDs in another way than a store.
	rowsByUUID map[string]int32
	known      string // some ids, for error messages
}

// newIDIndex rejects distinct ids with the same text, such as the string "7" and the
// number 7.
func newIDIndex(column, file string, rows int, ids []rerank.ID) (idIndex, error) {
	x := idIndex{column: column, rows: rows}
	if ids == nil {
		return x, nil
	}
	x.rowsByID = make(map[string]int32, len(ids))
	for row, id := range ids {
		text := id.String()
		if before, twice := x.rowsByID[text]; twice {
			return x, fmt.Errorf("%w: %s: rows %d and %d both have the %s id %s", ErrInput, file, before, row, column, text)
		}
		x.rowsByID[text] = int32(row)
		if usual, is := rerank.CanonicalUUID(text); is && usual != text {
			if x.rowsByUUID == nil {
				x.rowsByUUID = map[string]int32{}
			}
			x.rowsByUUID[usual] = int32(row)
		}
	}
	x.known = exampleIDs(ids)
	return x, nil
}

// find returns the row of an id.
func (x idIndex) find(text string) (row int32, ok bool) {
	if row, ok = x.rowsByID[text]; ok {
		return row, true
	}
	usual, is := rerank.CanonicalUUID(text)
	if !is {
		return 0, false
	}
	if row, ok = x.rowsByID[usual]; !ok {
		row, ok = x.rowsByUUID[usual]
	}
	return row, ok
}

// exampleIDs quotes the first, a middle and the last id.
func exampleIDs(ids []rerank.ID) string {
	if len(ids) == 0 {
		return "none"
	}
	var examples []string
	for _, at := range slices.Compact([]int{0, len(ids) / 2, len(ids) - 1}) {
		examples = append(examples, fmt.Sprintf("%.80q", ids[at].String()))
	}
	return strings.Join(examples, ", ")
}

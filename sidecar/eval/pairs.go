package eval

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Pairs are logged pairs: which items are relevant to which query.
type Pairs struct {
	relevant   [][]int32 // by query row: item rows, ascending
	duplicates int
	unknown    int
}

// NewPairs makes pairs of the item rows that are relevant to each query row. It
// keeps and sorts the slices.
func NewPairs(relevant [][]int32) *Pairs {
	p := &Pairs{relevant: relevant}
	p.sort()
	return p
}

// PairsInput describes a file of pairs.
type PairsInput struct {
	Queries, Items int // rows of the two matrices
	// ItemRow returns the row of an item id. Nil: items are given by row number.
	ItemRow func(id string) (row int, ok bool)
}

// ReadPairs reads CSV with the header "query,item": row numbers from 0, the
// items by id with in.ItemRow. A pair of an unknown id is dropped and counted,
// as is a pair given twice. It returns ErrInput, naming the line, for anything else.
func ReadPairs(r io.Reader, in PairsInput) (*Pairs, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord, rows.FieldsPerRecord, rows.TrimLeadingSpace = true, 2, true
	if err := readHeader(rows); err != nil {
		return nil, err
	}
	p := &Pairs{relevant: make([][]int32, in.Queries)}
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: pairs: %w", ErrInput, err)
		}
		if err := p.add(record, in); err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("%w: pairs: line %d: %w", ErrInput, line, err)
		}
	}
	p.sort()
	return p, nil
}

func readHeader(rows *csv.Reader) error {
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: pairs: the file is empty; the first line is \"query,item\"", ErrInput)
	}
	if err != nil {
		return fmt.Errorf("%w: pairs: %w; the first line is \"query,item\"", ErrInput, err)
	}
	name := strings.TrimPrefix(header[0], "\ufeff")
	if strings.TrimSpace(name) != "query" || strings.TrimSpace(header[1]) != "item" {
		return fmt.Errorf("%w: pairs: line 1 is %q; the first line is \"query,item\"", ErrInput, strings.Join(header, ","))
	}
	return nil
}

func (p *Pairs) add(record []string, in PairsInput) error {
	query, err := rowNumber("query", record[0], in.Queries)
	if err != nil {
		return err
	}
	var item int
	known := true
	if in.ItemRow != nil {
		item, known = in.ItemRow(record[1])
	} else {
		if item, err = rowNumber("item", record[1], in.Items); err != nil {
			err = fmt.Errorf("%w; if the file names items by id, give the ids (--item-ids)", err)
		}
	}
	if err != nil {
		return err
	}
	if !known {
		p.unknown++
		return nil
	}
	p.relevant[query] = append(p.relevant[query], int32(item))
	return nil
}

func rowNumber(column, text string, rows int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a row number", column, text)
	}
	if n < 0 || n >= rows {
		return 0, fmt.Errorf("%s is row %d; the matrix has rows 0 to %d", column, n, rows-1)
	}
	return n, nil
}

func (p *Pairs) sort() {
	for q, items := range p.relevant {
		slices.Sort(items)
		distinct := slices.Compact(items)
		p.duplicates += len(items) - len(distinct)
		p.relevant[q] = distinct
	}
}

// Relevant returns the item rows that are relevant to a query row, ascending.
func (p *Pairs) Relevant(query int) []int32 { return p.relevant[query] }

// Choose returns every nth query row that has pairs, from row 0 on, and counts
// the rest. A file ordered by answer needs this: its first rows are of one kind.
func (p *Pairs) Choose(every int) (queries []int, counts Counts) {
	counts = Counts{DuplicatePairs: p.duplicates, UnknownItems: p.unknown}
	for q, items := range p.relevant {
		switch {
		case q%max(every, 1) != 0:
			counts.QueriesSkipped++
		case len(items) == 0:
			counts.QueriesWithoutPairs++
		default:
			queries = append(queries, q)
			counts.Pairs += len(items)
		}
	}
	counts.Queries = len(queries)
	return queries, counts
}

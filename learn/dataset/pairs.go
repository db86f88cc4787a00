package dataset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of the columns of a log.
const (
	columnQuery    = "query"
	columnItem     = "item"
	columnWeight   = "weight"
	columnTime     = "time"
	columnSeen     = "seen"
	columnAnswer   = "answer"
	columnPosition = "position"
)

// entry is one row of a log, independent of the file's format.
type entry struct {
	line        int // line of the file, from 1; for Parquet, the row
	query, item string
	weight      float64
	hasWeight   bool
	time        int64 // Unix seconds
	hasTime     bool
	seen        bool // the item was seen before the query, and not chosen for it
	answer      string
	position    int32 // in the list of the answer, from 1; 0 if the log has no positions
}

const (
	// mostUnknown is the share of unknown ids above which a log is refused, because it probably
	// belongs to other vectors.
	mostUnknown  = 0.5
	shownUnknown = 3 // unknown ids in an error message
)

// progressRows is the number of log rows between two reports of progress.
const progressRows = 1 << 14

// loggedItem is one item that was chosen for a query.
type loggedItem struct {
	item   int32
	weight float32
	time   int64
}

// pairLog groups the rows of a log by query.
type pairLog struct {
	queries, items idIndex
	byQuery        [][]loggedItem
	seen           seenItems
	shown          shownItems
	chosenOrShown  int                 // rows that are not of seen items
	positioned     bool                // every such row so far has a position
	origins        []int32             // of each row that splitByTime makes, the row before; nil before
	timed          bool                // every row so far has a time
	weighted       bool                // some row has a weight, or rows are counted
	firstUnknown   string              // the first unknown id and its line
	unknown        map[string][]string // by column, the first unknown ids that differ
	counts         *Counts
	reportRows     func(n int) // reports the number of rows read
}

// readPairs reads the log. h holds the histories of the queries, or is nil if they have vectors.
func (d *Dataset) readPairs(ctx context.Context, s Sources, h *itemHistory) error {
	l := &pairLog{
		byQuery: make([][]loggedItem, d.QueryCount()), counts: &d.Counts,
		reportRows: s.Progress.begin("reading "+filepath.Base(s.Pairs), -1),
	}
	var err error
	if l.items, err = newIDIndex(columnItem, cmp.Or(s.ItemIDs, s.Items, "the collection"), d.ItemCount(), d.ItemIDs); err != nil {
		return err
	}
	if l.queries, err = newIDIndex(columnQuery, cmp.Or(s.QueryIDs, s.Queries, s.History.Path), d.QueryCount(), d.QueryIDs); err != nil {
		return err
	}
	digest, err := readLog(ctx, s.Pairs, l.counts, l.addEntry)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: pairs: %s: %w", ErrInput, s.Pairs, err)
	}
	if err := l.check(); err != nil {
		return fmt.Errorf("%w: pairs: %s: %w", ErrInput, s.Pairs, err)
	}
	l.seen.timed = l.timed // of rows of the log itself
	var seen digestedSource
	if s.Seen != "" {
		if l.seen.rows > 0 {
			return fmt.Errorf("%w: pairs: %s: it has seen items, and %s too; give one of them", ErrInput, s.Pairs, s.Seen)
		}
		if seen, err = l.readSeen(ctx, s); err != nil {
			return err
		}
	}
	if l.shown.isKnown() && h != nil {
		return fmt.Errorf("%w: pairs: %s: it has positions, which say nothing about queries made of a history; leave the column out or give query vectors", ErrInput, s.Pairs)
	}
	if d.Answers, err = l.shown.listAnswers(); err != nil {
		return fmt.Errorf("%w: pairs: %s: %w", ErrInput, s.Pairs, err)
	}
	if l.countSeveralTimes() > 0 && !l.shown.isKnown() && (s.RowPerTime || h != nil && h.timed) { // a history is another one at every time
		if err := l.splitByTime(d); err != nil {
			return err
		}
	}
	l.weighted = l.weighted || s.CountRows && !l.shown.isKnown()
	l.fillDataset(d)
	l.fillSeen(d)
	if h != nil {
		if err := h.fill(d, l.origins); err != nil {
			return err
		}
	}
	d.sources = append(d.sources, digestedSource{"pairs", filepath.Base(s.Pairs), func() (string, error) { return digest, nil }})
	if s.Seen != "" {
		d.sources = append(d.sources, seen)
	}
	return nil
}

// readLog passes every row of a log to add and returns the file's digest.
func readLog(ctx context.Context, path string, counts *Counts, add func(entry) error) (string, error) {
	ext := strings.ToLower(filepath.Ext(path))
	if ext == ".parquet" {
		if err := readParquetPairs(ctx, path, counts, add); err != nil {
			return "", err
		}
		return FileDigest(path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	r := &hashingReader{ctx: ctx, r: file, hash: sha256.New()}
	switch ext {
	case ".jsonl", ".ndjson":
		err = readJSONL(r, counts, add)
	default:
		err = readCSV(r, counts, add)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(r.hash.Sum(nil)), nil
}

// hashingReader is a reader that hashes what it reads and stops when its context ends.
type hashingReader struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call of readLog
	r    io.Reader
	hash hash.Hash
}

func (h *hashingReader) Read(b []byte) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := h.r.Read(b)
	h.hash.Write(b[:n])
	return n, err
}

// addEntry records a row of the log. Its error does not name the line.
func (l *pairLog) addEntry(e entry) error {
	if l.counts.Rows > 0 && e.hasTime != l.timed {
		return errors.New("some rows have a time and some have none; give all of them one, or none")
	}
	if l.counts.Rows++; l.counts.Rows%progressRows == 0 {
		l.reportRows(progressRows)
	}
	l.timed = e.hasTime
	if e.seen {
		return l.addSeen(e)
	}
	if l.chosenOrShown++; l.chosenOrShown > 1 && (e.position > 0) != l.positioned {
		return errors.New("some rows have a position and some have none; give all of them one, or none")
	}
	l.positioned = e.position > 0
	l.weighted = l.weighted || e.hasWeight
	weight := 1.0
	if e.hasWeight {
		weight = e.weight
	}
	if math.IsNaN(weight) || weight < 0 || weight > math.MaxFloat32 {
		return fmt.Errorf("weight is %v; want 0 to %g", weight, math.MaxFloat32)
	}
	query, err := l.findRow(l.queries, e.query, e.line, &l.counts.UnknownQueries)
	if err != nil || query < 0 {
		return err
	}
	item, err := l.findRow(l.items, e.item, e.line, &l.counts.UnknownItems)
	if err != nil || item < 0 {
		return err
	}
	if e.position > 0 {
		if err := l.shown.add(e, query, item, float32(weight)); err != nil {
			return err
		}
	}
	if float32(weight) == 0 {
		if e.position > 0 {
			l.counts.Shown++
		} else {
			l.counts.ZeroWeights++
		}
		return nil
	}
	l.byQuery[query] = append(l.byQuery[query], loggedItem{item: item, weight: float32(weight), time: e.time})
	return nil
}

// findRow returns the row of an id. For an unknown id it returns −1 and increments
// unknown.
func (l *pairLog) findRow(x idIndex, text string, line int, unknown *int) (int32, error) {
	if x.rowsByID == nil {
		return x.parseRow(text)
	}
	row, ok := x.find(text)
	if ok {
		return row, nil
	}
	if text == "" {
		return 0, fmt.Errorf("%s is empty", x.column)
	}
	if *unknown++; l.firstUnknown == "" {
		l.firstUnknown = fmt.Sprintf("%s %q of line %d", x.column, text, line)
	}
	if first := l.unknown[x.column]; len(first) < shownUnknown {
		if shown := fmt.Sprintf("%.80q", text); !slices.Contains(first, shown) {
			if l.unknown == nil {
				l.unknown = map[string][]string{}
			}
			l.unknown[x.column] = append(first, shown)
		}
	}
	return -1, nil
}

// parseRow parses a row number.
func (x idIndex) parseRow(text string) (int32, error) {
	remedy := fmt.Sprintf("if the file names %s by id, give the ids (--%s-ids)", pluralOf(x.column), x.column)
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %.80q is not a row number; %s", x.column, text, remedy)
	}
	if n < 0 || n >= int64(x.rows) {
		if x.column == columnQuery {
			remedy += ", and see that the columns query and item are not swapped"
		}
		return 0, fmt.Errorf("%s is row %d; the matrix has rows 0 to %d; %s", x.column, n, x.rows-1, remedy)
	}
	return int32(n), nil
}

// example says how the known ids look, or nothing if none are known.
func (x idIndex) example() string {
	if x.known == "" {
		return ""
	}
	return fmt.Sprintf("; the %s have ids as %s", pluralOf(x.column), x.known)
}

func pluralOf(column string) string {
	if column == columnQuery {
		return "queries"
	}
	return column + "s"
}

// parseSeen parses a mark of a seen item.
func parseSeen(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	seen, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("seen is %.80q; want true, false, 1 or 0", text)
	}
	return seen, nil
}

// parseTime converts RFC 3339, Unix seconds or Unix milliseconds to Unix seconds. It
// tells seconds and milliseconds apart by size.
func parseTime(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return unixTime(n)
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("time %.80q is neither an integer of Unix seconds or milliseconds nor RFC 3339, as 2026-01-31T12:00:00Z", text)
	}
	return t.Unix(), nil
}

// unixTime takes numbers up to the year 5138 for seconds, and greater ones, from March
// 1973 on, for milliseconds.
func unixTime(n int64) (int64, error) {
	const limit = 1e11
	switch {
	case n > -limit && n < limit:
		return n, nil
	case n > -1000*limit && n < 1000*limit:
		return int64(math.Floor(float64(n) / 1000)), nil
	default:
		return 0, fmt.Errorf("time %d is too large for Unix milliseconds; divide it", n)
	}
}

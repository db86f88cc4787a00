package relevance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/plugin"
)

// ErrCache: the folder of kept scores is in use, damaged beyond use, or of something else.
var ErrCache = errors.New("kept scores cannot be used")

// syncEvery is how much a loss of power costs at most; the end of a process costs nothing.
const syncEvery = time.Second

// absent marks a score that is not kept; a NaN that a ranker gave is another one.
const absent = 0x7fc0_ab5e

// cache is the scores that a ranker of one version gave, in a file that only grows
// and in memory: 4 bytes a score and some 40 an item. It is safe for concurrent use,
// of one process at a time.
type cache struct {
	path string
	lock *filelock.Lock
	file disk.File

	mu      sync.Mutex
	size    int64
	synced  time.Time
	rows    map[key]int32     // items by number
	columns map[key][]float32 // of queries, by item
	kept    int64
	lost    int64 // bytes that were no record
	failed  error // of a write: nothing is written behind it
}

// openCache opens what is kept of a ranker in dir, which it makes if need be. Other
// versions have files of their own there. It returns ErrCache.
func openCache(on disk.Disk, dir string, d plugin.Description) (_ *cache, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCache, err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w; wait for it, or name another folder with --cache", ErrCache, err)
	}
	c := &cache{lock: lock, rows: map[key]int32{}, columns: map[key][]float32{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: %w", ErrCache, err), c.close())
		}
	}()
	head, err := header(d)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(d.Name + "\x00" + d.Version))
	c.path = filepath.Join(dir, hex.EncodeToString(sum[:keySize])+".scores")
	if _, err := os.Lstat(c.path); errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.WriteOn(on, c.path, func(w io.Writer) error { _, err := w.Write(head); return err }); err != nil {
			return nil, err
		}
	}
	if c.file, err = on.OpenFile(c.path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	return c, c.load(head)
}

// load reads what is there, and cuts off the end that a crash left half written.
func (c *cache) load(head []byte) error {
	have := make([]byte, len(head))
	if _, err := c.file.ReadAt(have, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(have, head) {
		return fmt.Errorf("%s does not begin as scores of this ranker do; remove it, and they are asked for again", c.path)
	}
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	end, lost, err := scan(c.file, int64(len(head)), info.Size(), c.add)
	if err != nil {
		return err
	}
	c.size, c.lost, c.synced = end, lost, time.Now()
	if end == info.Size() {
		return nil
	}
	return c.file.Truncate(end)
}

// add takes a record into memory; a later score of a pair counts.
func (c *cache) add(r record) {
	for i := range r.len() {
		item, score := r.entry(i)
		c.set(r.query, c.number(item), score)
	}
}

// number is an item's; the caller holds the lock, or is alone.
func (c *cache) number(item key) int32 {
	n, ok := c.rows[item]
	if !ok {
		n = int32(len(c.rows))
		c.rows[item] = n
	}
	return n
}

func (c *cache) set(query key, row int32, score float32) {
	column := c.columns[query]
	for len(column) <= int(row) {
		column = append(column, math.Float32frombits(absent))
	}
	if math.Float32bits(column[row]) == absent {
		c.kept++
	}
	if score != score {
		score = float32(math.NaN())
	}
	column[row] = score
	c.columns[query] = column
}

// numbers are those of items, for get.
func (c *cache) numbers(items []key) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := make([]int32, len(items))
	for i, item := range items {
		rows[i] = c.number(item)
	}
	return rows
}

// get calls yield with the scores of a query that are kept, by their place in rows,
// and returns the places of the others.
func (c *cache) get(query key, rows []int32, yield func(at int, score float32)) (missing []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	column := c.columns[query]
	for at, row := range rows {
		if int(row) >= len(column) || math.Float32bits(column[row]) == absent {
			missing = append(missing, at)
			continue
		}
		yield(at, column[row])
	}
	return missing
}

// put keeps what the ranker said. Behind an error nothing more is kept.
func (c *cache) put(query key, items []key, scores []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	var b []byte
	for from := 0; from < len(items); from += maxEntries {
		to := min(from+maxEntries, len(items))
		b = appendRecord(b, query, items[from:to], scores[from:to])
	}
	_, err := c.file.WriteAt(b, c.size)
	if err == nil && time.Since(c.synced) > syncEvery {
		err = c.file.Sync()
		c.synced = time.Now()
	}
	if err != nil {
		c.failed = fmt.Errorf("%w: writing %s: %w", ErrCache, c.path, err)
		return c.failed
	}
	c.size += int64(len(b))
	for i, item := range items {
		c.set(query, c.number(item), scores[i])
	}
	return nil
}

// close makes what is kept last, and lets another process have it.
func (c *cache) close() error {
	var failed []error
	if c.file != nil {
		failed = append(failed, c.file.Sync(), c.file.Close())
	}
	failed = append(failed, c.lock.Close())
	c.file = nil
	return errors.Join(failed...)
}

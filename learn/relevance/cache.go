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

// ErrCache means that the folder of stored scores is in use, is damaged beyond use, or
// belongs to something else.
var ErrCache = errors.New("kept scores cannot be used")

// syncEvery is the most work that a loss of power can undo. The end of the process
// loses nothing.
const syncEvery = time.Second

// absent is the bit pattern of a score that is not stored. A NaN from a ranker has
// another pattern.
const absent = 0x7fc0_ab5e

// scoreCache holds the scores of one version of a ranker, in an append-only file and in
// memory, at 4 bytes for each score and about 40 for each item. It is safe for
// concurrent use, by one process at a time.
type scoreCache struct {
	path string
	lock *filelock.Lock
	file disk.File

	mu           sync.Mutex
	size         int64
	synced       time.Time
	itemNumberOf map[key]int32     // number of each item
	scores       map[key][]float32 // scores of each query, at the item's number
	storedScores int64
	lostBytes    int64 // bytes of the file that are not valid records
	writeError   error // a failed write, after which nothing more is written
}

// openCache opens the stored scores of a ranker in dir, creating the directory and
// file if need be. Each version of a ranker has a file of its own. It returns
// ErrCache.
func openCache(on disk.Disk, dir string, d plugin.Description) (_ *scoreCache, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCache, err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w; wait for it, or name another folder with --cache", ErrCache, err)
	}
	c := &scoreCache{lock: lock, itemNumberOf: map[key]int32{}, scores: map[key][]float32{}}
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

// load reads the file and truncates a record at the end that a crash left incomplete.
func (c *scoreCache) load(head []byte) error {
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
	end, lost, err := scanRecords(c.file, int64(len(head)), info.Size(), c.addRecord)
	if err != nil {
		return err
	}
	c.size, c.lostBytes, c.synced = end, lost, time.Now()
	if end == info.Size() {
		return nil
	}
	return c.file.Truncate(end)
}

// addRecord copies a record into memory. A later score of a pair replaces an earlier
// score.
func (c *scoreCache) addRecord(r record) {
	for i := range r.len() {
		item, score := r.entry(i)
		c.setScore(r.query, c.itemNumber(item), score)
	}
}

// itemNumber returns the number of an item, assigning the next if the item is new. The
// caller must hold mu, or be the only user.
func (c *scoreCache) itemNumber(item key) int32 {
	n, ok := c.itemNumberOf[item]
	if !ok {
		n = int32(len(c.itemNumberOf))
		c.itemNumberOf[item] = n
	}
	return n
}

func (c *scoreCache) setScore(query key, row int32, score float32) {
	column := c.scores[query]
	for len(column) <= int(row) {
		column = append(column, math.Float32frombits(absent))
	}
	if math.Float32bits(column[row]) == absent {
		c.storedScores++
	}
	if score != score {
		score = float32(math.NaN())
	}
	column[row] = score
	c.scores[query] = column
}

// itemNumbers returns the numbers of items, for get.
func (c *scoreCache) itemNumbers(items []key) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := make([]int32, len(items))
	for i, item := range items {
		rows[i] = c.itemNumber(item)
	}
	return rows
}

// get calls yield with each stored score of a query and its index in rows. It returns
// the indexes without a stored score.
func (c *scoreCache) get(query key, rows []int32, yield func(at int, score float32)) (missing []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	column := c.scores[query]
	for at, row := range rows {
		if int(row) >= len(column) || math.Float32bits(column[row]) == absent {
			missing = append(missing, at)
			continue
		}
		yield(at, column[row])
	}
	return missing
}

// put stores scores from the ranker. After a failed write it only returns that error.
func (c *scoreCache) put(query key, items []key, scores []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeError != nil {
		return c.writeError
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
		c.writeError = fmt.Errorf("%w: writing %s: %w", ErrCache, c.path, err)
		return c.writeError
	}
	c.size += int64(len(b))
	for i, item := range items {
		c.setScore(query, c.itemNumber(item), scores[i])
	}
	return nil
}

// close syncs the file and releases the lock, so that another process can open the
// cache.
func (c *scoreCache) close() error {
	var failed []error
	if c.file != nil {
		failed = append(failed, c.file.Sync(), c.file.Close())
	}
	failed = append(failed, c.lock.Close())
	c.file = nil
	return errors.Join(failed...)
}

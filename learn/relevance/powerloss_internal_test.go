package relevance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/plugin"
)

var someRanker = plugin.Description{Name: "ranker", Version: "1"}

func openOn(t *testing.T, d *powerloss.Disk) *scoreCache {
	t.Helper()
	c, err := openCache(d, filepath.Join(d.Root(), "cache"), someRanker)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scoreOf is the score of an item for a query.
func scoreOf(query, item int) float32 { return float32(100*query + item) }

const itemsPerQuery = 30

// putQuery keeps the scores of a query for all items.
func putQuery(t *testing.T, c *scoreCache, query int) {
	t.Helper()
	items, scores := make([]key, itemsPerQuery), make([]float32, itemsPerQuery)
	for i := range items {
		items[i], scores[i] = key{byte(i), 1}, scoreOf(query, i)
	}
	if err := c.put(key{byte(query)}, items, scores); err != nil {
		t.Fatal(err)
	}
}

// keptQueries opens the content of a disk and returns the queries with all scores. A score that
// differs from the ranker's fails the test.
func keptQueries(t *testing.T, d *powerloss.Disk, queries int) (kept []int) {
	t.Helper()
	c := openOn(t, d)
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	items := make([]key, itemsPerQuery)
	for i := range items {
		items[i] = key{byte(i), 1}
	}
	rows := c.itemNumbers(items)
	for query := range queries {
		missing := c.get(key{byte(query)}, rows, func(at int, score float32) {
			if score != scoreOf(query, at) {
				t.Errorf("query %d: the score of item %d is %v", query, at, score)
			}
		})
		switch len(missing) {
		case 0:
			kept = append(kept, query)
		case len(rows):
		default:
			t.Errorf("query %d: %d of %d scores are missing, though one record has all", query, len(missing), len(rows))
		}
	}
	return kept
}

// TestPowerLoss loses power before every call to the disk: what is left can be opened,
// holds nothing that the ranker did not say, and lacks a second's scores at most.
func TestPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, rng, durable := powerloss.New(t), rand.New(rand.NewPCG(uint64(loss), 2)), 0
				check := func(at string) {
					t.Helper()
					if n := len(keptQueries(t, d.Lose(t, rng, loss), 50)); n < durable {
						t.Fatalf("%s: the scores of %d queries are left, want %d at least", at, n, durable)
					}
				}
				syncs := 0
				d.Before(func(call string) {
					check(call)
					if strings.HasPrefix(call, "sync") {
						syncs++
					}
				})
				c := openOn(t, d)
				before := syncs
				for query := range 8 {
					putQuery(t, c, query)
					check("kept")
				}
				if syncs != before {
					t.Errorf("8 batches within a second waited for the disk %d times", syncs-before)
				}
				putQuery(t, c, 7)
				if want := int64(8 * itemsPerQuery); c.storedScores != want {
					t.Errorf("%d scores are said to be kept, want %d", c.storedScores, want)
				}
				<-time.After(syncEvery + 1)
				putQuery(t, c, 8)
				syncs = 0
				putQuery(t, c, 8)
				if syncs != 0 {
					t.Errorf("a batch right behind a sync was synced")
				}
				durable = 9
				check("a second later")
				putQuery(t, c, 9)
				check("behind it")
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
				durable = 10
				check("closed")
				c = openOn(t, d)
				putQuery(t, c, 10)
				check("opened again")
				<-time.After(2 * syncEvery)
				check("and left alone")
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
				durable = 11
				check("closed again")
			})
		})
	}
}

// fullDisk is the operating system's, on which nothing can be written at times.
type fullDisk struct {
	disk.OS
	full   bool
	unread error // of every question for a file's size
}

type fullFile struct {
	disk.File
	disk *fullDisk
}

func (d *fullDisk) OpenFile(path string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(path, flag, perm)
	return &fullFile{f, d}, err
}

func (f *fullFile) Stat() (os.FileInfo, error) {
	if f.disk.unread != nil {
		return nil, f.disk.unread
	}
	return f.File.Stat()
}

// WriteAt writes half of the bytes.
func (f *fullFile) WriteAt(b []byte, at int64) (int, error) {
	if !f.disk.full {
		return f.File.WriteAt(b, at)
	}
	n, _ := f.File.WriteAt(b[:len(b)/2], at)
	return n, os.ErrDeadlineExceeded
}

// TestUnreadableFile: stored scores that cannot be read are not taken for none.
func TestUnreadableFile(t *testing.T) {
	d := &fullDisk{unread: os.ErrDeadlineExceeded}
	if _, err := openCache(d, t.TempDir(), someRanker); !errors.Is(err, ErrCache) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a file of unknown size: %v", err)
	}
}

// TestFailedWrite: scores that could not be written are not kept, and nothing is written after
// their remains. The next process keeps the scores before them.
func TestFailedWrite(t *testing.T) {
	dir, d := t.TempDir(), &fullDisk{}
	c, err := openCache(d, dir, someRanker)
	if err != nil {
		t.Fatal(err)
	}
	putQuery(t, c, 0)
	d.full = true
	if err := c.put(key{1}, []key{{1}}, []float32{1}); err == nil {
		t.Error("a write that failed is not reported")
	}
	if missing := c.get(key{1}, c.itemNumbers([]key{{1}}), func(int, float32) {}); len(missing) != 1 {
		t.Error("a score that could not be written is kept")
	}
	d.full = false
	if err := c.put(key{2}, []key{{1}}, []float32{1}); err == nil {
		t.Error("a score is written behind what is left of another")
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.path)
	if err != nil {
		t.Fatal(err)
	}
	c, err = openCache(disk.OS{}, dir, someRanker)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(c.path); err != nil || info.Size() != c.size {
		t.Errorf("what is left of the failed write stays: %d bytes, want %d; %v", info.Size(), c.size, err)
	}
	if c.storedScores != itemsPerQuery || c.lostBytes != 0 || c.size >= info.Size() {
		t.Errorf("%d scores are kept and %d bytes lost, the file has %d bytes and had %d", c.storedScores, c.lostBytes, c.size, info.Size())
	}
	putQuery(t, c, 3)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(c.path); err != nil || info.Size() != c.size {
		t.Errorf("the file has %d bytes, want %d; %v", info.Size(), c.size, err)
	}
}

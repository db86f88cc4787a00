package calibrate

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// journal keeps the answers of a calibration under way, in memory and in a file: a line
// that names the calibration, and a line of JSON for each entry. It is safe for concurrent
// use.
type journal struct {
	path string
	file *os.File // nil: in memory only

	mu      sync.Mutex
	answers map[int][]answered
	exacts  map[int]exactAnswer
}

// entry has answers to one query.
type entry struct {
	Query   int        `json:"query"`
	Answers []answered `json:"answers,omitempty"`
	// Exact is the exact answer, if Scanned says that the collection was read for it.
	Exact   []exactHit `json:"exact,omitempty"`
	Scanned bool       `json:"scanned,omitempty"`
	Epsilon float32    `json:"epsilon,omitempty"`
}

type exactHit struct {
	ID    rerank.ID `json:"id"`
	Score float32   `json:"score"`
}

func exactEntry(n int, a exactAnswer) entry {
	e := entry{Query: n, Scanned: true, Epsilon: a.epsilon}
	for _, s := range a.top {
		e.Exact = append(e.Exact, exactHit{s.ID, s.Score})
	}
	return e
}

type journalHeader struct {
	Calibration string `json:"calibration"`
}

// fingerprint hashes everything that the answers depend on.
func (r *run) fingerprint() string {
	d := sha256.New()
	head, _ := json.Marshal([]any{r.route.Name, r.route.StoreName, r.route.Collection, r.route.Vector, r.route.Model.Version, r.route.Placement,
		r.route.Companion, r.route.ExactSearch, r.Promise.K, r.rules, comparableSettings(r.settings), len(r.Queries), len(r.HeldOut), r.rows})
	d.Write(head)
	for n, seen := range r.seen {
		for _, id := range seen.ids() {
			_, _ = fmt.Fprintf(d, "%d %s\n", n, id)
		}
	}
	for _, q := range slices.Concat(r.Queries, r.HeldOut) {
		_ = json.NewEncoder(d).Encode([]any{q}) // finite numbers, and a hash takes everything
	}
	return hex.EncodeToString(d.Sum(nil))
}

// newJournal returns an empty journal that is kept in memory alone.
func newJournal() *journal {
	return &journal{answers: map[int][]answered{}, exacts: map[int]exactAnswer{}}
}

// openJournal opens the journal of the calibration with a fingerprint. It empties the
// journal of another calibration, and cuts off an incomplete line.
func openJournal(path, fingerprint string) (*journal, error) {
	j := newJournal()
	if path == "" {
		return j, nil
	}
	j.path = path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	valid := j.replay(old, fingerprint)
	if j.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	if err := j.file.Truncate(int64(valid)); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	if _, err := j.file.Seek(int64(valid), 0); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	if valid > 0 {
		return j, nil
	}
	return j, j.line(journalHeader{fingerprint})
}

// replay takes the entries of a journal, up to the first line that is damaged. It returns
// the length of the lines before that; 0: it is the journal of another calibration.
func (j *journal) replay(old []byte, fingerprint string) (valid int) {
	lines := bufio.NewReader(bytes.NewReader(old))
	for first := true; ; first = false {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return valid
		}
		if first {
			var h journalHeader
			if json.Unmarshal(line, &h) != nil || h.Calibration != fingerprint {
				return 0
			}
		} else {
			var e entry
			if json.Unmarshal(line, &e) != nil {
				return valid
			}
			j.take(e)
		}
		valid += len(line)
	}
}

func (j *journal) take(e entry) {
	j.answers[e.Query] = append(j.answers[e.Query], e.Answers...)
	if e.Scanned {
		a := exactAnswer{epsilon: e.Epsilon}
		for _, h := range e.Exact {
			a.top = append(a.top, rerank.Scored{ID: h.ID, Score: h.Score})
		}
		j.exacts[e.Query] = a
	}
}

// write adds entries, each with one write to the file.
func (j *journal) write(entries ...entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.take(e)
		if j.file == nil {
			continue
		}
		if err := j.line(e); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("writing the calibration's journal: %w", err)
	}
	return nil
}

// answer returns the answer to query n at a depth.
func (j *journal) answer(n, depth int) (answered, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.answers[n] {
		if a.Depth == depth {
			return a, true
		}
	}
	return answered{}, false
}

func (j *journal) exact(n int) (exactAnswer, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a, ok := j.exacts[n]
	return a, ok
}

// Close leaves the file for another run.
func (j *journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// remove removes the file of a finished calibration.
func (j *journal) remove() error {
	if j.path == "" {
		return nil
	}
	return os.Remove(j.path)
}

// comparableSettings returns the index settings without those that a store changes by
// itself.
func comparableSettings(settings map[string]string) map[string]string {
	out := maps.Clone(settings)
	maps.DeleteFunc(out, func(name, _ string) bool { return name == "collection.segments" || name == "companion.segments" })
	return out
}

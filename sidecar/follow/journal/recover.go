package journal

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/likenessdb/likeness/internal/record"
)

// recovery collects the writes of the segments.
type recovery struct {
	books
	dir    string
	writes map[uint64]Write
	done   []uint64
	damage []error
	before uint64 // the number of the last write before the oldest segment
	last   uint64 // the number of the last write that was read
}

// recoverFrom reads all segments of a folder. damage is ErrDamaged, or nil.
func recoverFrom(dir string) (found books, entries []Entry, damage, err error) {
	numbers, err := listSegments(dir)
	if err != nil {
		return found, nil, nil, err
	}
	r := &recovery{books: newBooks(), dir: dir, writes: map[uint64]Write{}}
	for _, n := range numbers {
		if err := r.readSegment(n); err != nil {
			return found, nil, nil, err
		}
	}
	for _, seq := range r.done {
		r.remove(seq)
	}
	for seq := range r.pending {
		entries = append(entries, Entry{seq, r.writes[seq]})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(r.damage) > 0 {
		damage = fmt.Errorf("%w, and any write may be missing: %w", ErrDamaged, errors.Join(r.damage...))
	}
	return r.books, entries, damage, nil
}

// readSegment reads one file.
func (r *recovery) readSegment(number uint64) error {
	s := &segment{number: number, path: segmentPath(r.dir, number)}
	b, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	s.size = int64(len(b))
	r.number, r.segments = number+1, append(r.segments, s)
	durable, err := parseHeader(b)
	if errors.Is(err, errVersion) {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	at := segmentHeader
	if err == nil {
		r.checkComplete(durable)
	} else {
		at = 0 // records follow a damaged header, but not a header that was cut off by a crash
		if len(r.segments) == 1 {
			r.before = math.MaxUint64
		}
	}
	c := record.ReadAll(b, at)
	for _, at := range c.Damage {
		r.noteDamage(s, at, "not a complete record")
	}
	for _, p := range c.Records {
		r.addRecord(s, p)
	}
	s.end = max(c.End, segmentHeader)
	return nil
}

// checkComplete notes damage if the segments before this one lack the write that, by this one's
// header, was acknowledged last before it.
func (r *recovery) checkComplete(durable uint64) {
	r.next, r.durable = max(r.next, durable+1), max(r.durable, durable)
	if len(r.segments) == 1 {
		r.before = durable
		return
	}
	if s := r.segments[len(r.segments)-2]; durable > r.before && r.last < durable {
		r.noteDamage(s, s.size, fmt.Sprintf("write %d is missing", durable))
	}
}

func (r *recovery) noteDamage(s *segment, at int64, what string) {
	r.damage = append(r.damage, fmt.Errorf("%s at byte %d: %s", s.path, at, what))
}

// addRecord adds a write to the books, or notes that one is done.
func (r *recovery) addRecord(s *segment, p record.Placed) {
	if _, ok := nextSegment(p.Record); ok {
		s.sealed = true
		return
	}
	r.next = max(r.next, p.Number+1)
	if len(p.Body) == 0 {
		r.done = append(r.done, p.Number)
		return
	}
	r.last, r.durable = max(r.last, p.Number), max(r.durable, p.Number)
	w, err := parseWrite(p.Record)
	if err != nil {
		r.noteDamage(s, p.At, err.Error())
		return
	}
	r.remove(p.Number) // of a write that compaction copied, the newest copy counts
	r.add(p.Number, location{s, int64(len(p.Raw))})
	r.writes[p.Number] = w
}

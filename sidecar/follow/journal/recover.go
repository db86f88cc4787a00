package journal

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// recovery is what reading the segments finds.
type recovery struct {
	books
	dir    string
	writes map[uint64]Write
	done   []uint64
	damage []error
	before uint64 // the last write before the oldest segment
	last   uint64 // the last write that was read
}

// recoverFrom reads all segments of a directory. damage is ErrDamaged, or nil.
func recoverFrom(dir string) (found books, entries []Entry, damage, err error) {
	numbers, err := listSegments(dir)
	if err != nil {
		return found, nil, nil, err
	}
	r := &recovery{books: newBooks(), dir: dir, writes: map[uint64]Write{}}
	for _, n := range numbers {
		if err := r.segment(n); err != nil {
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
		damage = fmt.Errorf("%w, and what it lost is not known: %w", ErrDamaged, errors.Join(r.damage...))
	}
	return r.books, entries, damage, nil
}

// segment reads one file.
func (r *recovery) segment(number uint64) error {
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
		r.continues(durable)
	} else {
		at = 0 // behind a damaged header there are records, behind one that was being written none
		if len(r.segments) == 1 {
			r.before = math.MaxUint64
		}
	}
	c := read(b, at)
	for _, at := range c.damage {
		r.damaged(s, at, "not a whole record")
	}
	for _, p := range c.records {
		r.record(s, p)
	}
	return nil
}

// continues: the segments before have all that was acknowledged before.
func (r *recovery) continues(durable uint64) {
	r.next, r.durable = max(r.next, durable+1), max(r.durable, durable)
	if len(r.segments) == 1 {
		r.before = durable
		return
	}
	if s := r.segments[len(r.segments)-2]; durable > r.before && r.last < durable {
		r.damaged(s, s.size, fmt.Sprintf("write %d is missing", durable))
	}
}

func (r *recovery) damaged(s *segment, at int64, what string) {
	r.damage = append(r.damage, fmt.Errorf("%s at byte %d: %s", s.path, at, what))
}

func (r *recovery) record(s *segment, p placed) {
	r.next = max(r.next, p.seq+1)
	if len(p.body) == 0 {
		r.done = append(r.done, p.seq)
		return
	}
	r.last, r.durable = max(r.last, p.seq), max(r.durable, p.seq)
	w, err := p.write()
	if err != nil {
		r.damaged(s, p.at, err.Error())
		return
	}
	r.remove(p.seq) // the copy of a write that was carried over counts
	r.add(p.seq, place{s, int64(len(p.raw))})
	r.writes[p.seq] = w
}

package gpu

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/plugin/device"
)

// Survivors contains the best rows of a job, in no order. A row is better than another if
// its score is higher, or the same and its number is lower. Rows whose score is not finite
// are the worst.
type Survivors struct {
	Rows   []uint32
	Scores []float32
	// Next is the score of the best row that was not returned. It is −Inf if every row was
	// returned or that score is not finite.
	Next float32
	// Scored counts the rows of the job, NotFinite those whose score is not finite.
	Scored, NotFinite int
}

// Len implements sort.Interface, which sorts the best entry first.
func (f *Survivors) Len() int { return len(f.Rows) }

// Less reports whether entry i is better than entry j.
func (f *Survivors) Less(i, j int) bool {
	a, b := f.Scores[i], f.Scores[j]
	switch {
	case finite(a) != finite(b):
		return finite(a)
	case finite(a) && a != b:
		return a > b
	default:
		return f.Rows[i] < f.Rows[j]
	}
}

// Swap exchanges two entries.
func (f *Survivors) Swap(i, j int) {
	f.Rows[i], f.Rows[j] = f.Rows[j], f.Rows[i]
	f.Scores[i], f.Scores[j] = f.Scores[j], f.Scores[i]
}

// BestFirst moves the n best entries to the front, in no order. It takes time in proportion
// to the number of entries.
func (f *Survivors) BestFirst(n int) {
	if n <= 0 || n >= len(f.Rows) {
		return
	}
	var keys [maxKeys]uint64
	if f.encode(keys[:]) {
		selectKeys(keys[:len(f.Rows)], n)
		f.decode(keys[:len(f.Rows)])
		return
	}
	f.selectEntries(n)
}

// maxKeys is the most entries that BestFirst sorts as numbers.
const maxKeys = 1024

// encode writes each entry as a number that is smaller for a better entry: the bits of the
// score, in descending order, and then the row. It reports false if there are too many
// entries or a score is not finite.
func (f *Survivors) encode(keys []uint64) bool {
	if len(f.Rows) > len(keys) {
		return false
	}
	for i, x := range f.Scores {
		if !finite(x) {
			return false
		}
		bits := math.Float32bits(x + 0) // −0 becomes 0
		if bits>>31 == 0 {
			bits = ^bits &^ (1 << 31)
		}
		keys[i] = uint64(bits)<<32 | uint64(f.Rows[i])
	}
	return true
}

// decode reads entries that encode wrote.
func (f *Survivors) decode(keys []uint64) {
	for i, key := range keys {
		bits := uint32(key >> 32)
		if bits>>31 == 0 {
			bits = ^bits &^ (1 << 31)
		}
		f.Rows[i], f.Scores[i] = uint32(key), math.Float32frombits(bits)
	}
}

// selectKeys moves the n smallest keys to the front. Its inner loop has no branch that
// depends on the keys, which no processor could predict.
func selectKeys(keys []uint64, n int) {
	for low, high := 0, len(keys)-1; n > low && n <= high; {
		a, b, c := keys[low], keys[low+(high-low)/2], keys[high]
		pivot := max(min(a, b), min(max(a, b), c))
		at := low
		for i := low; i <= high; i++ {
			x := keys[i]
			keys[i], keys[at] = keys[at], x
			smaller := 0
			if x <= pivot {
				smaller = 1
			}
			at += smaller
		}
		// keys[low:at] are at most the pivot, which is one of them, because keys differ.
		switch {
		case at == n:
			return
		case at < n:
			low = at
		default:
			last := at - 1
			for i := low; i < last; i++ { // the pivot goes behind the smaller ones
				if keys[i] == pivot {
					keys[i], keys[last] = keys[last], pivot
					break
				}
			}
			if last == n {
				return
			}
			high = last - 1
		}
	}
}

// selectEntries is BestFirst for entries of any number and score.
func (f *Survivors) selectEntries(n int) {
	for low, high := 0, len(f.Rows)-1; n > low && n <= high; {
		// Partition low to high around the median of three entries, which ends at `at`.
		middle := low + (high-low)/2
		if f.Less(middle, low) {
			f.Swap(middle, low)
		}
		if f.Less(high, low) {
			f.Swap(high, low)
		}
		if f.Less(high, middle) {
			f.Swap(high, middle)
		}
		f.Swap(middle, high)
		at := low
		for i := low; i < high; i++ {
			if f.Less(i, high) {
				f.Swap(i, at)
				at++
			}
		}
		f.Swap(at, high)
		switch {
		case at == n:
			return
		case at < n:
			low = at + 1
		default:
			high = at - 1
		}
	}
}

// Cut removes all entries but the n best and raises Next to the best score removed.
func (f *Survivors) Cut(n int) {
	if n >= len(f.Rows) {
		return
	}
	f.BestFirst(n)
	f.Next = max(f.Next, f.highest(n))
	f.Rows, f.Scores = f.Rows[:n], f.Scores[:n]
}

// highest returns the highest finite score of the entries from number `from` on, or −Inf.
func (f *Survivors) highest(from int) float32 {
	top := none32
	for _, x := range f.Scores[from:] {
		if x > top && finite(x) {
			top = x
		}
	}
	return top
}

// lowest returns the lowest score, or −Inf if a score is not finite.
func (f *Survivors) lowest() float32 {
	low := float32(math.MaxFloat32)
	for _, x := range f.Scores {
		if !finite(x) {
			return none32
		}
		low = min(low, x)
	}
	return low
}

// atLeast moves the entries from number `from` on that score at least `least` to number
// `from`, and returns how many they are.
func (f *Survivors) atLeast(from int, least float64) int {
	n := 0
	for i := from; i < len(f.Scores); i++ {
		if x := f.Scores[i]; finite(x) && float64(x) >= least {
			f.Swap(i, from+n)
			n++
		}
	}
	return n
}

// add appends the entries of another job on other rows of the same query.
func (f *Survivors) add(other Survivors) {
	f.Rows, f.Scores = append(f.Rows, other.Rows...), append(f.Scores, other.Scores...)
	f.Next = max(f.Next, other.Next)
}

// check verifies an answer of the machine about a table of the given number of rows: at
// most keep rows, each once, with valid numbers.
func (f *Survivors) check(keep, rows int, seen *rowSet) error {
	b := device.Best{Rows: f.Rows[:min(1, len(f.Rows))], Scores: f.Scores[:min(1, len(f.Scores))], Next: none32, Scored: f.Scored, NotFinite: f.NotFinite}
	switch err := b.Check(1); {
	case err != nil:
		return fmt.Errorf("the kernels' answer: %w", err)
	case len(f.Rows) != len(f.Scores) || len(f.Rows) > keep || len(f.Rows) > f.Scored:
		return fmt.Errorf("%w: the kernels kept %d rows with %d scores of %d, want %d at most", device.ErrFailed, len(f.Rows), len(f.Scores), f.Scored, keep)
	case f.Next != none32 && !(finite(f.Next) && f.Next <= f.lowest()):
		return fmt.Errorf("%w: the kernels left out a score of %v and kept %v", device.ErrFailed, f.Next, f.lowest())
	}
	return seen.once(f.Rows, rows)
}

// rowSet finds row numbers that occur twice. It keeps its memory between uses.
type rowSet struct{ words []uint64 }

// once returns device.ErrFailed if a number occurs twice or is not below limit.
func (s *rowSet) once(rows []uint32, limit int) (err error) {
	if n := (limit + 63) / 64; n > len(s.words) {
		s.words = make([]uint64, n)
	}
	marked := 0
	for _, row := range rows {
		if int64(row) >= int64(limit) {
			err = fmt.Errorf("%w: the kernels kept row %d of %d", device.ErrFailed, row, limit)
			break
		}
		if s.words[row/64]>>(row%64)&1 == 1 {
			err = fmt.Errorf("%w: the kernels kept row %d twice", device.ErrFailed, row)
			break
		}
		s.words[row/64] |= 1 << (row % 64)
		marked++
	}
	for _, row := range rows[:marked] {
		s.words[row/64] = 0
	}
	return err
}

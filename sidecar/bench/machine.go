package bench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Machine contains the limits of this machine, measured with the loops of one set of
// kernels on several threads at once.
type Machine struct {
	Kernel  string `json:"kernel"`
	Threads int    `json:"threads"`
	// PeakGFLOPS counts a float32 multiply-add as two operations.
	PeakGFLOPS float64 `json:"peak_gflops"`
	// SequentialGBs and RandomGBs are read rates of a large table: in order, and by rows of
	// RowBytes in random order, each row once.
	SequentialGBs float64 `json:"sequential_gb_s"`
	RandomGBs     float64 `json:"random_rows_gb_s"`
	RowBytes      int     `json:"row_bytes"`
	TableBytes    int     `json:"table_bytes"`
}

// MeasureMachine measures arithmetic and memory with a table of about tableBytes in rows of
// about rowBytes. Both are rounded down to whole rows and whole cache lines.
func MeasureMachine(k *kernel.Set, threads, tableBytes, rowBytes int) Machine {
	row := max(rowBytes/512, 1) * 128
	rows := max(tableBytes/4/row, 2*threads)
	table := rerank.NewMatrix(rows, row)
	for i := range table.Data {
		table.Data[i] = 1
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(rows)
	m := Machine{
		Kernel: k.Name(), Threads: threads, PeakGFLOPS: Peak(k, threads, 400*time.Millisecond),
		RowBytes: row * 4, TableBytes: len(table.Data) * 4,
	}
	share := rows / threads
	m.SequentialGBs = best(5, threads, func(t int) float64 {
		k.Read(table.Slice(t*share, (t+1)*share).Data)
		return float64(share * row * 4)
	})
	m.RandomGBs = best(5, threads, func(t int) float64 {
		for _, r := range order[t*share : (t+1)*share] {
			k.Read(table.Row(r))
		}
		return float64(share * row * 4)
	})
	return m
}

// Peak returns the highest rate of operations of all threads together, in 10⁹ per second. A
// multiply-add counts as two. It takes the best of many short rounds within the budget.
func Peak(k *kernel.Set, threads int, budget time.Duration) float64 {
	rounds := 1 << 14
	if k.Name() == kernel.Go().Name() {
		rounds = 1 << 12
	}
	var top float64
	for end := time.Now().Add(budget); ; {
		top = max(top, best(1, threads, func(int) float64 { return float64(k.FMA(rounds)) }))
		if time.Now().After(end) {
			return top
		}
	}
}

// best runs f on all threads at once, several times. f returns its amount of work. best
// returns the greatest total rate, in 10⁹ per second.
func best(times, threads int, f func(thread int) float64) float64 {
	var top float64
	for range times {
		rates := make([]float64, threads)
		parallel(threads, func(t int) {
			began := time.Now()
			done := f(t)
			rates[t] = done / time.Since(began).Seconds() / 1e9
		})
		var sum float64
		for _, r := range rates {
			sum += r
		}
		top = max(top, sum)
	}
	return top
}

// parallel calls f once per thread, each on its own system thread, and waits.
func parallel(threads int, f func(thread int)) {
	pinned := func(t int) { // pinned, so that per-thread counters see all instructions
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f(t)
	}
	if threads == 1 {
		pinned(0)
		return
	}
	var done sync.WaitGroup
	for t := range threads {
		done.Go(func() { pinned(t) })
	}
	done.Wait()
}

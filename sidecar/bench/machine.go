package bench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Machine is what this machine can do at most, measured with the loops of one set
// of kernels on some threads at once.
type Machine struct {
	Kernel  string `json:"kernel"`
	Threads int    `json:"threads"`
	// PeakGFLOPS counts float32 multiply-adds as two.
	PeakGFLOPS float64 `json:"peak_gflops"`
	// SequentialGBs and RandomGBs are reads of a large table, whole and by rows of
	// RowBytes in random order, each row once.
	SequentialGBs float64 `json:"sequential_gb_s"`
	RandomGBs     float64 `json:"random_rows_gb_s"`
	RowBytes      int     `json:"row_bytes"`
	TableBytes    int     `json:"table_bytes"`
}

// MeasureMachine measures the peak and the memory: a table of tableBytes in rows of
// rowBytes. Both are cut down to whole rows of whole cache lines.
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

// Peak is the most multiply-adds, each two operations, that the threads compute at
// once, in 10⁹ a second: the best of many short rounds in the given time.
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

// best runs f on the threads at once, some times, and returns the greatest sum of
// what the threads did a second, in 10⁹.
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

// parallel calls f once for each thread, on threads of the system's, and waits.
func parallel(threads int, f func(thread int)) {
	pinned := func(t int) { // what counts a thread's instructions sees all of them
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

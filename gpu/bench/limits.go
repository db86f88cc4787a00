package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/workload"
)

// Limiter measures limits of a device.
type Limiter interface {
	// Limit runs the kernel of a limit for `amount` rounds, or for kernels.LimitRead over
	// `amount` bytes. It returns how long the device took, and the clock cycles that one
	// block counted.
	Limit(l kernels.Limit, amount int64) (time.Duration, uint64, error)
	// Copy copies half of the memory to the other half.
	Copy() (time.Duration, error)
	Free() error
}

// Limits contains the measured limits of a device, in units of 10⁹ per second.
type Limits struct {
	// ReadGBs counts memory that is read; CopyGBs counts both reading and writing.
	ReadGBs float64 `json:"read_gb_s"`
	CopyGBs float64 `json:"copy_gb_s"`
	// TensorTFLOPS is for mma.sync with float16 operands and float32 sums, FMATFLOPS for
	// float32. A multiply-add counts as two operations.
	TensorTFLOPS float64 `json:"tensor_tflop_s"`
	FMATFLOPS    float64 `json:"fp32_tflop_s"`
	// Special functions, in 10⁹ per second.
	Exp2       float64 `json:"exp2_g_s"`
	Reciprocal float64 `json:"reciprocal_g_s"`
	Tanh       float64 `json:"tanh_g_s"`
	// Issue is the number of instructions of a warp, in 10⁹ per second, derived from
	// multiply-adds.
	Issue float64 `json:"warp_instructions_g_s"`
	// ClockMHz is the clock of the multiprocessors during the measurement of multiply-adds.
	ClockMHz float64 `json:"clock_mhz"`
	// PerClock is how many operations of each kind a multiprocessor completes per clock
	// cycle.
	PerClock map[kernels.Limit]float64 `json:"per_clock_and_multiprocessor"`
}

// limitTime is how long each measured kernel should run, so that its start and a rising
// clock have little influence.
const limitTime = 4 * time.Millisecond

// measureLimits measures all limits and takes the best of several runs. bytes is the size
// of l's memory.
func measureLimits(ctx context.Context, l Limiter, multiprocessors int, bytes int64, quick bool) (Limits, error) {
	out := Limits{PerClock: map[kernels.Limit]float64{}}
	e := workload.Effort{Runs: 20, Warm: 3, Time: 500 * time.Millisecond}
	if quick {
		e = workload.Effort{Runs: 3, Time: 50 * time.Millisecond}
	}
	best := func(run func() (time.Duration, uint64, error)) (took time.Duration, clocks uint64, err error) {
		err = e.Spend(ctx, func(bool) error {
			t, c, err := run()
			if err == nil && (took == 0 || t < took) {
				took, clocks = t, c
			}
			return err
		})
		return took, clocks, err
	}
	took, _, err := best(func() (time.Duration, uint64, error) { return l.Limit(kernels.LimitRead, bytes) })
	if err != nil {
		return out, fmt.Errorf("measuring reads: %w", err)
	}
	out.ReadGBs = rate(float64(bytes/16*16), took)
	took, _, err = best(func() (time.Duration, uint64, error) {
		t, err := l.Copy()
		return t, 0, err
	})
	if err != nil {
		return out, fmt.Errorf("measuring copies: %w", err)
	}
	out.CopyGBs = rate(float64(bytes/2*2), took)
	for _, limit := range kernels.ArithmeticLimits() {
		rounds, err := roundsNeeded(l, limit, quick)
		if err != nil {
			return out, fmt.Errorf("measuring %s: %w", limit, err)
		}
		took, clocks, err := best(func() (time.Duration, uint64, error) { return l.Limit(limit, rounds) })
		if err != nil {
			return out, fmt.Errorf("measuring %s: %w", limit, err)
		}
		out.set(limit, limit.Work(limit.Launch(multiprocessors), int(rounds)), took, clocks, multiprocessors)
	}
	return out, nil
}

// rate returns work per second, in units of 10⁹.
func rate(work float64, took time.Duration) float64 {
	return work / max(1, float64(took.Nanoseconds()))
}

// roundsNeeded returns how many rounds take limitTime.
func roundsNeeded(l Limiter, limit kernels.Limit, quick bool) (int64, error) {
	rounds := int64(16)
	for !quick && rounds < 1<<24 {
		took, _, err := l.Limit(limit, rounds)
		if err != nil || took >= limitTime {
			return rounds, err
		}
		rounds *= 2
	}
	return rounds, nil
}

func (l *Limits) set(limit kernels.Limit, work float64, took time.Duration, clocks uint64, multiprocessors int) {
	r := rate(work, took)
	if clocks > 0 {
		l.PerClock[limit] = work / float64(multiprocessors) / float64(clocks)
	}
	switch limit {
	case kernels.LimitFMA:
		l.FMATFLOPS, l.Issue = 2*r/1e3, r/32
		l.ClockMHz = 1e3 * rate(float64(clocks), took)
	case kernels.LimitTensor:
		l.TensorTFLOPS = r / 1e3
	case kernels.LimitExp2:
		l.Exp2 = r
	case kernels.LimitReciprocal:
		l.Reciprocal = r
	case kernels.LimitTanh:
		l.Tanh = r
	case kernels.LimitRead:
	}
}

// Shares contains, for each limit, the share of the measured time that a kernel would need
// if only that limit applied.
type Shares struct {
	Bytes   float64 `json:"bytes"`
	Tensor  float64 `json:"tensor,omitempty"`
	FP32    float64 `json:"fp32,omitempty"`
	Special float64 `json:"special_functions,omitempty"`
	Issue   float64 `json:"issue"`
	// Binds names the limit with the greatest share.
	Binds string `json:"binds"`
}

// Share returns the shares for a kernel that took ms milliseconds for the given number of
// pairs of query and item. It read items rows from memory.
func (l *Limits) Share(c kernels.Cost, pairs, items, ms float64) Shares {
	const score = 4 // bytes, written
	of := func(work, perSecond float64) float64 {
		if work == 0 || perSecond == 0 {
			return 0
		}
		return work / (perSecond * 1e6) / ms // perSecond is in 10⁹, ms in 10⁻³
	}
	s := Shares{
		Bytes:   of(items*c.ItemBytes+pairs*score, l.ReadGBs),
		Tensor:  of(pairs*c.Tensor, 1e3*l.TensorTFLOPS),
		FP32:    of(2*pairs*c.FMA, 1e3*l.FMATFLOPS),
		Special: of(pairs*c.Exp2, l.Exp2) + of(pairs*c.Reciprocal, l.Reciprocal) + of(pairs*c.Tanh, l.Tanh),
		Issue:   of(pairs*c.Instructions, l.Issue),
	}
	most := 0.0
	for _, limit := range s.named() {
		if limit.share > most {
			most, s.Binds = limit.share, limit.name
		}
	}
	return s
}

type namedShare struct {
	name  string
	share float64
}

func (s *Shares) named() []namedShare {
	return []namedShare{{"bytes", s.Bytes}, {"tensor cores", s.Tensor}, {"float32 arithmetic", s.FP32}, {"special functions", s.Special}, {"issue", s.Issue}}
}

package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// firstLine is when the first progress line comes if stderr is no terminal, lineEvery the
// interval of the others.
const (
	firstLine = 3 * time.Second
	lineEvery = 5 * time.Second
)

// progress shows the progress of long work on stderr: a bar with rate and remaining time on a
// terminal, and a line every few seconds elsewhere. Its method begin is an eval.Progress; note adds
// a line that stays. It is safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool

	mu  sync.Mutex
	bar *progressbar.ProgressBar // the bar of the latest stage
}

func newProgress(w io.Writer) *progress {
	_, isTerminal := w.(*terminal)
	return &progress{w: w, terminal: isTerminal}
}

// begin starts a stage with a number of steps, −1 if that is unknown. done counts n steps as
// finished.
func (p *progress) begin(stage string, steps int) (done func(n int)) {
	if !p.terminal {
		s := &stageLines{w: p.w, stage: stage, steps: int64(steps), start: time.Now()}
		s.next.Store(int64(firstLine))
		return s.done
	}
	bar := progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(stage),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bar = bar
	return func(n int) { _ = bar.Add(n) } // a bar that cannot be drawn is no error
}

// note writes a line, above the bar if there is one.
func (p *progress) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear() // the next step draws it again
	}
	_, _ = fmt.Fprintln(p.w, line)
}

// stageLines writes the progress of a stage as plain lines.
type stageLines struct {
	w     io.Writer
	stage string
	steps int64
	start time.Time
	count atomic.Int64
	next  atomic.Int64 // when the next line is due, in nanoseconds since start
}

func (s *stageLines) done(n int) {
	count, now := s.count.Add(int64(n)), time.Since(s.start)
	due := s.next.Load()
	if int64(now) < due || !s.next.CompareAndSwap(due, int64(now+lineEvery)) {
		return
	}
	_, _ = fmt.Fprintln(s.w, s.line(count, now))
}

// line words how far the stage is after some time. Slow rates have digits, so that none is 0.
func (s *stageLines) line(count int64, after time.Duration) string {
	rate := float64(count) / after.Seconds()
	digits := 0
	if rate < 10 {
		digits = 2
	}
	if s.steps < 0 || rate == 0 {
		return fmt.Sprintf("%s: %d (%.*f/s)", s.stage, count, digits, rate)
	}
	left := time.Duration(float64(max(0, s.steps-count)) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s: %d of %d (%.*f/s, %v left)", s.stage, count, s.steps, digits, rate, left)
}

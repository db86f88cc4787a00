package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/exp/trace"
)

// parts divides the time of calls between arriving and being answered, without the time in
// which a call waits for its store or its client. Values are means over some calls, in
// milliseconds.
type parts struct {
	Work      float64 `json:"work"`      // the call's own goroutine runs
	Calls     float64 `json:"calls"`     // it could run, and another call runs in its place
	Transport float64 `json:"transport"` // … a goroutine that reads or writes a connection
	Collector float64 `json:"collector"` // … the garbage collector, or it has stopped the program
	Rest      float64 `json:"rest"`      // … another goroutine, or none: the scheduler and the kernel
}

func (p parts) sum() float64 { return p.Work + p.Calls + p.Transport + p.Collector + p.Rest }

// tail compares the slowest calls of an execution trace with all of them.
type tail struct {
	Calls   int     `json:"calls"` // that began and ended in the trace
	P50     float64 `json:"p50"`   // of the sum of the parts, milliseconds
	P99     float64 `json:"p99"`
	All     parts   `json:"all"`
	Slowest parts   `json:"slowest"` // the hundredth part that took longest
}

// span is a call that has begun and not ended: its parts so far, and the state of its goroutine.
type span struct {
	parts
	state trace.GoState
}

// observer follows the goroutines of a trace of a program with one processor.
type observer struct {
	kind    map[trace.GoID]string // of each goroutine that was seen to begin: call, transport, collector or ""
	open    map[trace.GoID]*span
	done    []parts
	running trace.GoID // the goroutine that runs, or trace.NoGoroutine
	stopped bool       // the collector has stopped the program
	last    trace.Time
}

// readTail reads an execution trace of a gRPC server that runs with GOMAXPROCS=1.
func readTail(r io.Reader) (*tail, error) {
	reader, err := trace.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	o := observer{kind: map[trace.GoID]string{}, open: map[trace.GoID]*span{}, running: trace.NoGoroutine}
	for {
		e, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			return summarise(o.done)
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		o.see(e)
	}
}

// see adds the time since the last event to all open calls, and notes what the event changes.
func (o *observer) see(e trace.Event) {
	passed := float64(e.Time()-o.last) / float64(time.Millisecond)
	for _, s := range o.open {
		o.add(s, passed)
	}
	o.last = e.Time()
	switch kind := e.Kind(); {
	case kind == trace.EventRangeBegin || kind == trace.EventRangeActive:
		o.stopped = o.stopped || strings.HasPrefix(e.Range().Name, "stop-the-world")
	case kind == trace.EventRangeEnd:
		o.stopped = o.stopped && !strings.HasPrefix(e.Range().Name, "stop-the-world")
	case kind == trace.EventStateTransition:
		if change := e.StateTransition(); change.Resource.Kind == trace.ResourceGoroutine {
			o.move(change)
		}
	}
}

// add adds the time since the last event to one part of a call. Which one depends on the state of the call's goroutine and,
// if that waits for the processor, on the goroutine that runs.
func (o *observer) add(s *span, ms float64) {
	switch kind := o.kind[o.running]; {
	case s.state == trace.GoRunning || s.state == trace.GoSyscall:
		s.Work += ms
	case s.state != trace.GoRunnable: // it waits for its store or its client
	case o.stopped || kind == "collector":
		s.Collector += ms
	case kind == "call":
		s.Calls += ms
	case kind == "transport":
		s.Transport += ms
	default:
		s.Rest += ms
	}
}

// move notes a goroutine's new state. A call begins and ends with its goroutine.
func (o *observer) move(change trace.StateTransition) {
	id := change.Resource.Goroutine()
	from, to := change.Goroutine()
	if from == trace.GoNotExist || from == trace.GoUndetermined {
		o.kind[id] = kindOf(change.Stack)
		if o.kind[id] == "call" && from == trace.GoNotExist {
			o.open[id] = &span{}
		}
	}
	if s := o.open[id]; s != nil {
		if s.state = to; to == trace.GoNotExist {
			o.done = append(o.done, s.parts)
			delete(o.open, id)
		}
	}
	switch {
	case to == trace.GoRunning:
		o.running = id
	case o.running == id:
		o.running = trace.NoGoroutine
	}
	if to == trace.GoNotExist {
		delete(o.kind, id)
	}
}

// kindOf returns the kind of a goroutine of grpc-go or of the runtime, which the function that it began with shows.
func kindOf(stack trace.Stack) string {
	for frame := range stack.Frames() {
		switch f := frame.Func; {
		case strings.HasPrefix(f, "google.golang.org/grpc.(*Server).serveStreams.func"):
			return "call"
		case strings.HasPrefix(f, "google.golang.org/grpc/internal/transport."), strings.HasPrefix(f, "google.golang.org/grpc.(*Server)"):
			return "transport"
		case strings.HasPrefix(f, "runtime.gc"), strings.HasPrefix(f, "runtime.bg"):
			return "collector"
		}
	}
	return ""
}

// summarise compares the slowest calls with all.
func summarise(calls []parts) (*tail, error) {
	if len(calls) < 100 {
		return nil, fmt.Errorf("the trace has %d calls, and the slowest hundredth needs at least 100: trace longer", len(calls))
	}
	slices.SortFunc(calls, func(a, b parts) int { return cmp.Compare(a.sum(), b.sum()) })
	n := len(calls)
	return &tail{
		Calls: n, P50: calls[n/2].sum(), P99: calls[n-1-n/100].sum(),
		All: mean(calls), Slowest: mean(calls[n-n/100:]),
	}, nil
}

func mean(calls []parts) parts {
	var m parts
	n := float64(len(calls))
	for _, c := range calls {
		m.Work += c.Work / n
		m.Calls += c.Calls / n
		m.Transport += c.Transport / n
		m.Collector += c.Collector / n
		m.Rest += c.Rest / n
	}
	return m
}

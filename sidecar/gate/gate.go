// Package gate decides what may go on. A Gate answers three questions: Admit, whether a
// search may begin; Receive, whether the bytes of a message may come; and Parse, when a
// long message may keep a processor busy. Work that is begun and then given up helps
// nobody, and a sidecar that begins everything finishes nothing, so a Gate refuses at
// once what could not be finished in time. Every refusal is a *RefusedError.
package gate

import (
	"context"
	"runtime"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
)

// Options of New.
type Options struct {
	Limits
	// ReceivedBytes bounds the bytes of messages that were announced and are not answered
	// yet, and those of the answers that Reserve lets calls make. 0 or less is no bound.
	ReceivedBytes int64
	// Processors are the turns that searches take on the processors. If nil, Arrive does
	// not look at them.
	Processors *turns.Turns
	// Refused, if not nil, is told of every refused search: the route, "unknown" where no
	// route has that name, and the reason. It is called concurrently.
	Refused func(route string, reason Reason)
}

// Gate decides what may go on. The methods that receive messages, and Parse, let
// everything pass on a nil Gate. A Gate is safe for concurrent use.
type Gate struct {
	searches   searches
	messages   *room // of bytes of messages that were announced and are not answered yet; nil: they are not bounded
	answers    *room // of bytes of answers that are being made, as large as messages; nil with it
	memory     memory
	processors *turns.Turns
	// parsing has turns for half of the processors.
	parsing *turns.Turns
	// busy is the refusal of calls during an overload. It is one value, so that a server can
	// keep its status.
	busy    *RefusedError
	refused func(route string, reason Reason)
	cores   int // at New: the runtime may lend a thread later
	start   time.Time
}

// New returns a gate.
func New(o Options) *Gate {
	g := &Gate{cores: runtime.GOMAXPROCS(0), start: time.Now(), processors: o.Processors, refused: o.Refused}
	if g.processors == nil {
		g.processors = turns.New(g.cores)
	}
	if g.refused == nil {
		g.refused = func(string, Reason) {}
	}
	if o.ReceivedBytes > 0 {
		g.messages, g.answers = &room{most: o.ReceivedBytes}, &room{most: o.ReceivedBytes}
	}
	g.busy = processorsBusy(g.processors.Most())
	g.parsing = turns.New(max(1, g.processors.Most()/2))
	g.searches.mostWaiting = waitingPerCore * g.processors.Most()
	g.SetLimits(o.Limits)
	return g
}

// longMessage is the length in bytes from which on Parse takes turns. Parsing so many
// bytes of JSON takes about one time slice of the scheduler.
const longMessage = 256 << 10

// Parse calls parse, which parses a message of so many bytes. Long messages are parsed on
// at most half of the processors: more at a time would hardly end sooner, and every small
// call would wait a time slice behind each of them. Parse returns the error of parse, or
// of a context that ends before the message has its turn.
func (g *Gate) Parse(ctx context.Context, bytes int, parse func() error) error {
	if g == nil || bytes < longMessage {
		return parse()
	}
	if err := g.parsing.Take(ctx); err != nil {
		return err
	}
	defer g.parsing.Give()
	return parse()
}

// now returns the time since New, as a number that can be stored at once.
func (g *Gate) now() int64 { return int64(time.Since(g.start)) }

// refuse reports a refused search of a route, and returns the refusal.
func (g *Gate) refuse(route string, r *RefusedError) error {
	if _, known := g.searches.bounds.Load().routes[route]; !known {
		route = "unknown"
	}
	g.refused(route, r.Reason)
	return r
}

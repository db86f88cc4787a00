package turns

import "context"

// long is from how many bytes on JSON takes turns: parsing that many takes a processor
// for about as long as the scheduler leaves it to one goroutine.
const long = 256 << 10

// Parsing lets long JSON be parsed on half of the processors at most: more at a time
// would end none of it much sooner, and a small call would wait a time slice behind each of
// them at every step of its way. A nil one lets all be parsed at once. It is safe for
// concurrent use.
type Parsing struct{ turns *Turns }

// NewParsing makes turns on half of so many processors, on one at least.
func NewParsing(processors int) *Parsing { return &Parsing{New(max(1, processors/2))} }

// Do parses so many bytes when it is their turn. It returns the error of parse, or that
// of a context that ends before.
func (p *Parsing) Do(ctx context.Context, bytes int, parse func() error) error {
	if p == nil || bytes < long {
		return parse()
	}
	if err := p.turns.Take(ctx); err != nil {
		return err
	}
	defer p.turns.Give()
	return parse()
}

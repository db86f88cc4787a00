package pipeline

import (
	"context"
	"fmt"
)

// OpenRoute checks one route against its store, as Open does with all. It
// returns ErrRoute if there is none of that name.
func (p *Pipeline) OpenRoute(ctx context.Context, name string) error {
	l, ok := p.routes[name]
	if !ok {
		return fmt.Errorf("%w: %q", ErrRoute, name)
	}
	_, err := l.open(ctx)
	return err
}

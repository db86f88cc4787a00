package wiring

import (
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
)

// OpenEvents opens the events of the routes that keep some. The caller closes the book. It returns
// the error of a key or a file of events that cannot be used; a disk that fails is no error.
func OpenEvents(c *config.Config) (events.Book, error) {
	book := events.Book{}
	for _, name := range c.RouteNames() {
		e := c.Routes[name].Events
		if e.Share == 0 {
			continue
		}
		r, err := events.OpenRoute(statedir.Events(c.StateDir, name), name, events.RouteOptions{
			Share: e.Share, Keep: e.Keep, Hash: e.Hash, KeyFile: e.KeyFile,
			Log: events.LogOptions{Size: int64(e.Size), Age: e.Age, Retention: e.Retention},
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("route %s: %w", name, err), book.Close())
		}
		book[name] = r
	}
	return book, nil
}

package wiring

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
)

// OpenEvents opens the event files of the routes whose events.share is above 0. The caller closes the
// Book. If a route's key or files cannot be used, OpenEvents logs it: the route answers searches, and keeps
// events as soon as the files can be used.
func OpenEvents(c *config.Config, log *slog.Logger) events.Book {
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
			log.Error("events cannot be kept, will retry", "route", name, "error", err)
		}
		book[name] = r
	}
	return book
}

// CheckEvents returns an error for each key file of events that cannot be used. It opens no events.
func CheckEvents(c *config.Config) error {
	var failed []error
	for _, name := range c.RouteNames() {
		if e := c.Routes[name].Events; e.Share > 0 && e.KeyFile != "" {
			if _, err := events.ReadKeyFile(e.KeyFile); err != nil {
				failed = append(failed, fmt.Errorf("routes.%s.%w", name, err))
			}
		}
	}
	return errors.Join(failed...)
}

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Search implements adapters.Searcher.
func (s *Store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	return read(ctx, s, "search", r.Collection, func(ctx context.Context) ([]rerank.List, error) {
		return s.searchHedged(ctx, func(ctx context.Context) ([]rerank.List, error) { return s.Server.Search(ctx, r) })
	}, func(ctx context.Context) error {
		_, err := s.Server.Search(ctx, ownSearch(r))
		return err
	})
}

// ownSearch returns a search for one row by the same field as r, with a vector of our own.
func ownSearch(r adapters.SearchRequest) adapters.SearchRequest {
	own := adapters.SearchRequest{Collection: r.Collection, Vector: r.Vector, UnitVectors: r.UnitVectors}
	if len(r.Probes) > 0 {
		vector := slices.Repeat([]float32{1}, len(r.Probes[0].Vector))
		own.Probes = []rerank.Probe{{Field: r.Probes[0].Field, Vector: vector, Depth: 1}}
	}
	return own
}

// Fetch implements adapters.Fetcher.
func (s *Store) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	return read(ctx, s, "fetch", r.Collection, func(ctx context.Context) (adapters.Rows, error) { return s.Server.Fetch(ctx, r) }, s.readsRow(r.Collection))
}

// Match implements adapters.Matcher.
func (s *Store) Match(ctx context.Context, collection, filter string) ([]rerank.ID, error) {
	return read(ctx, s, "match", collection, func(ctx context.Context) ([]rerank.ID, error) { return s.Server.Match(ctx, collection, filter) }, s.readsRow(collection))
}

// readsRow returns a function that reads one row of a collection, whichever.
func (s *Store) readsRow(collection string) func(context.Context) error {
	return func(ctx context.Context) error {
		came := errors.New("it came")
		err := s.Server.Scan(ctx, adapters.ScanRequest{Collection: collection, Batch: 1}, func(adapters.Rows, string) error { return came })
		if errors.Is(err, came) {
			return nil
		}
		return err
	}
}

// Scan implements adapters.Scanner. After a transient failure it continues from the
// last batch. It ignores the breaker, which protects searches.
func (s *Store) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	for {
		var refused error
		came := false
		err := s.sendOnce(ctx, "scan", func() error {
			return s.Server.Scan(ctx, r, func(rows adapters.Rows, cursor string) error {
				came, r.Cursor = true, cursor
				refused = yield(rows, cursor)
				return refused
			})
		})
		if refused != nil || came && r.Cursor == "" || !s.mayRetry(ctx, err) {
			return err
		}
		s.told().StoreRetried(s.options.Name, "scan")
	}
}

// Ping implements adapters.Store. It always calls the store, whatever the breakers'
// state.
func (s *Store) Ping(ctx context.Context) error {
	return s.sendOnce(ctx, "ping", func() error { return s.Server.Ping(ctx) })
}

// Describe implements adapters.Describer.
func (s *Store) Describe(ctx context.Context, collection string) (d adapters.Description, err error) {
	err = s.sendRetried(ctx, "describe", func() error {
		d, err = s.Server.Describe(ctx, collection)
		return err
	})
	return d, err
}

// Count implements adapters.Counter.
func (s *Store) Count(ctx context.Context, collection string) (n int64, err error) {
	err = s.sendRetried(ctx, "count", func() error {
		n, err = s.Server.Count(ctx, collection)
		return err
	})
	return n, err
}

// Identify implements adapters.Identifier.
func (s *Store) Identify(ctx context.Context, name string) (i adapters.Identity, err error) {
	err = s.sendRetried(ctx, "identify", func() error {
		i, err = s.Server.Identify(ctx, name)
		return err
	})
	return i, err
}

// Create implements adapters.Writer. Like every write, it is sent only once.
func (s *Store) Create(ctx context.Context, schema adapters.Schema) error {
	return s.sendOnce(ctx, "create", func() error { return s.Server.Create(ctx, schema) })
}

// Write implements adapters.Writer.
func (s *Store) Write(ctx context.Context, collection string, schema adapters.Schema, rows adapters.Rows) error {
	return s.sendOnce(ctx, "write", func() error { return s.Server.Write(ctx, collection, schema, rows) })
}

// Drop implements adapters.Writer.
func (s *Store) Drop(ctx context.Context, collection string) error {
	return s.sendOnce(ctx, "drop", func() error { return s.Server.Drop(ctx, collection) })
}

// Delete implements adapters.Deleter.
func (s *Store) Delete(ctx context.Context, collection string, ids []rerank.ID) error {
	return s.sendOnce(ctx, "delete", func() error { return s.Server.Delete(ctx, collection, ids) })
}

// CheckWrite implements adapters.WriteChecker. It returns ErrUnsupported if the store does
// not implement it.
func (s *Store) CheckWrite(ctx context.Context, collection string, way adapters.WriteWay) error {
	check := adapters.AbilitiesOf(s.Server).CheckWrite
	if check == nil {
		return fmt.Errorf("%w: the store cannot tell whether a caller may write", adapters.ErrUnsupported)
	}
	return s.sendOnce(ctx, "check_write", func() error { return check.CheckWrite(ctx, collection, way) })
}

// Version implements adapters.Inspector. It returns ErrUnsupported if the store does not
// implement it.
func (s *Store) Version(ctx context.Context) (version string, err error) {
	inspect := adapters.AbilitiesOf(s.Server).Inspect
	if inspect == nil {
		return "", fmt.Errorf("%w: the store does not tell its version", adapters.ErrUnsupported)
	}
	err = s.sendOnce(ctx, "version", func() error {
		version, err = inspect.Version(ctx)
		return err
	})
	return version, err
}

// Collections implements adapters.Inspector, in the manner of Version.
func (s *Store) Collections(ctx context.Context) (names []string, err error) {
	inspect := adapters.AbilitiesOf(s.Server).Inspect
	if inspect == nil {
		return nil, fmt.Errorf("%w: the store does not list its collections", adapters.ErrUnsupported)
	}
	err = s.sendOnce(ctx, "collections", func() error {
		names, err = inspect.Collections(ctx)
		return err
	})
	return names, err
}

// SwitchAlias implements adapters.Aliaser.
func (s *Store) SwitchAlias(ctx context.Context, alias, collection string) error {
	return s.sendOnce(ctx, "switch_alias", func() error { return s.Server.SwitchAlias(ctx, alias, collection) })
}

// sendOnce sends a call once and reports it to the observer.
func (s *Store) sendOnce(ctx context.Context, operation string, do func() error) error {
	ended := s.told().StoreCalled(ctx, s.options.Name, operation)
	outcome := Failed // of a call that panics
	defer func() { ended(outcome) }()
	err := do()
	outcome = outcomeOf(ctx, err)
	return err
}

// sendRetried sends a read that no search waits for, and retries it once if the retry
// budget allows.
func (s *Store) sendRetried(ctx context.Context, operation string, do func() error) error {
	s.retries.Called()
	err := s.sendOnce(ctx, operation, do)
	if !s.mayRetry(ctx, err) {
		return err
	}
	s.told().StoreRetried(s.options.Name, operation)
	return s.sendOnce(ctx, operation, do)
}

// searchHedged sends a search, and sends it a second time if no answer arrives within
// HedgeAfter and the hedge budget allows. The first answer wins and cancels the other
// search. It returns an error only if neither search answers.
func (s *Store) searchHedged(ctx context.Context, search func(context.Context) ([]rerank.List, error)) ([]rerank.List, error) {
	if s.options.HedgeAfter <= 0 {
		return search(ctx)
	}
	s.hedges.Called()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		lists []rerank.List
		err   error
	}
	answers := make(chan answer, 2) // buffered, so that the slower search does not block
	ask := func() {
		var a answer
		defer func() {
			if p := recover(); p != nil { // a panic in this goroutine would end the process
				a.err = fmt.Errorf("%w: panic: %v", adapters.ErrStore, p)
			}
			answers <- a
		}()
		a.lists, a.err = search(ctx)
	}
	go ask()
	flying := 1
	timer := time.NewTimer(s.options.HedgeAfter)
	defer timer.Stop()
	var failed []error
	for flying > 0 {
		select {
		case <-timer.C:
			if s.hedges.Spend() {
				s.told().StoreHedged(s.options.Name)
				flying++
				go ask()
			}
		case a := <-answers:
			flying--
			if a.err == nil {
				return a.lists, nil
			}
			failed = append(failed, a.err)
		}
	}
	return nil, errors.Join(failed...)
}

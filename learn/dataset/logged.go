package dataset

import (
	"context"
	"errors"
	"fmt"
)

var errEnough = errors.New("enough queries")

// LoggedQueries returns what a log has in its column query, each once, in the order of
// the log and at most so many. It returns ErrInput or the context's error.
func LoggedQueries(ctx context.Context, path string, most int) ([]string, error) {
	var queries []string
	seen := map[string]bool{}
	_, err := readLog(ctx, path, &Counts{}, func(e entry) error {
		switch {
		case e.query == "":
			return fmt.Errorf("%s is empty", columnQuery)
		case seen[e.query]:
			return nil
		case len(queries) >= most:
			return errEnough
		}
		seen[e.query] = true
		queries = append(queries, e.query)
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && !errors.Is(err, errEnough):
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return queries, nil
}

package search

import "context"

// Admitter decides whether a search may begin. It is safe for concurrent use.
type Admitter interface {
	// Admit lets a search of a route begin, or returns why it may not. The caller calls
	// leave with the search's error when the search has ended.
	Admit(ctx context.Context, route string) (leave func(error), err error)
	// AdmitScoring does the same for a call that only scores items or rewrites a search.
	AdmitScoring(ctx context.Context, route string) (leave func(), err error)
}

// Admitted is a Searcher that asks an Admitter before each search begins. It returns the errors of
// both. It is safe for concurrent use.
type Admitted struct {
	Searcher
	By Admitter
}

var _ Searcher = Admitted{}

// Search implements Searcher.
func (a Admitted) Search(ctx context.Context, r Request) (answer Answer, err error) {
	leave, err := a.By.Admit(ctx, r.Route)
	if err != nil {
		return Answer{}, err
	}
	defer func() { leave(err) }()
	return a.Searcher.Search(ctx, r)
}

// withinCall is the key of the context value that WithinCall sets.
type withinCall struct{}

// WithinCall returns a context whose scores and rewritten searches need no admission of their own,
// because they belong to a call whose search was admitted.
func WithinCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, withinCall{}, true)
}

// Rewrite implements Searcher. The search counts as in flight until Rewritten.Answered is called.
// It is admitted like a call that only scores: refusing it would not relieve the database, which
// would get the original request instead.
func (a Admitted) Rewrite(ctx context.Context, r Request) (*Rewritten, error) {
	if ctx.Value(withinCall{}) != nil {
		return a.Searcher.Rewrite(ctx, r)
	}
	leave, err := a.By.AdmitScoring(ctx, r.Route)
	if err != nil {
		return nil, err
	}
	out, err := a.Searcher.Rewrite(ctx, r)
	if err != nil {
		leave()
		return nil, err
	}
	out.OnAnswered(func(error) { leave() })
	return out, nil
}

// Score implements Searcher.
func (a Admitted) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	if ctx.Value(withinCall{}) != nil {
		return a.Searcher.Score(ctx, r)
	}
	leave, err := a.By.AdmitScoring(ctx, r.Route)
	if err != nil {
		return ScoreAnswer{}, err
	}
	defer leave()
	return a.Searcher.Score(ctx, r)
}

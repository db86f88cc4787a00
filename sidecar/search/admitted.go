package search

import "context"

// Admitter decides whether a search may begin. It is safe for concurrent use.
type Admitter interface {
	// Admit lets a search of a route begin, or returns why it may not. The caller calls
	// leave with the search's error when the search has ended.
	Admit(ctx context.Context, route string) (leave func(error), err error)
	// AdmitScoring does the same for a call that only scores items.
	AdmitScoring(ctx context.Context, route string) (leave func(), err error)
}

// Admitted is a Searcher whose searches an Admitter lets begin. It adds the errors of the
// Admitter to those of the Searcher. It is safe for concurrent use.
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

// Score implements Searcher.
func (a Admitted) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	leave, err := a.By.AdmitScoring(ctx, r.Route)
	if err != nil {
		return ScoreAnswer{}, err
	}
	defer leave()
	return a.Searcher.Score(ctx, r)
}

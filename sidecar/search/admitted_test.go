package search_test

import (
	"context"
	"errors"
	"testing"

	"github.com/likenessdb/likeness/sidecar/search"
)

// admitter admits every search or none, and records the errors of ended searches.
type admitter struct {
	refused error
	ended   []error
}

func (a *admitter) Admit(context.Context, string) (func(error), error) {
	return func(err error) { a.ended = append(a.ended, err) }, a.refused
}

func (a *admitter) AdmitScoring(context.Context, string) (func(), error) {
	return func() { a.ended = append(a.ended, nil) }, a.refused
}

// fails is a searcher whose calls fail.
type fails struct {
	search.Searcher
	err error
}

func (f fails) Search(context.Context, search.Request) (search.Answer, error) {
	return search.Answer{}, f.err
}

func (f fails) Score(context.Context, search.ScoreRequest) (search.ScoreAnswer, error) {
	return search.ScoreAnswer{}, f.err
}

// TestAdmitted: the admitter of a search gets its outcome once. A search that is not admitted does
// not begin.
func TestAdmitted(t *testing.T) {
	down, full := errors.New("down"), errors.New("full")
	by := &admitter{}
	s := search.Admitted{Searcher: fails{err: down}, By: by}
	if _, err := s.Search(t.Context(), search.Request{}); !errors.Is(err, down) {
		t.Error(err)
	}
	if _, err := s.Score(t.Context(), search.ScoreRequest{}); !errors.Is(err, down) {
		t.Error(err)
	}
	if len(by.ended) != 2 || !errors.Is(by.ended[0], down) {
		t.Errorf("ended with %v, want the search's error and the end of the scoring", by.ended)
	}
	by.refused = full
	if _, err := s.Search(t.Context(), search.Request{}); !errors.Is(err, full) {
		t.Error(err)
	}
	if _, err := s.Score(t.Context(), search.ScoreRequest{}); !errors.Is(err, full) {
		t.Error(err)
	}
	if len(by.ended) != 2 {
		t.Errorf("a call that may not begin ended: %v", by.ended)
	}
}

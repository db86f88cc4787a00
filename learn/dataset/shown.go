package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/learn/clicks"
)

// columns lists the columns of a log that are read.
func columns() []string {
	return []string{columnQuery, columnItem, columnWeight, columnTime, columnSeen, columnAnswer, columnPosition}
}

// shownItems groups the rows of a log with positions by answer.
type shownItems struct {
	numbers map[string]int // of each answer, in answers
	answers []clicks.Answer
}

// isKnown reports whether the log has positions.
func (s *shownItems) isKnown() bool { return s.answers != nil }

// add records an item that an answer showed.
func (s *shownItems) add(e entry, query, item int32, weight float32) error {
	if e.answer == "" {
		return errors.New("the row has a position and no answer; a log with positions names in a column \"answer\" which rows were shown together")
	}
	n, ok := s.numbers[e.answer]
	if !ok {
		if s.numbers == nil {
			s.numbers = map[string]int{}
		}
		n = len(s.answers)
		s.numbers[e.answer] = n
		s.answers = append(s.answers, clicks.Answer{Query: query, Time: e.time})
	}
	a := &s.answers[n]
	if a.Query != query {
		return fmt.Errorf("answer %.80q is of two queries; an answer is one list for one query", e.answer)
	}
	a.Items, a.Positions, a.Weights = append(a.Items, item), append(a.Positions, e.position), append(a.Weights, weight)
	a.Time = max(a.Time, e.time)
	return nil
}

// listAnswers returns the answers in the order of the log, each by position. Choices of one item in
// one answer add up.
func (s *shownItems) listAnswers() ([]clicks.Answer, error) {
	for n := range s.answers {
		a := &s.answers[n]
		order := make([]int, len(a.Items))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(a.Positions[i], a.Positions[j]) })
		sorted := clicks.Answer{Query: a.Query, Time: a.Time}
		for _, i := range order {
			last := len(sorted.Items) - 1
			switch {
			case last < 0 || sorted.Positions[last] != a.Positions[i]:
				sorted.Items, sorted.Positions = append(sorted.Items, a.Items[i]), append(sorted.Positions, a.Positions[i])
				sorted.Weights = append(sorted.Weights, a.Weights[i])
			case sorted.Items[last] == a.Items[i]:
				sorted.Weights[last] += a.Weights[i]
			default:
				return nil, fmt.Errorf("an answer for query row %d shows item rows %d and %d at position %d", a.Query, sorted.Items[last], a.Items[i], a.Positions[i])
			}
		}
		*a = sorted
	}
	return s.answers, nil
}

// parsePosition parses the place of an item in a list.
func parsePosition(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("position %.80q is not an integer", text)
	}
	return checkPosition(n)
}

func checkPosition(n int64) (int32, error) {
	if n < 1 || n > clicks.MaxPosition {
		return 0, fmt.Errorf("position is %d; want 1 to %d", n, clicks.MaxPosition)
	}
	return int32(n), nil
}

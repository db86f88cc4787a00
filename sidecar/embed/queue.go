package embed

import "slices"

// queue holds the texts that wait for a call. Callers take turns, text by text, so that a caller with
// many texts does not keep another caller's query waiting. The zero value is ready to use.
type queue struct {
	callers []string // callers with waiting texts; the first is served next
	texts   map[string][]*asked
}

// add appends a text to its caller's texts.
func (q *queue) add(caller string, a *asked) {
	if q.texts == nil {
		q.texts = map[string][]*asked{}
	}
	if len(q.texts[caller]) == 0 {
		q.callers = append(q.callers, caller)
	}
	q.texts[caller] = append(q.texts[caller], a)
}

// first returns the text that is served next, or nil.
func (q *queue) first() *asked {
	if len(q.callers) == 0 {
		return nil
	}
	return q.texts[q.callers[0]][0]
}

// turn makes the next caller that may have a call the first, and returns it. It returns false if no
// waiting caller may.
func (q *queue) turn(may func(caller string) bool) (caller string, ok bool) {
	for range q.callers {
		if caller = q.callers[0]; may(caller) {
			return caller, true
		}
		q.callers = append(q.callers[1:], caller)
	}
	return "", false
}

// pop removes the text that first returns. If pass is set, it is the next caller's turn.
func (q *queue) pop(pass bool) {
	caller := q.callers[0]
	left := q.texts[caller][1:]
	switch {
	case len(left) == 0:
		delete(q.texts, caller)
		q.callers = slices.Delete(q.callers, 0, 1)
		return
	case pass:
		q.callers = append(q.callers[1:], caller)
	}
	q.texts[caller] = left
}

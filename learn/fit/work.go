package fit

// Work reports the progress of a whole fit as one stage, in millions of multiplications: they
// tell the time that is left better than rounds, because judging costs as much as learning.
// Work is not safe for concurrent use.
type Work struct {
	done    func(n int)
	left    int     // steps of the plan that are not done
	pending float64 // less than a unit
}

// WorkUnit is the number of multiplications in a step of the stage.
const WorkUnit = 1e6

// NewWork begins the stage with the planned number of multiplications.
func NewWork(p Progress, stage string, planned float64) *Work {
	steps := int(planned/WorkUnit) + 1
	return &Work{done: p.Begin(stage, steps), left: steps}
}

// add counts multiplications as done, but no more than were planned in all.
func (w *Work) add(multiplications float64) {
	w.pending += multiplications
	n := int(w.pending / WorkUnit)
	w.pending -= float64(n) * WorkUnit
	if n = min(n, w.left); n > 0 {
		w.left -= n
		w.done(n)
	}
}

// Task is a part of the work that is planned by itself.
type Task struct {
	work *Work
	left float64
}

// Begin begins a task of the planned number of multiplications.
func (w *Work) Begin(planned float64) *Task { return &Task{w, planned} }

// Has reports whether about so many multiplications of the task are left.
func (t *Task) Has(multiplications float64) bool { return t != nil && t.left >= 0.99*multiplications }

// Add counts multiplications as done, but no more than were planned.
func (t *Task) Add(multiplications float64) {
	if t == nil {
		return
	}
	n := min(multiplications, t.left)
	t.left -= n
	t.work.add(n)
}

// End counts what is left of the task as done.
func (t *Task) End() {
	if t != nil {
		t.Add(t.left)
	}
}

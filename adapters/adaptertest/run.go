package adaptertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
)

// testCase is one case of the kit.
type testCase struct {
	name  string
	needs []Capability // the last capability is shown in the table
	run   func(t *testing.T, e *env)
}

// cases lists every case, in the order of the compatibility table.
func cases() []testCase {
	return slices.Concat(searchCases(), filterCases(), rowCases(), writeCases(), idCases(), refusalCases(), largeCases())
}

// countingCases names the cases that count the calls of the whole process, and so run alone.
var countingCases = []string{"sixteen probes in one call", "several vector fields"}

// Run runs every case of the kit as a subtest and records its outcome. If the store
// lacks the case's capability, Run checks the refusal instead.
func Run(t *testing.T, k Kit) {
	t.Helper()
	e := newEnv(t, k)
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Fatalf("two cases are named %q", c.name)
		}
		seen[c.name] = true
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			if k.Parallel && !slices.Contains(countingCases, c.name) {
				t.Parallel()
			}
			e.run(t, c)
		})
	}
}

func (e *env) run(t *testing.T, c testCase) {
	o := Outcome{Store: e.kit.Store, Version: e.kit.Version, Case: c.name, Capability: string(c.needs[len(c.needs)-1]), Outcome: Passed}
	defer func() {
		switch {
		case t.Failed():
			o.Outcome, o.Detail = Failed, ""
		case t.Skipped():
			reason, _ := e.reasons.Load(t.Name())
			o.Outcome, o.Detail = NotRun, fmt.Sprint(reason)
		}
		appendOutcome(t, o)
	}()
	for _, need := range c.needs {
		if slices.Contains(e.kit.Lacks, need) {
			o.Outcome, o.Detail = Refused, e.checkRefusal(t, need)
			return
		}
	}
	c.run(t, e)
}

// skip ends a case that does not apply, and records the reason.
func (e *env) skip(t *testing.T, reason string) {
	t.Helper()
	e.reasons.Store(t.Name(), reason)
	t.Skip(reason)
}

// checkRefusal checks that the store refuses an operation that it lacks, and returns the
// text of the refusal.
func (e *env) checkRefusal(t *testing.T, c Capability) string {
	t.Helper()
	check, ok := refusals[c]
	if !ok {
		t.Fatalf("capability %q cannot be absent", c)
	}
	has, err := check(t, e)
	switch {
	case !has:
		return "the adapter does not have the interface"
	case err == nil:
		t.Fatalf("the kit lacks %q, and the store did not refuse it", c)
	}
	for _, typed := range allowedRefusals[c] {
		if errors.Is(err, typed) {
			return typed.Error()
		}
	}
	if !errors.Is(err, adapters.ErrUnsupported) {
		t.Fatalf("the kit lacks %q; the store refused with %v, want ErrUnsupported", c, err)
	}
	return adapters.ErrUnsupported.Error()
}

// allowedRefusals lists errors that are accepted instead of ErrUnsupported.
var allowedRefusals = map[Capability][]error{
	MultipleFields: {adapters.ErrLimit},
	CosineMetric:   {adapters.ErrMetric},
	L2Metric:       {adapters.ErrMetric},
	NumberIDs:      {adapters.ErrID},
	TextIDs:        {adapters.ErrID},
}

// CaseNames lists the kit's cases in the order of the compatibility table.
func CaseNames() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Keeper holds the promise of a route with one model version: the calibration, and its
// audit. It is safe for concurrent use.
type Keeper struct {
	path  string
	alpha float64 // the level of the audit

	standing atomic.Pointer[standing]

	mu       sync.Mutex
	stamp    stamp
	report   *Report
	broken   error        // the file cannot be read
	route    *route.Route // nil: not opened yet
	settings map[string]string
	audit    Audit
	unsaved  int // audited answers that the audit's file lacks
}

// standing is the state of a promise: the calibration, and why it does not hold.
type standing struct {
	calibration *rerank.Calibration
	void        string
}

// stamp tells one content of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

// Audit has the counts of the audited live answers of a calibrated route.
type Audit struct {
	// Calibration is when the audited calibration was made.
	Calibration time.Time `json:"calibration"`
	Audited     int       `json:"audited"`
	Missed      int       `json:"missed"`
	RecallSum   float64   `json:"recall_sum"`
	// Evidence is the e-value against the promise. At 1/α the promise is rejected.
	Evidence float64 `json:"evidence"`
	// Rejected is when the promise was rejected, which ends the audit.
	Rejected *time.Time `json:"rejected,omitempty"`
}

// MeanRecall returns the mean recall of the audited answers, 1 if no answer was audited.
func (a Audit) MeanRecall() float64 {
	if a.Audited == 0 {
		return 1
	}
	return a.RecallSum / float64(a.Audited)
}

var _ route.Promise = (*Keeper)(nil)

// Keep makes a Keeper of the calibration at path, which Path returns. With an empty path it keeps
// the route's own calibration in memory. Its audit rejects a promise at the level alpha.
func Keep(path string, alpha float64) *Keeper {
	k := &Keeper{path: path, alpha: alpha}
	k.Refresh()
	return k
}

// Calibration implements route.Promise.
func (k *Keeper) Calibration() (*rerank.Calibration, string) {
	s := k.standing.Load()
	return s.calibration, s.void
}

// Opened implements route.Promise.
func (k *Keeper) Opened(r *route.Route, settings map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.route, k.settings = r, comparableSettings(settings)
	k.judge()
}

// Described takes the present settings of the indices.
func (k *Keeper) Described(settings map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settings = comparableSettings(settings)
	k.judge()
}

// Refresh reads the calibration again if its file changed, and reports whether it changed.
func (k *Keeper) Refresh() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" {
		if k.standing.Load() == nil {
			k.readAudit()
			k.judge()
		}
		return false
	}
	return k.refresh()
}

func (k *Keeper) refresh() bool {
	var now stamp
	if info, err := os.Stat(k.path); err == nil {
		now = stamp{info.ModTime(), info.Size()}
	}
	if now == k.stamp && k.standing.Load() != nil {
		return false
	}
	k.stamp = now
	k.report, k.broken = Load(k.path)
	k.readAudit()
	k.judge()
	return true
}

// isOpenToSelf reports whether the route may calibrate itself now: the Keeper has no calibration,
// or has an earlier one of the route itself that does not hold. A calibration by an operator is
// never replaced.
func (k *Keeper) isOpenToSelf() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.standing.Load()
	holds := s.calibration != nil && s.void == ""
	return k.broken == nil && k.route != nil && !holds && (k.report == nil || k.report.Source == SelfSource)
}

// adopt takes a calibration that the route made of live answers. The calibration holds even if its file cannot be written.
func (k *Keeper) adopt(r *Report) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Settings = k.settings
	var err error
	if k.path != "" {
		if err = r.Save(k.path); err == nil {
			k.refresh()
			return nil
		}
	}
	k.report, k.broken = r, nil
	k.audit, k.unsaved = Audit{Evidence: 1, Calibration: r.Calibration.Made}, 0
	k.judge()
	return err
}

// readAudit reads the audit of the calibration, or begins a new one.
func (k *Keeper) readAudit() {
	k.audit, k.unsaved = Audit{Evidence: 1}, 0
	if k.report == nil {
		return
	}
	made := k.report.Calibration.Made
	k.audit.Calibration = made
	if k.path == "" {
		return
	}
	var a Audit
	b, err := os.ReadFile(auditPath(k.path))
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil && a.Calibration.Equal(made) && a.Audited >= a.Missed && a.Missed >= 0 {
		k.audit = a
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.broken = fmt.Errorf("%w: %s: %w; calibrate again", ErrFile, auditPath(k.path), err)
	}
}

// judge decides whether the promise holds.
func (k *Keeper) judge() {
	s := &standing{}
	switch {
	case k.broken != nil:
		s.void = k.broken.Error()
	case k.report == nil:
	default:
		if s.void = k.misfit(); s.void != "" {
			break // its depth does not fit the route either
		}
		s.calibration = k.report.Calibration
		if s.void = k.changed(); s.void == "" && k.audit.Rejected != nil {
			s.void = fmt.Sprintf("rejected by the audit of live answers: %d of %d missed the recall, e-value %.3g; calibrate again",
				k.audit.Missed, k.audit.Audited, k.audit.Evidence)
		}
	}
	k.standing.Store(s)
}

// misfit says why the calibration does not fit the route, "" if it does.
func (k *Keeper) misfit() string {
	c, r := k.report.Calibration, k.route
	if r == nil {
		return "the route was not checked against its store yet"
	}
	own := rerank.Rule{Strategy: r.Strategy, Weights: r.Weights, Head: r.Head}
	switch {
	case k.report.Version != r.Model.Version:
		return fmt.Sprintf("it was made for model version %s and the route has %s; calibrate again", k.report.Version, r.Model.Version)
	case k.report.Collection != r.Collection:
		return fmt.Sprintf("it was made for collection %q and the route searches %q; calibrate again", k.report.Collection, r.Collection)
	case !own.Same(c.Rule):
		return fmt.Sprintf("it was made for strategy %s and the route has %s; calibrate again", ruleText(c.Rule), ruleText(own))
	case max(c.Rule.Depth, c.Rule.AverageDepth) > r.MaxDepth:
		return fmt.Sprintf("its depth %d is more than max_depth %d of the route or its store; calibrate again", max(c.Rule.Depth, c.Rule.AverageDepth), r.MaxDepth)
	}
	return ""
}

// changed names a setting of the indices that changed since the calibration, "" if none
// did.
func (k *Keeper) changed() string {
	old := comparableSettings(k.report.Settings)
	names := slices.Sorted(maps.Keys(old))
	for _, name := range slices.Sorted(maps.Keys(k.settings)) {
		if _, ok := old[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if old[name] != k.settings[name] {
			return fmt.Sprintf("index setting %s was %q and is %q; calibrate again", name, old[name], k.settings[name])
		}
	}
	return ""
}

func ruleText(r rerank.Rule) string {
	text := string(r.Strategy) + ", weights " + string(r.Weights)
	if r.Head != "" {
		text += ", head " + r.Head
	}
	return text
}

// Audit returns the audit so far.
func (k *Keeper) Audit() Audit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.audit
}

// saveEvery is the number of audited answers between two writes of the file. A crash forgets
// fewer answers, whatever their recall, which an anytime-valid test permits.
const saveEvery = 20

// note counts an audited answer that carried the calibration c, and rejects the promise
// once the evidence suffices.
func (k *Keeper) note(c *rerank.Calibration, recall float64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.report == nil || k.report.Calibration != c || k.audit.Rejected != nil {
		return nil // a newer calibration was read, or this one is rejected
	}
	a := &k.audit
	a.Audited++
	a.RecallSum += recall
	if !(Promise{Recall: c.Recall}).reached(recall) {
		a.Missed++
	}
	a.Evidence = evidence(a.Audited, a.Missed, c.Share)
	if a.Evidence >= 1/k.alpha {
		now := time.Now().UTC().Truncate(time.Second)
		a.Rejected = &now
		k.judge()
	}
	if k.unsaved++; k.unsaved < saveEvery && a.Rejected == nil {
		return nil
	}
	return k.save()
}

// Save writes the audit if it changed.
func (k *Keeper) Save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsaved == 0 {
		return nil
	}
	return k.save()
}

func (k *Keeper) save() error {
	k.unsaved = 0
	if k.path == "" {
		return nil
	}
	return statedir.WriteJSON(auditPath(k.path), k.audit)
}

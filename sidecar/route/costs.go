package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
)

// Costs keeps how long searches of a route took, to choose between a scan of the table and the
// first stage. It is safe for concurrent use.
type Costs struct {
	mu       sync.Mutex
	perItem  mean // seconds that a scan takes per item
	stage    mean // seconds for the first stage: retrieving lists and feature rows, and scoring them
	searches int
}

// mean is a running mean in which the last eight measurements weigh most; 0 means
// that nothing was measured yet.
type mean float64

func (m *mean) add(x float64) {
	if *m == 0 {
		*m = mean(x)
		return
	}
	*m += (mean(x) - *m) / 8
}

// remeasureEvery is the number of searches after which the slower way is measured
// again, unless it was more than four times as slow.
const remeasureEvery = 128

// Choose returns rerank.Scan or the given first-stage strategy, whichever costs
// less over a table of that many items, and why.
func (c *Costs) Choose(items int, firstStage rerank.Strategy) (rerank.Strategy, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole, stage := float64(c.perItem)*float64(items), float64(c.stage)
	if stage == 0 {
		return firstStage, fmt.Sprintf("%s, to measure the first stage", firstStage)
	}
	c.searches++
	remeasure := c.searches%remeasureEvery == 0 && max(whole, stage) < 4*min(whole, stage)
	chosen := firstStage
	if whole <= stage != remeasure {
		chosen = rerank.Scan
	}
	why := fmt.Sprintf("%s: a scan of %d items takes %.2f ms here, %s %.2f ms", chosen, items, whole*1e3, firstStage, stage*1e3)
	if remeasure {
		why += "; measured again"
	}
	return chosen, why
}

// AddScan counts a scan of that many items.
func (c *Costs) AddScan(took time.Duration, items int) {
	if items > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.perItem.add(took.Seconds() / float64(items))
	}
}

// AddFirstStage counts a search through the store.
func (c *Costs) AddFirstStage(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stage.add(took.Seconds())
}

func (c *Costs) scanMeasured() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.perItem > 0
}

// MeasureScan scans the view's table by a query if no scan was measured yet. It
// returns the scan's error.
func (v View) MeasureScan(ctx context.Context, q rerank.Encoded) error {
	if v.Costs.scanMeasured() {
		return nil
	}
	return v.Costs.addWarmScan(func() (time.Duration, int, error) {
		began := time.Now()
		found, err := v.Scanner().Scan(ctx, scan.Query{Encoded: q, K: 10}, nil)
		return time.Since(began), found.Items, err
	})
}

// addWarmScan calls scan twice, and counts the second call: the first brings the table into memory.
func (c *Costs) addWarmScan(scan func() (took time.Duration, items int, err error)) error {
	if _, _, err := scan(); err != nil {
		return err
	}
	took, items, err := scan()
	if err == nil {
		c.AddScan(took, items)
	}
	return err
}

// measureScan measures a scan when the route is opened, if Choose will need it.
func (c *checking) measureScan(ctx context.Context) error {
	if c.Costs == nil || c.Costs.scanMeasured() {
		return nil
	}
	q, err := c.trialQuery()
	if err != nil {
		return nil // the similarity takes no vector of ones: the first search measures
	}
	v := c.View()
	defer v.Release()
	if err := v.MeasureScan(ctx, q); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("measuring a scan of route %q: %w", c.Name, err)
	}
	return nil
}

package wiring

import (
	"fmt"

	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Promise gives a route the calibration that the state folder has for it and its model
// version, or that it makes of itself, in memory where there is no state folder. A route with a
// ranker, or one that embeds its items again, gets none. Promise returns route.ErrSetup if live answers
// are to be audited but the route's table is rounded.
func Promise(c *config.Config, rt *route.Route) error {
	if rt.RankerName != "" || rt.Reembeds() { // a calibration says nothing about a ranker's order, or about scores that change with every item embedded again
		return nil
	}
	audit, path := c.Routes[rt.Name].Audit, ""
	if c.StateDir != "" {
		path = calibrate.Path(c.StateDir, rt.Name, rt.Model.Version)
	}
	rt.Promise = calibrate.Keep(path, audit.Alpha)
	if audit.Share == 0 {
		return nil
	}
	t := rt.CurrentTable()
	if t == nil {
		return nil // without a table the configuration was refused, or the table failed to open
	}
	defer t.Release()
	if !calibrate.Precise(t) {
		return fmt.Errorf("%w: audit.share: the table is of %s, and live answers are audited in full precision; build it again with `likeness index --full-precision`",
			route.ErrSetup, t.Meta().Format)
	}
	return nil
}

// Audits returns, by route, which live answers are compared with exact ones.
func Audits(c *config.Config) map[string]calibrate.Audits {
	audits := map[string]calibrate.Audits{}
	for name, r := range c.Routes {
		at, _ := r.CalibrationScan.TimeOfDay() // the configuration is valid
		audits[name] = calibrate.Audits{
			Share: r.Audit.Share, PerSecond: r.Audit.PerSecond, Self: r.SelfCalibration,
			Scans: calibrate.Scans{At: at, RowsPerSecond: r.CalibrationScan.RowsPerSecond},
		}
	}
	return audits
}

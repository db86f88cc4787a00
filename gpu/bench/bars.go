package bench

import "fmt"

// Bar is a performance target and its outcome.
type Bar struct {
	What string `json:"what"`
	Unit string `json:"unit"` // "ms": Want is a maximum; "x": Want is a minimum
	// Measured is false if there is no measurement. Have is then 0.
	Measured bool    `json:"measured"`
	Want     float64 `json:"want"`
	Have     float64 `json:"have"`
	Met      bool    `json:"met"`
	// Why names the limiting factor if the target is missed.
	Why string `json:"why,omitempty"`
}

// judge compares the measurements of a case with its targets.
func (r *Result) judge() {
	r.Bars = nil
	most := func(what string, want, have float64) {
		if want > 0 {
			r.Bars = append(r.Bars, Bar{What: what, Unit: "ms", Want: want, Have: have, Measured: have > 0, Met: have > 0 && have <= want})
		}
	}
	least := func(what string, want, have float64) {
		if want > 0 {
			r.Bars = append(r.Bars, Bar{What: what, Unit: "x", Want: want, Have: have, Measured: have > 0, Met: have >= want})
		}
	}
	b := r.Case.Bars
	most("on the device, with copies", b.Device, r.Device.P50)
	most("certified answers", b.Answer, r.Answer.Batch.P50)
	plugin := 0.0
	if r.Plugin != nil {
		plugin = r.Plugin.Batch.P50
	}
	most("through the plugin", b.Plugin, plugin)
	least("times PyTorch, eager float32", b.Eager, r.speedup(func(p *Row) bool { return !p.Compiled && p.Type == "float32" }))
	least("times PyTorch, the best compiled", b.Compiled, r.speedup(func(p *Row) bool { return p.Compiled }))
	for i := range r.Bars {
		if !r.Bars[i].Met && r.Bars[i].Measured {
			r.Bars[i].Why = r.limitingPhase()
		}
	}
}

// speedup returns by which factor the device is faster than the fastest PyTorch row that
// matches. It returns 0 if there is no such row.
func (r *Result) speedup(match func(*Row) bool) float64 {
	least := 0.0
	for i := range r.PyTorch {
		if p := &r.PyTorch[i]; match(p) && p.Times.P50 > 0 && (least == 0 || p.Times.P50 < least) {
			least = p.Times.P50
		}
	}
	if r.Device.P50 == 0 {
		return 0
	}
	return least / r.Device.P50
}

// limitingPhase names the longest phase of the steps and what limits it.
func (r *Result) limitingPhase() string {
	var longest float64
	var why string
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, p := range []namedShare{{"bringing queries", s.Send}, {"ranking", s.Rank}, {"bringing answers", s.Fetch}} {
			if p.share > longest {
				longest, why = p.share, fmt.Sprintf("%s takes %.3f ms of the %s step", p.name, p.share, s.Way)
			}
		}
		if s.Score > longest {
			longest = s.Score
			why = fmt.Sprintf("scoring takes %.3f ms of the %s step, and %s bind: %.0f %% of their limit", s.Score, s.Way, s.Shares.Binds, 100*s.Shares.most())
		}
	}
	if a := r.Answer.Batch.P50; a > 2*r.Device.P50 {
		why += fmt.Sprintf("; certified answers take %.3f ms, %.1f times the steps that a closing bound takes", a, a/r.Device.P50)
	}
	return why
}

func (s *Shares) most() (share float64) {
	for _, limit := range s.named() {
		share = max(share, limit.share)
	}
	return share
}

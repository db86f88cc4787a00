package verdict

import (
	"fmt"
	"strings"
)

// describe states the decision in sentences.
func (d *Decision) describe(c Comparison, r Rule) []string {
	w := words{c, r}
	top := c.Models[d.Best]
	if c.Plain == "" {
		m := c.Models[d.Choice]
		first := fmt.Sprintf("%s has %s %.4f; there is no baseline to compare it with.", w.name(m), c.Metric, m.Value)
		return append([]string{first}, d.describeChoice(w)...)
	}
	switch d.Answer {
	case Yes:
		m := c.Models[d.Choice]
		text := []string{
			fmt.Sprintf("Worth it: take %s.", w.name(m)),
			fmt.Sprintf("%s rises from %.4f (%s) to %.4f: %s.", c.Metric, c.PlainValue, c.Plain, m.Value, w.gain(m)),
		}
		return append(text, d.describeChoice(w)...)
	case No:
		excluded := fmt.Sprintf("A gain of %.2g is excluded.", d.LeastGain)
		if top.Gain.Low > 0 {
			excluded = fmt.Sprintf("The gain is sure, and less than %.2g, the least that is worth having.", d.LeastGain)
		}
		return []string{
			fmt.Sprintf("Not worth it: keep %s.", c.Plain),
			fmt.Sprintf("The best model, %s, has %s %.4f against %.4f: %s. %s",
				top.Name, c.Metric, top.Value, c.PlainValue, w.gain(top), excluded),
		}
	default:
		return []string{
			fmt.Sprintf("Cannot tell: keep %s until more queries judge; needs %s.", c.Plain, d.needed()),
			fmt.Sprintf("The best model, %s, has %s %.4f against %.4f: %s. No gain is possible, and a gain of %.2g is too.",
				top.Name, c.Metric, top.Value, c.PlainValue, w.gain(top), d.LeastGain),
		}
	}
}

// describeChoice explains what the choice gives up against the best model, or why nothing
// simpler was chosen.
func (d *Decision) describeChoice(w words) []string {
	var text []string
	best, choice := w.Models[d.Best], w.Models[d.Choice]
	if d.Choice != d.Best {
		text = append(text, fmt.Sprintf("%s has the greatest %s, %.4f; %s is simpler and as good: %s, no more than the margin of %.4f below.",
			best.Name, w.Metric, best.Value, choice.Name, w.toBest(choice), d.Margin))
	}
	var worse []string
	for i, m := range w.Models[:d.Choice] {
		if d.Standings[i] == Worse {
			worse = append(worse, fmt.Sprintf("%s (%+.4f)", m.Name, m.ToBest.Mean))
		}
	}
	if len(worse) > 0 {
		text = append(text, fmt.Sprintf("What is simpler is worse: %s.", strings.Join(worse, ", ")))
	}
	if len(d.Simpler) > 0 {
		text = append(text, fmt.Sprintf("Cannot tell whether a simpler one is as good, with a margin of %.4f: %s; needs %s.", d.Margin, w.list(d.Simpler), d.needed()))
	}
	if len(d.Better) > 0 {
		text = append(text, fmt.Sprintf("Cannot tell whether another is better by more than %.4f: %s; needs %s.", d.Margin, w.list(d.Better), d.needed()))
	}
	return text
}

// list lists models with their differences to the best one.
func (w words) list(models []int) string {
	var all []string
	for _, i := range models {
		all = append(all, fmt.Sprintf("%s %s", w.Models[i].Name, w.toBest(w.Models[i])))
	}
	return strings.Join(all, ", ")
}

// needed says how many queries answer what is open.
func (d *Decision) needed() string {
	if d.QueriesNeeded == 0 {
		return "more queries than can be estimated"
	}
	return fmt.Sprintf("about %d queries", d.QueriesNeeded)
}

// words formats the parts of a comparison.
type words struct {
	Comparison
	rule Rule
}

func (w words) name(m Model) string {
	if m.Class == "" {
		return m.Name
	}
	return fmt.Sprintf("%s (%s)", m.Name, m.Class)
}

// gain formats a gain, toBest a difference to the best model.
func (w words) gain(m Model) string   { return w.difference(m.Gain, len(w.Models)) }
func (w words) toBest(m Model) string { return w.difference(m.ToBest, len(w.Models)-1) }

// difference formats a difference. together is the number of intervals that hold together.
func (w words) difference(x Difference, together int) string {
	all := ""
	if together > 1 {
		all = fmt.Sprintf(" for all %d", together)
	}
	return fmt.Sprintf("%+.4f (%.4g %%%s: %+.4f to %+.4f)%s", x.Mean, 100*w.rule.Confidence, all, x.Low, x.High, x.Remark)
}

package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/agreement"
	"github.com/likenessdb/likeness/gpu/workload"
)

// Part names a part of a measurement. Parts that are not run keep their earlier figures.
type Part string

// The parts, in their order.
const (
	PartLimits    Part = "limits"    // the limits of the device
	PartKernels   Part = "kernels"   // the steps of each case, on the device
	PartAnswers   Part = "answers"   // certified answers, in this process and through the plugin
	PartAgreement Part = "agreement" // agreement with the CPU for many queries
	PartPyTorch   Part = "pytorch"
)

// Parts returns all parts in order.
func Parts() []Part {
	return []Part{PartLimits, PartKernels, PartAnswers, PartAgreement, PartPyTorch}
}

// AgreementCase is the case for which device and CPU are compared on many queries.
const AgreementCase = "scan-8x8x32"

func (o *Options) has(p Part) bool {
	switch {
	case p == PartPyTorch && o.PyTorch == nil, p == PartAgreement && o.Agreement.Queries == 0:
		return false
	default:
		return o.Parts == nil || slices.Contains(o.Parts, p)
	}
}

// save passes the report on, so that its figures survive however the run ends.
func (o *Options) save(r *Report) error {
	if o.Saved == nil {
		return nil
	}
	r.judge()
	return o.Saved(r)
}

// Read decodes a report from JSON.
func Read(raw []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	for i := range r.Cases {
		c := &r.Cases[i]
		known, err := workload.Named([]string{c.Name})
		if err != nil {
			return nil, err
		}
		c.Case = known[0].AtMost(c.Rows)
	}
	return r, nil
}

// newReport returns the earlier report, extended by the cases that are to be measured.
func (o *Options) newReport() (*Report, error) {
	r := &Report{}
	if o.Before != nil {
		*r = *o.Before
		r.Cases = nil
		for _, c := range o.Before.Cases {
			c.fromBefore = true
			r.Cases = append(r.Cases, c)
		}
	}
	for _, c := range o.Cases {
		added := Result{Case: c.AtMost(o.Rows)}
		i := slices.IndexFunc(r.Cases, func(r Result) bool { return r.Name == c.Name })
		switch {
		case i < 0:
			r.Cases = append(r.Cases, added)
		case r.Cases[i].Rows != added.Rows:
			return r, fmt.Errorf("case %s has %d rows in the report so far, and %d now; begin another report", c.Name, r.Cases[i].Rows, added.Rows)
		default:
			r.Cases[i].fromBefore = false
		}
	}
	order := workload.Cases()
	at := func(name string) int {
		return slices.IndexFunc(order, func(c workload.Case) bool { return c.Name == name })
	}
	slices.SortStableFunc(r.Cases, func(a, b Result) int { return cmp.Compare(at(a.Name), at(b.Name)) })
	return r, nil
}

func (r *Report) judge() {
	for i := range r.Cases {
		r.Cases[i].judge()
	}
}

// measureAgreement compares the device with the CPU on many queries.
func (o *Options) measureAgreement(ctx context.Context, r *Report) error {
	cases, err := workload.Named([]string{AgreementCase})
	if err != nil {
		return err
	}
	return o.onDevice(func(d *gpu.Device) error {
		var saved error
		_, err := agreement.Compare(ctx, d, cases[0].AtMost(o.Rows), o.Agreement, func(so agreement.Result) {
			r.Agreement = &so
			o.Told("agreement: " + so.String())
			saved = cmp.Or(saved, o.save(r))
		})
		return errors.Join(err, saved)
	})
}

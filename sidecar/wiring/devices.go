package wiring

import (
	"cmp"
	"slices"

	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
)

// offload has the version's table scored by a device plugin. There is nothing to do
// for a version without a table, or where no plugin has that name.
func (v *Version) offload(r *Rankers, route, plugin string) {
	p := r.Plugin(plugin)
	if p == nil || v.table == nil {
		return
	}
	resident := func() *table.Table { return v.Route.Table }
	if live := v.Route.Live; live != nil {
		resident = live.Snapshot
	}
	v.device = offload.New(offload.Options{
		Plugin: plugin, Route: route, Version: v.Name, Conn: p.Conn(), Model: v.Model, Table: resident, Logger: r.log,
	})
	v.Route.Device = v.device
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices[v.device] = true
}

// closeDevice ends the use of the version's device, which reads the table.
func (v *Version) closeDevice(r *Rankers) error {
	if v.device == nil {
		return nil
	}
	r.mu.Lock()
	delete(r.devices, v.device)
	r.mu.Unlock()
	return v.device.Close()
}

// Devices lists how devices do, by route and version.
func (r *Rankers) Devices() []offload.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []offload.Status
	for d := range r.devices {
		all = append(all, d.Status())
	}
	slices.SortFunc(all, func(a, b offload.Status) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// closeDevices frees what devices have, while their plugins still answer.
func (r *Rankers) closeDevices() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range r.devices {
		_ = d.Close()
	}
}

package wiring

import (
	"cmp"
	"slices"

	"github.com/likenessdb/likeness/sidecar/plugins/offload"
)

// offload lets a device plugin score the version's table. It does nothing for a version
// without a table, or if no plugin has that name.
func (v *Version) offload(r *Rankers, route, plugin string) {
	p := r.Plugin(plugin)
	if p == nil || v.table == nil {
		return
	}
	v.device = offload.New(offload.Options{
		Plugin: plugin, Route: route, Version: v.Name, Conn: p.Conn(), Model: v.Model, Table: v.Route.CurrentTable, Logger: r.log,
	})
	v.Route.Device = v.device
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices[v.device] = true
}

// closeDevice ends the version's use of its device. The table has to be open until then.
func (v *Version) closeDevice(r *Rankers) error {
	if v.device == nil {
		return nil
	}
	r.mu.Lock()
	delete(r.devices, v.device)
	r.mu.Unlock()
	return v.device.Close()
}

// Devices lists the states of the devices, sorted by route and version.
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

// closeDevices frees the memory of the devices while their plugins still answer.
func (r *Rankers) closeDevices() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range r.devices {
		_ = d.Close()
	}
}

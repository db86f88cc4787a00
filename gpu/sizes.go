package gpu

import "github.com/likenessdb/likeness/gpu/kernels"

// Details describes a device beyond its Facts, as reported by the driver. Unknown values
// are 0.
type Details struct {
	// ClockMHz and MemoryClockMHz are maxima. BusBits is the width of the memory bus, and
	// CacheBytes the size of the cache.
	ClockMHz       float64 `json:"clock_mhz"`
	MemoryClockMHz float64 `json:"memory_clock_mhz"`
	BusBits        int     `json:"memory_bus_bits"`
	CacheBytes     int     `json:"l2_bytes"`
	SharedBytes    int     `json:"shared_bytes_per_block"`
	// Release is the driver's release, such as 580.65.06. Facts.Driver is its CUDA version.
	Release string `json:"driver_release"`
}

// GBs returns the peak bandwidth of the memory: two transfers per clock cycle.
func (d *Details) GBs() float64 { return 2 * d.MemoryClockMHz * float64(d.BusBits) / 8 / 1e3 }

// Capacity returns the number of rows for which a table of the given size gets memory. The
// spare room allows rows to be added without moving the table.
func Capacity(rows int) int { return capacityOf(rows) }

// RowBytes returns the memory of a row on a device: its features in float32 and, if tensor
// cores approximate φ, also the components in float16 and a second copy of the item's part
// of the gates.
func (n *Network) RowBytes(tensor bool) int64 {
	row := 4 * int64(n.Features)
	switch {
	case !tensor:
		return row
	case n.InnerProduct():
		return row + 2*int64(kernels.ScreenWidth(n.Features))
	}
	row += 2 * int64(n.MoL.PairsItem*n.MoL.Dim)
	if n.MoL.ItemGates {
		row += 4 * int64(n.MoL.PairsQuery*n.MoL.PairsItem)
	}
	return row
}

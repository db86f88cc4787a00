package gpu

// Details of a device beside its Facts, as its driver says them. What it does not say is 0.
type Details struct {
	// ClockMHz and MemoryClockMHz are the greatest there are, BusBits the width of the
	// memory's bus, CacheBytes the size of its cache.
	ClockMHz       float64 `json:"clock_mhz"`
	MemoryClockMHz float64 `json:"memory_clock_mhz"`
	BusBits        int     `json:"memory_bus_bits"`
	CacheBytes     int     `json:"l2_bytes"`
	SharedBytes    int     `json:"shared_bytes_per_block"`
	// Release of the driver, as 580.65.06; Facts have the version of CUDA that it has.
	Release string `json:"driver_release"`
}

// GBs is what the memory delivers at most by its clock: two transfers each.
func (d *Details) GBs() float64 { return 2 * d.MemoryClockMHz * float64(d.BusBits) / 8 / 1e3 }

// Capacity is how many rows a table of some rows is given room for, so that rows can be
// added before it has to be moved.
func Capacity(rows int) int { return capacityOf(rows) }

// RowBytes is what a row takes on a device: its features in float32 and, where tensor
// cores approximate φ, the components in float16 and the item's part of the gates again.
func (n *Network) RowBytes(tensor bool) int64 {
	row := 4 * int64(n.Features)
	if tensor {
		row += 2 * int64(n.MoL.PairsItem*n.MoL.Dim)
		if n.MoL.ItemGates {
			row += 4 * int64(n.MoL.PairsQuery*n.MoL.PairsItem)
		}
	}
	return row
}

// Command sass says what limits a MoL kernel on a device, without one: it counts the clocks
// that each part of a multiprocessor is busy with 32 items and a query, and replays the
// kernel's machine code with the scheduler's control bits.
//
//	tools/gpu.sh clocks    # disassembles gpu/kernels/kernels.ptx for sm_90 and runs this
//
// A replay guesses latencies that are not documented, low and high: it is an estimate
// within some 25 %, and no measurement.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sass:", err)
		os.Exit(1)
	}
}

// device is the GPU for which times are estimated, and the scan whose time it is.
type device struct {
	multiprocessors, warps int // warps on a multiprocessor
	megahertz              float64
	items, queries         int
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	var d device
	flags := flag.NewFlagSet("sass", flag.ContinueOnError)
	flags.IntVar(&d.multiprocessors, "multiprocessors", 132, "multiprocessors of the device")
	flags.IntVar(&d.warps, "warps", 8, "warps on a multiprocessor, a multiple of its four schedulers")
	flags.Float64Var(&d.megahertz, "mhz", 1755, "clock of the device in MHz")
	flags.IntVar(&d.items, "items", 674044, "items of the scan whose time is estimated")
	flags.IntVar(&d.queries, "queries", 32, "queries of that scan")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if d.warps < schedulers || d.warps%schedulers != 0 || d.multiprocessors < 1 || d.megahertz <= 0 {
		return fmt.Errorf("%d warps on %d multiprocessors at %g MHz: warps are a multiple of %d, the others positive",
			d.warps, d.multiprocessors, d.megahertz, schedulers)
	}
	kernels, err := parse(stdin)
	if err != nil {
		return err
	}
	return d.print(kernels, stdout)
}

const schedulers = 4 // of a multiprocessor

// shape reads the hidden units from the name of a scan whose components stay in shared
// memory: mol_scan_8x8x32x128. Those of 768 columns are read piece by piece, and no loop of
// that kernel is a whole tile.
var shape = regexp.MustCompile(`^mol_scan_\d+x\d+x(?:32|64|128)x(\d+)$`)

func (d device) print(kernels map[string]*kernel, stdout io.Writer) error {
	var names []string
	for name := range kernels {
		if shape.MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return errors.New("no scan of a MoL in the disassembly: give it what nvdisasm -hex prints")
	}
	slices.Sort(names)
	low, high := guesses()
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "kernel\tissue\tspecial functions\ttensor cores\tshared memory\treplay, clocks\treplay, ms\t\n")
	for _, name := range names {
		hidden, err := strconv.Atoi(shape.FindStringSubmatch(name)[1])
		if err != nil {
			return err
		}
		code, err := kernels[name].way(hidden)
		if err != nil {
			return err
		}
		c := clocksOf(code)
		fast, slow := d.tile(code, low), d.tile(code, high)
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f–%.0f\t%.0f\t%.0f–%.0f\t%.2f–%.2f\t\n", name,
			c.issue, c.special, c.tensorLow, c.tensorHigh, c.shared, fast, slow, d.milliseconds(fast), d.milliseconds(slow))
	}
	return t.Flush()
}

// clocks is how long each part of a multiprocessor is busy with one pass.
type clocks struct {
	issue, special, tensorLow, tensorHigh, shared float64
}

// clocksOf counts: four instructions are issued a clock, 16 special functions evaluated,
// 128 bytes of shared memory moved. A product takes a quarter of the multiprocessor 4 clocks
// or 8. A matrix load moves 512 bytes; other accesses and shuffles are taken for 128 bytes,
// because lanes read few addresses.
func clocksOf(code []instruction) clocks {
	var n [float + 1]float64
	for _, i := range code {
		n[i.kind]++
	}
	return clocks{
		issue:      float64(len(code)) / schedulers,
		special:    n[special] * 32 / 16,
		tensorLow:  n[tensor] * 4 / schedulers,
		tensorHigh: n[tensor] * 8 / schedulers,
		shared:     n[matrix]*4 + n[shared] + n[shuffle],
	}
}

// replayed is how many passes each warp makes in a replay: enough that the first, which
// finds every part free, counts little.
const replayed = 6

// tile returns the clocks of a multiprocessor for 32 items and a query.
func (d device) tile(code []instruction, g guess) float64 {
	warps := d.warps / schedulers
	return float64(replay(code, warps, replayed, g)) / float64(d.warps*replayed)
}

// milliseconds returns the time of the whole scan.
func (d device) milliseconds(clocks float64) float64 {
	tiles := float64(d.items) / 32 * float64(d.queries) / float64(d.multiprocessors)
	return tiles * clocks / (d.megahertz * 1e3)
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// free is the control bits of an instruction that waits for nothing and is followed by the
// next after a clock.
const free = 1<<41 | 7<<46 | 7<<49

// listing writes instructions as nvdisasm -hex does. A line that ends in a colon is a label.
func listing(name string, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".text.%s:\n", name)
	at := 0
	for _, line := range lines {
		if strings.HasSuffix(line, ":") {
			b.WriteString(line + "\n")
			continue
		}
		text, bits, ok := strings.Cut(line, " # ")
		if !ok {
			bits = fmt.Sprintf("%016x", uint64(free))
		}
		fmt.Fprintf(&b, "        /*%04x*/                   %s ;   /* 0x%016x */\n", at, text, 0)
		fmt.Fprintf(&b, "                                          /* 0x%s */\n", bits)
		at += 16
	}
	return b.String() + "//--------------------- .nv.global --------------------------\n/*0000*/ .byte 1\n"
}

// scan is a kernel with a loop over tiles (.L_x_1), in it one over two hidden units at a time
// (.L_x_2), and a branch around the code of bounds, which lies behind the end.
func scan() string {
	return listing("mol_scan_1x1x32x4",
		"MOV R1, R2",
		".L_x_1:", "LDSM.16.M88.4 R4, [R1]", "HMMA.16816.F32 R8, R4, R6, R8",
		".L_x_2:", "MUFU.TANH R3, R3", "MUFU.TANH R5, R5", "@!P2 BRA `(.L_x_2)",
		"MUFU.EX2 R3, R3", "@P1 BRA `(.L_x_4)",
		"STG.E [R1], R3",
		".L_x_3:", "BRA UP0, `(.L_x_1)", "EXIT",
		".L_x_4:", "SHFL.BFLY PT, R1, R2, 0x1, 0x1f", "LDS R1, [R2]", "BRA `(.L_x_3)", "BRA.DIV UR4, `(.L_x_1)")
}

func TestTheLongestWayThroughATileIsCounted(t *testing.T) {
	kernels, err := parse(strings.NewReader(scan()))
	if err != nil {
		t.Fatal(err)
	}
	code, err := kernels["mol_scan_1x1x32x4"].way(4)
	if err != nil {
		t.Fatal(err)
	}
	var addresses []int
	for _, i := range code {
		addresses = append(addresses, i.address/16)
	}
	if want := []int{1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 11, 12, 13, 9}; !slices.Equal(addresses, want) {
		t.Errorf("way %v, want %v", addresses, want)
	}
	if got, want := clocksOf(code), (clocks{issue: 14. / 4, special: 5 * 2, tensorLow: 1, tensorHigh: 2, shared: 4 + 1 + 1}); got != want {
		t.Errorf("clocks %+v, want %+v", got, want)
	}
}

func TestReplay(t *testing.T) {
	sets := fmt.Sprintf(" # %016x", uint64(1<<41|0<<46|7<<49))        // the result clears barrier 0
	waits := fmt.Sprintf(" # %016x", uint64(1<<41|7<<46|7<<49|1<<52)) // waits for barrier 0
	stalls := fmt.Sprintf(" # %016x", uint64(9<<41|7<<46|7<<49))
	g := guess{latency: map[kind]int{special: 20, float: 4}, busy: map[kind]int{special: 8}}
	for _, c := range []struct {
		name  string
		lines []string
		warps int
		want  int
	}{
		{"one instruction a clock", []string{"NOP", "NOP", "NOP"}, 1, 3},
		{"warps share the scheduler", []string{"NOP", "NOP", "NOP"}, 2, 6},
		{"a stall delays the warp", []string{"NOP" + stalls, "NOP"}, 1, 10},
		{"another warp fills a stall", []string{"NOP" + stalls, "NOP"}, 2, 11},
		{"a part takes one at a time", []string{"MUFU.EX2 R1, R1", "MUFU.EX2 R2, R2"}, 1, 9},
		{"a barrier waits for the result", []string{"MUFU.EX2 R1, R2" + sets, "FADD R3, R1, R2" + waits}, 1, 29},
	} {
		kernels, err := parse(strings.NewReader(listing("k", c.lines...)))
		if err != nil {
			t.Fatal(err)
		}
		if got := replay(kernels["k"].code, c.warps, 1, g); got != c.want {
			t.Errorf("%s: %d clocks, want %d", c.name, got, c.want)
		}
	}
}

func TestWhatIsNoListingIsRefused(t *testing.T) {
	for _, listed := range []string{"", "no listing", listing("mol_scan_1x1x32x4", "EXIT"), listing("mol_scan_1x1x32x4", "BRA `(.L_x_9)")} {
		if err := run(nil, strings.NewReader(listed), io.Discard); err == nil {
			t.Errorf("%q is taken", listed)
		}
	}
}

package kernels_test

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// TestPTX: the module has the kernels that this package names and the emulator runs,
// each with as many parameters, of 8 bytes.
func TestPTX(t *testing.T) {
	want := map[string]kernels.Arguments{
		"rows_pack": kernels.RowsPackArgs{}, "rows_move": kernels.RowsMoveArgs{}, "dot_rows": kernels.DotArgs{}, "dot_screen": kernels.ScreenArgs{}, "top_k": kernels.TopKArgs{},
		"mol_exact": kernels.ExactArgs{}, "mol_weights": kernels.WeightsArgs{}, "queries_pack": kernels.QueriesArgs{},
	}
	for _, s := range kernels.Shapes() {
		want[s.Scan(1, 32, 1).Name], want[s.Rescore(1, 1, 1).Name] = kernels.TensorArgs{}, kernels.TensorArgs{}
	}
	entries := regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)`).FindAllStringSubmatch(kernels.PTX(), -1)
	if len(entries) != len(want) {
		t.Errorf("%d kernels, want %d", len(entries), len(want))
	}
	list, err := os.ReadFile("emulator/kernels.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		args, ok := want[e[1]]
		if !ok {
			t.Errorf("nothing names the kernel %s", e[1])
			continue
		}
		parameters := strings.Split(e[2], ",")
		if len(parameters) != len(args.List()) || slices.ContainsFunc(parameters, func(p string) bool { return !strings.Contains(p, ".u64") }) {
			t.Errorf("%s has the parameters %s, want %d of 8 bytes", e[1], e[2], len(args.List()))
		}
		if !strings.Contains(string(list), "ENTRY("+e[1]+")") {
			t.Errorf("the emulator does not run %s", e[1])
		}
	}
}

// TestGeometry: a driver of CUDA 12.0 can read the PTX's version. Every launch, including those for the
// largest table, uses the block size for which its kernel was compiled and a grid within the limits.
func TestGeometry(t *testing.T) {
	if text := kernels.PTX(); !strings.Contains(text, "\n.version 8.0\n") || !strings.Contains(text, "\n.target sm_80\n") {
		t.Error("the PTX is not of version 8.0, for sm_80")
	}
	const rows = math.MaxInt32
	launches := []kernels.Launch{kernels.RowsPack(rows), kernels.RowsMove(rows), kernels.DotRescore(rows, 32), kernels.ScreenRescore(rows, 32, 132)}
	for _, queries := range []int{1, 8, 32} {
		launches = append(launches, kernels.DotScan(rows, queries), kernels.ScreenScan(rows, queries, 132))
	}
	for _, step := range kernels.TopKPlan(rows, 32, 16384) {
		launches = append(launches, step.Launch)
	}
	odd := kernels.Shape{PairsQuery: 3, PairsItem: 5, Dim: 7, Hidden: 9}
	for _, s := range append(kernels.Shapes(), odd) {
		exact, _, err := s.ExactScan(rows, 32, sharedMemory)
		if err != nil {
			t.Fatal(err)
		}
		queries, _ := s.Queries(32)
		launches = append(launches, exact, queries, s.Weights())
		if s.Tensor() {
			launches = append(launches, s.Scan(rows, 16, 132), s.Scan(rows, 1, 132), s.Rescore(rows, 32, 132))
		}
	}
	compiled := map[string]string{}
	for _, e := range regexp.MustCompile(`(?s)\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)`).FindAllStringSubmatch(kernels.PTX(), -1) {
		compiled[e[1]] = e[2]
	}
	for _, l := range launches {
		if strconv.Itoa(l.Block) != compiled[l.Name] {
			t.Errorf("%s has blocks of %d threads, and was compiled for %s", l.Name, l.Block, compiled[l.Name])
		}
		if l.GridX < 1 || l.GridX > math.MaxInt32 || l.GridY < 1 || l.GridY > 65535 || l.Shared > sharedMemory {
			t.Errorf("%+v", l)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, s := range kernels.Shapes() {
		queries := s.ScanQueries(sharedMemory)
		if queries < 16 {
			t.Errorf("%s scans for %d queries at once", s, queries)
		}
		if l := s.Scan(1000, queries, 132); l.Shared > sharedMemory || l.Block > 256 {
			t.Errorf("%s: %+v", s, l)
		}
		if l := s.Rescore(1000, 32, 132); l.Shared > sharedMemory || l.GridX*l.GridY < 100 || l.GridX*l.GridY > 2*132 {
			t.Errorf("%s: %+v", s, l)
		}
		if !s.Tensor() || s.ScanQueries(1000) != 0 {
			t.Errorf("%s: no kernels, or they need no memory", s)
		}
	}
	odd := kernels.Shape{PairsQuery: 3, PairsItem: 5, Dim: 7, Hidden: 9}
	if odd.Tensor() || odd.ScanQueries(sharedMemory) != 0 {
		t.Errorf("%s has kernels", odd)
	}
}

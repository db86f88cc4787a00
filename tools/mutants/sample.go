package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sampling says which defects to draw at random, and which tests to run.
type sampling struct {
	packages []string // patterns of packages
	count    int
	seed     uint64
	tests    []string // more arguments of go test, for the packages' own tests
}

// memoryLimit is the most that a test may allocate: a defect may make a loop endless.
const memoryLimit = 8 << 30

// runSample plants defects that are drawn at random, runs the tests of their packages, and writes the share noticed and
// a record of every survivor. If ctx ends, it says so of those that it tested, and returns the context's error.
func (r *runner) runSample(ctx context.Context, s sampling) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: memoryLimit, Max: memoryLimit}); err != nil {
		return fmt.Errorf("limit the memory of the tests: %w", err)
	}
	packages, err := loadPackages(ctx, r.root, s.packages)
	if err != nil {
		return err
	}
	known, err := r.knownEquivalent()
	if err != nil {
		return err
	}
	mutants := s.draw(r.out, packages, known)
	if err := r.timeAlso(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var own, also, ran int
	var survivors []mutant
	for i := range mutants {
		m := &mutants[i]
		if err := r.timeClean(ctx, m); err != nil {
			return err
		}
		verdict := r.test(ctx, m, dir)
		if ctx.Err() != nil {
			break
		}
		ran++
		switch verdict.verdict {
		case noticed:
			own++
		case elsewhere:
			also++
		default:
			survivors = append(survivors, *m)
		}
		fmt.Fprintf(r.out, "%-9s %s: %q → %q%s\n", verdict.verdict, m.file, m.old, m.new, verdict.detail)
	}
	writeRecords(r.out, survivors)
	low, high := wilson(own, ran)
	fmt.Fprintf(r.out, "\nThe packages' own tests noticed %d of %d defects (seed %d): %.0f %%, 95 %% interval %.0f to %.0f %%.\n",
		own, ran, s.seed, 100*float64(own)/float64(max(1, ran)), 100*low, 100*high)
	if len(r.also) > 0 {
		fmt.Fprintf(r.out, "%s noticed %d more.\n", strings.Join(r.also, " "), also)
	}
	return ctx.Err()
}

// draw returns defects that compile, drawn at random from all packages that have tests, sorted by package. An edit keeps
// its place in the draw when other lines change. Defects that are known to be equivalent are left out.
func (s *sampling) draw(out io.Writer, packages []*goPackage, known map[string]bool) []mutant {
	type candidate struct {
		pkg  *goPackage
		file *sourceFile
		edit edit
		mutant
		rank uint64
	}
	var all []candidate
	for _, p := range packages {
		if !p.hasTests {
			fmt.Fprintf(out, "%s has no tests, and is left out\n", p.path)
			continue
		}
		for i := range p.files {
			f := &p.files[i]
			for _, e := range findEdits(p, f) {
				old, changed := e.record(string(f.source))
				hash := fnv.New64a()
				fmt.Fprintf(hash, "%d\x00%s\x00%s\x00%s", s.seed, f.name, old, changed)
				all = append(all, candidate{p, f, e, mutant{file: f.name, old: old, new: changed, test: append([]string{p.path}, s.tests...)}, mix(hash.Sum64())})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	var drawn []mutant
	for _, c := range all {
		if len(drawn) == s.count {
			break
		}
		changed := slices.Concat(c.file.source[:c.edit.start], []byte(c.edit.text), c.file.source[c.edit.end:])
		if !known[withoutSpace(c.file.name, changed)] && c.pkg.compiles(c.file.name, changed) {
			drawn = append(drawn, c.mutant)
		}
	}
	fmt.Fprintf(out, "%d defects drawn from about %d\n", len(drawn), len(all))
	slices.SortStableFunc(drawn, func(a, b mutant) int { return cmp.Compare(a.test[0], b.test[0]) })
	return drawn
}

// mix makes every bit of a hash depend on every other, by the finaliser of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// knownEquivalent returns the changed files of the defects that the lists call equivalent.
func (r *runner) knownEquivalent() (map[string]bool, error) {
	known := map[string]bool{}
	lists, err := readLists(filepath.Join(r.root, "tools", "mutants"), "")
	if errors.Is(err, errNoList) {
		return known, nil
	}
	for i := range lists {
		if m := &lists[i]; m.equivalent != "" {
			changed, err := r.apply(m)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m, err)
			}
			known[withoutSpace(m.file, changed)] = true
		}
	}
	return known, err
}

// withoutSpace returns a file's text for a comparison that ignores its layout.
func withoutSpace(name string, source []byte) string {
	return name + "\x00" + string(bytes.Join(bytes.Fields(source), []byte(" ")))
}

// writeRecords writes the defects in the form of a list, for somebody to say what each would harm.
func writeRecords(out io.Writer, mutants []mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "\nfile: %s\nold: %s\n", m.file, strings.ReplaceAll(m.old, "\n", "\nold: "))
		if m.new != "" {
			fmt.Fprintf(out, "new: %s\n", strings.ReplaceAll(m.new, "\n", "\nnew: "))
		}
		fmt.Fprintf(out, "harm: \ntest: %s\n", strings.Join(m.test, " "))
	}
}

// wilson returns Wilson's 95 % interval of a share.
func wilson(successes, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.96
	total := float64(n)
	share := float64(successes) / total
	centre := (share + z*z/(2*total)) / (1 + z*z/total)
	half := z / (1 + z*z/total) * math.Sqrt(share*(1-share)/total+z*z/(4*total*total))
	return max(0, centre-half), min(1, centre+half)
}

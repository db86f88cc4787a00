// Command mutants plants small defects in the code, one at a time, and runs the
// tests that ought to notice each of them.
//
// The defects are data: every file *.txt beside this one lists the defects of one area,
// such as bounds.txt. A list consists of records that are separated by empty lines;
// a line that begins with # is a comment. A record looks like this:
//
//	file: rerank/scan/worker.go
//	old:  if !(b < threshold) {
//	new:  if b > threshold {
//	harm: an item that ties with the K-th score is left out of the answer
//	test: ./rerank/scan
//
// The text behind "old: " or "new: " counts as it stands, without the spaces and
// tabs around it. Several lines "old:", or "new:", are lines of one text; their
// indentation counts from the second one on. The old text must occur exactly once
// in the file, so give it a second line where one does not tell it apart. Without
// "new:" the old text is deleted. "test:" holds the arguments of go test: packages, and flags
// such as -run or -short. A record may end with
//
//	equivalent: why no test can notice this
//
// and is then checked to apply, but not run.
//
// mutants never changes the tree: the compiler reads the changed file by way of
// go's flag -overlay. It reports each defect as noticed or survived, and exits with
// status 1 if one survived, does not apply any more, or does not compile. Tests that take
// more than five times as long as without the defect have noticed it. Where a test was skipped for
// a reason that tools/skips.txt does not list, a defect is reported as unclear and not as survived.
//
// With -first FILE, the first complete run of a list adds the share that its tests noticed to that file of samples.
// With -also, more tests run for what the tests of a record do not notice.
//
// With -sample, the defects are drawn at random from the code of some packages instead:
//
//	mutants -sample ./rerank/... -n 40 -seed 1
//
// A statement is deleted, a field of a literal left out, a condition or half of it ignored, an
// argument replaced by zero or swapped with its neighbour, an error swallowed, or min and max
// exchanged. The survivors are printed as records, with the share of defects that were noticed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("root", ".", "the root of the repository")
	area := flags.String("area", "", "the list to run, such as bounds; empty: every list")
	match := flags.String("match", "", "run only defects whose file, old text or harm contains this")
	jobs := flags.Int("jobs", 1, "defects to test at a time")
	record := flags.String("results", "", "a JSON file that keeps what came of every list; not with -match")
	again := flags.Bool("again", false, "run only the defects that -results has as not noticed, of lists that are as they were")
	check := flags.Bool("check", false, "only check that every defect still applies")
	sample := flags.String("sample", "", "instead of the lists, draw defects from the packages of these patterns")
	tests := flags.String("tests", "", "more arguments of go test, such as -run TestFast, for the own tests of a -sample's packages")
	count := flags.Int("n", 40, "the defects that -sample draws")
	seed := flags.Uint64("seed", 1, "the seed that -sample draws with")
	also := flags.String("also", "", "arguments of go test: more tests, for what the tests of a record, or the own tests of a -sample's packages, do not notice")
	first := flags.String("first", "", "a JSON file of samples, to which the first run of a list adds its share; not with -match")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *match != "" && (*record != "" || *first != "") {
		return errors.New("-results and -first keep whole lists: leave -match out")
	}
	if *again && *first != "" {
		return errors.New("-again runs what has run before: leave -first out")
	}
	absolute, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	accepted, err := readSkips(filepath.Join(absolute, "tools", "skips.txt"))
	if err != nil {
		return err
	}
	r := runner{root: absolute, out: out, jobs: *jobs, also: strings.Fields(*also), accepted: accepted, limits: map[string]time.Duration{}}
	if *sample != "" {
		r.jobs = 1
		return r.runSample(ctx, sampling{
			packages: strings.Fields(*sample), count: *count, seed: *seed, tests: strings.Fields(*tests),
		})
	}
	mutants, err := readLists(filepath.Join(absolute, "tools", "mutants"), *area)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !m.matches(*match) })
	var before []areaResult
	if *again {
		if before, err = readResults(*record); err != nil {
			return err
		}
		if mutants, err = survivorsOf(before, mutants); err != nil {
			return err
		}
	}
	if err := r.checkAll(mutants); err != nil || *check {
		return err
	}
	results, err := r.testAll(ctx, mutants)
	if err != nil {
		return err
	}
	if *first != "" {
		if err := recordFirst(*first, firstResults(mutants, results, today(), os.Getenv("LIKENESS_SERVERS") != "")); err != nil {
			return err
		}
	}
	if *record != "" {
		ran := areaResults(mutants, results, today())
		if *again {
			ran = addNoticed(before, ran)
		}
		if err := recordResults(*record, ran); err != nil {
			return err
		}
	}
	return summarise(out, mutants, results)
}

// mutant is one defect.
type mutant struct {
	area       string // the name of its list
	file       string // relative to the root
	old, new   string
	harm       string   // what a user would suffer
	test       []string // arguments of go test
	equivalent string   // why no test can notice it; usually empty
	at         string   // where its record begins: list.txt:12
}

func (m *mutant) matches(text string) bool {
	return strings.Contains(m.file+"\n"+m.old+"\n"+m.harm, text)
}

func (m *mutant) String() string { return fmt.Sprintf("%s %s: %s", m.at, m.file, m.harm) }

var errNoList = errors.New("no list")

// readLists reads the list of one area, or every list where area is empty.
func readLists(dir, area string) ([]mutant, error) {
	if area == "" {
		area = "*"
	}
	lists, err := filepath.Glob(filepath.Join(dir, area+".txt"))
	if err != nil {
		return nil, err
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("%w %s.txt in %s", errNoList, area, dir)
	}
	var all []mutant
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		some, err := parse(filepath.Base(path), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// parse reads the records of one list.
func parse(name, text string) ([]mutant, error) {
	var all []mutant
	var m *mutant // the record that is being read
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			m = nil
			continue
		}
		if m == nil {
			all = append(all, mutant{area: strings.TrimSuffix(name, ".txt"), at: at})
			m = &all[len(all)-1]
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || !m.set(key, value) {
			return nil, fmt.Errorf("%s: %q is no line of a record; want file:, old:, new:, harm:, test: or equivalent:", at, line)
		}
	}
	for i := range all {
		if m := &all[i]; m.file == "" || m.old == "" || m.harm == "" || len(m.test) == 0 {
			return nil, fmt.Errorf("%s: a record needs file:, old:, harm: and test:", m.at)
		}
	}
	return all, nil
}

// set stores one line of a record.
func (m *mutant) set(key, value string) bool {
	switch trimmed := strings.TrimSpace(value); key {
	case "file":
		m.file = trimmed
	case "old":
		m.old = addLine(m.old, value)
	case "new":
		m.new = addLine(m.new, value)
	case "harm":
		m.harm = trimmed
	case "test":
		m.test = strings.Fields(trimmed)
	case "equivalent":
		m.equivalent = trimmed
	default:
		return false
	}
	return true
}

// addLine adds a line to a text, trimmed if it is the first.
func addLine(text, line string) string {
	if text == "" {
		return strings.TrimSpace(line)
	}
	return text + "\n" + strings.TrimRight(strings.TrimPrefix(line, " "), " \t")
}

// runner applies defects to the tree at root and writes what comes of them to out.
type runner struct {
	root     string
	out      io.Writer
	jobs     int                      // defects to test at a time
	also     []string                 // arguments of go test, for the defects that a record's own tests do not notice
	accepted []*regexp.Regexp         // the reasons for which a test may be skipped
	limits   map[string]time.Duration // how long tests may take with a defect, by their arguments
}

// cleanLimit is enough for every package without a defect.
const cleanLimit = 10 * time.Minute

// checkAll reports every defect that does not apply.
func (r *runner) checkAll(mutants []mutant) error {
	stale := 0
	for i := range mutants {
		if _, err := r.apply(&mutants[i]); err != nil {
			stale++
			fmt.Fprintf(r.out, "STALE     %s: %v\n", &mutants[i], err)
		}
	}
	if stale > 0 {
		return fmt.Errorf("%d of %d defects do not apply any more; mend their records", stale, len(mutants))
	}
	return nil
}

// apply returns the file of a mutant with its defect.
func (r *runner) apply(m *mutant) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(r.root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("the old text occurs %d times, want once: %q", n, m.old)
	}
	return bytes.Replace(source, []byte(m.old), []byte(m.new), 1), nil
}

// testAll runs the tests of every mutant, some at a time, after the same tests
// passed without a defect. It stops when ctx ends, and returns the context's error.
func (r *runner) testAll(ctx context.Context, mutants []mutant) ([]result, error) {
	for i := range mutants {
		if err := r.timeClean(ctx, &mutants[i]); err != nil {
			return nil, err
		}
	}
	if err := r.timeAlso(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	results := make([]result, len(mutants))
	next := make(chan int)
	var wg sync.WaitGroup
	for worker := range r.jobs {
		wg.Go(func() {
			for i := range next {
				results[i] = r.test(ctx, &mutants[i], filepath.Join(dir, fmt.Sprint(worker)))
				if ctx.Err() != nil { // the tests were interrupted, and did not notice anything
					return
				}
				fmt.Fprintf(r.out, "%-9s %s%s\n", results[i].verdict, &mutants[i], results[i].detail)
			}
		})
	}
	for i := range mutants {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return results, ctx.Err()
}

// timeClean runs the tests of a defect without it, once for each set of arguments, and sets the limit of
// their time. It returns an error if they fail or run nothing: tests that fail anyway would seem to notice
// everything.
func (r *runner) timeClean(ctx context.Context, m *mutant) error {
	args := strings.Join(m.test, " ")
	if r.limits[args] > 0 || m.equivalent != "" {
		return nil
	}
	began := time.Now()
	output, err := r.goTest(ctx, cleanLimit, append([]string{"-count=1"}, m.test...))
	if err != nil {
		return fmt.Errorf("go test %s fails without a defect: %w\n%s", args, err, output)
	}
	if !ranTests(string(output)) {
		return fmt.Errorf("%s: go test %s runs no test of one of the packages, or none at all", m.at, args)
	}
	r.limits[args] = 5*time.Duration(r.jobs)*time.Since(began) + 5*time.Second
	return nil
}

// ranTests reports whether the output of a successful go test shows that every package has
// tests and at least one package ran some. Tests that have moved notice nothing.
func ranTests(output string) bool {
	ran := false
	for line := range strings.Lines(output) {
		switch {
		case strings.Contains(line, "[no test files]"):
			return false
		case strings.HasPrefix(line, "ok ") && !strings.Contains(line, "[no tests to run]"):
			ran = true
		}
	}
	return ran
}

// The verdicts on a mutant.
const (
	noticed    = "noticed"
	elsewhere  = "elsewhere" // the tests of -also noticed it
	survived   = "SURVIVED"
	unclear    = "UNCLEAR" // no test noticed it, and one was skipped
	broken     = "BROKEN"  // it does not compile
	equivalent = "same"
)

type result struct {
	verdict string
	detail  string // for the report, after the mutant's line
}

// test runs the tests of a mutant's record and, if they do not notice it, the tests of -also.
func (r *runner) test(ctx context.Context, m *mutant, scratch string) result {
	verdict := r.testOne(ctx, m, scratch)
	if len(r.also) == 0 || verdict.verdict != survived && verdict.verdict != unclear {
		return verdict
	}
	other := *m
	other.test = r.also
	got := r.testOne(ctx, &other, scratch)
	switch got.verdict {
	case noticed:
		return result{elsewhere, got.detail}
	case unclear:
		return got
	}
	return verdict
}

// timeAlso sets the limit of the time of the tests of -also, where there are any.
func (r *runner) timeAlso(ctx context.Context) error {
	if len(r.also) == 0 {
		return nil
	}
	return r.timeClean(ctx, &mutant{test: r.also, at: "-also"})
}

func (r *runner) testOne(ctx context.Context, m *mutant, scratch string) result {
	if m.equivalent != "" {
		return result{equivalent, " (" + m.equivalent + ")"}
	}
	overlay, err := r.overlay(m, scratch)
	if err != nil {
		return result{broken, ": " + err.Error()}
	}
	began := time.Now()
	output, err := r.goTest(ctx, r.limits[strings.Join(m.test, " ")], append([]string{"-overlay", overlay, "-count=1", "-failfast", "-v"}, m.test...))
	took := fmt.Sprintf(" (%.0f s)", time.Since(began).Seconds())
	switch {
	case err == nil:
		if test := r.skipped(string(output)); test != "" {
			return result{unclear, took + ": " + test + " was skipped"}
		}
		return result{survived, took}
	case bytes.Contains(output, []byte("[build failed]")) || bytes.Contains(output, []byte("[setup failed]")):
		return result{broken, "\n" + string(output)}
	}
	return result{noticed, took + noticedBy(string(output))}
}

// skipped names a test that the output of go test -v reports as skipped for a reason that is not accepted, or returns "".
// The inputs of a fuzz target may be skipped for any reason.
func (r *runner) skipped(output string) string {
	for name, reason := range skips(output) {
		if !strings.HasPrefix(name, "Fuzz") && !slices.ContainsFunc(r.accepted, func(a *regexp.Regexp) bool { return a.MatchString(reason) }) {
			return name
		}
	}
	return ""
}

// skips returns what each test that was skipped printed, which ends with the reason, from the output of go test -v.
func skips(output string) map[string]string {
	found, printed := make(map[string]string), make(map[string]string)
	test := ""
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "===" {
			test = words[2] // it prints what follows
		} else if _, skip, ok := strings.Cut(line, "--- SKIP: "); ok {
			name, _, _ := strings.Cut(skip, " ")
			found[name] = printed[name]
		} else {
			printed[test] += line
		}
	}
	return found
}

// readSkips reads the regular expressions of the reasons for which a test may be skipped. The file need not exist.
func readSkips(path string) ([]*regexp.Regexp, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []*regexp.Regexp
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		reason, bad := regexp.Compile(line)
		if bad != nil {
			return nil, fmt.Errorf("%s: %w", path, bad)
		}
		all = append(all, reason)
	}
	return all, err
}

// noticedBy names the first test that failed, for the report, or says that the time was over. It returns "" if the
// output says neither, as after a panic.
func noticedBy(output string) string {
	if _, after, failed := strings.Cut(output, "--- FAIL: "); failed {
		test, _, _ := strings.Cut(after, " ")
		return " by " + test
	}
	if strings.Contains(output, "panic: test timed out after ") {
		return " by the time that it took"
	}
	return ""
}

// overlay writes the mutated file and the JSON that go's flag -overlay reads, and
// returns the path of the latter.
func (r *runner) overlay(m *mutant, scratch string) (string, error) {
	source, err := r.apply(m)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(scratch, filepath.Base(m.file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(r.root, m.file): changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "overlay.json")
	return path, errors.Join(os.MkdirAll(scratch, 0o755), os.WriteFile(changed, source, 0o600), os.WriteFile(path, replace, 0o600))
}

// goTest runs go test. When ctx ends, it interrupts go and the tests, which are a process group of their own.
func (r *runner) goTest(ctx context.Context, limit time.Duration, args []string) (output []byte, err error) {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-vet=off"}, args, []string{fmt.Sprint("-timeout=", limit)})...)
	cmd.Dir = r.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}

// summarise writes the share of noticed defects of every area.
func summarise(out io.Writer, mutants []mutant, results []result) error {
	counts := map[string]map[string]int{} // by area and verdict
	var areas []string
	wrong := 0
	for i, m := range mutants {
		if counts[m.area] == nil {
			counts[m.area] = map[string]int{}
			areas = append(areas, m.area)
		}
		counts[m.area][results[i].verdict]++
		if v := results[i].verdict; v != noticed && v != elsewhere && v != equivalent {
			wrong++
		}
	}
	for _, area := range areas {
		c := counts[area]
		fmt.Fprintf(out, "%s: %d noticed, %d elsewhere, %d survived, %d unclear, %d do not compile, %d are equivalent\n",
			area, c[noticed], c[elsewhere], c[survived], c[unclear], c[broken], c[equivalent])
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d defects were not noticed", wrong, len(mutants))
	}
	return nil
}

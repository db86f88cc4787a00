//go:build unix

package events_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/sidecar/events"
)

// childDir is set in a test binary that is its own child.
const childDir = "LIKENESS_EVENTS_DIR"

// child shows answers and feeds from several goroutines until it is killed. It prints the items of
// each batch after it was acknowledged.
func child(dir string) int {
	r, err := events.OpenRoute(dir, "products", events.RouteOptions{Share: 1, Keep: allFields, Log: events.LogOptions{Segment: 16 << 10}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var out sync.Mutex
	var feeding sync.WaitGroup
	for range 8 {
		feeding.Go(func() {
			for {
				answer := events.AnswerID{Call: r.NewCall()}
				r.Show(someImpression(answer))
				item := rand.Uint64()
				if _, err := r.Feed(context.Background(), []events.Feedback{click(answer, item), click(answer, item+1)}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				out.Lock()
				_, _ = fmt.Fprintln(os.Stdout, answer, item)
				out.Unlock()
			}
		})
	}
	feeding.Wait()
	return 1
}

// TestCrash kills a process under load, again and again: everything that was acknowledged is there,
// once, and so are the impressions that were queued before it.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	for range 6 {
		for _, line := range crash(t, dir, 50+rand.IntN(300)) {
			acknowledged[line] = true
		}
		closed(t, open(t, dir, events.RouteOptions{Share: 1})) // cuts the torn tail
	}
	shown, chosen := read(t, dir)
	impressions, times := map[string]bool{}, map[string]int{}
	for _, m := range shown {
		impressions[m.Answer.String()] = true
	}
	for _, f := range chosen {
		times[fmt.Sprintln(f.Answer, f.Item)]++
	}
	for line := range acknowledged {
		answer, item, _ := strings.Cut(line, " ")
		if times[fmt.Sprintln(answer, item)] != 1 || !impressions[answer] {
			t.Fatalf("%s was acknowledged: it is there %d times, the impression: %t", line, times[fmt.Sprintln(answer, item)], impressions[answer])
		}
	}
	if len(acknowledged) < 300 {
		t.Errorf("only %d batches were acknowledged", len(acknowledged))
	}
}

// crash starts the child and kills it after some lines, which it returns.
func crash(t *testing.T, dir string, lines int) (all []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		if all = append(all, scan.Text()); len(all) == lines {
			_ = cmd.Process.Kill()
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatal(stderr.String())
	}
	return all[:len(all)-1] // the kill may have cut the last line
}

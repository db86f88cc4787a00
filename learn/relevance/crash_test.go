//go:build unix

package relevance_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// childRole is the environment variable that makes the test binary run child instead of its tests.
const childRole = "LIKENESS_RELEVANCE_ROLE"

// child fills the folder dir, and prints before each request how many items the ranker has scored so
// far. Up to Parallel requests are under way at a time; the scores of all earlier ones are stored.
func child(dir string) int {
	r := newArithmetic()
	r.seen = func(plugin.Query, []plugin.Item) { _, _ = fmt.Fprintln(os.Stdout, r.calls) }
	a, err := relevance.New(context.Background(), relevance.Options{Ranker: r, Dir: dir})
	if err == nil {
		rows := things(200)
		var items relevance.Items
		if items, err = a.Items(rows); err == nil {
			err = a.Fill(context.Background(), rerank.NewMatrix(200, 100), items, questions(100), columns(100))
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKilled kills a process twice while it fills a folder. Only the scores of the requests under way
// are lost, and the next process can open the folder.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	least := 0
	for _, lines := range []int{300, 700} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), childRole+"="+dir), os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said, asked := bufio.NewScanner(out), 0
		for range lines {
			if !said.Scan() {
				t.Fatalf("the child ended after %d items", asked)
			}
			if _, err := fmt.Sscan(said.Text(), &asked); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		least += asked - 3*4
	}
	r := newArithmetic()
	a := open(t, relevance.Options{Ranker: r, Dir: dir})
	kept, lost := a.Kept()
	if kept < int64(least) || lost != 0 {
		t.Errorf("%d scores are kept of %d that were there, %d bytes lost", kept, least, lost)
	}
	fill(t, a, things(200), questions(100))
	if int64(r.calls) != 200*100-kept {
		t.Errorf("asked of %d, want %d", r.calls, 200*100-kept)
	}
}

package table_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// The child of TestCrash writes to the table in crashTable until it is killed,
// and prints the number of every write before and behind it.
const crashTable, crashFrom = "LIKENESS_CRASH_TABLE", "LIKENESS_CRASH_FROM"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashTable); path != "" {
		from, _ := strconv.Atoi(os.Getenv(crashFrom))
		fmt.Fprintln(os.Stderr, crashChild(os.Stdout, path, from))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// crashWrite is write n: everybody knows what it should have done.
func crashWrite(n int) (ids []rerank.ID, rows rerank.Matrix) {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	ids = make([]rerank.ID, 1+rng.IntN(4))
	for i := range ids {
		ids[i] = rerank.UintID(uint64(rng.IntN(50)))
	}
	if rng.IntN(4) == 0 {
		return ids, rows
	}
	rows = rerank.NewMatrix(len(ids), meta.Features)
	for i := range rows.Data {
		rows.Data[i] = rng.Float32()
	}
	return ids, rows
}

func crashChild(out io.Writer, path string, from int) error {
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{CompactItems: 16})
	if err != nil {
		return err
	}
	for n := from; ; n++ {
		_, _ = fmt.Fprintln(out, "begin", n)
		ids, rows := crashWrite(n)
		if rows.Rows == 0 {
			err = l.Delete(ids)
		} else {
			err = l.Upsert(ids, rows, nil)
		}
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, "end", n)
	}
}

// TestCrash kills a process that writes and compacts, again and again, at any
// moment. Every write that was acknowledged is there, the one under way is there
// whole or not at all.
func TestCrash(t *testing.T) {
	c := liveCase{meta: meta}
	path, m := c.base(t, rand.New(rand.NewPCG(1, 2)), 20)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	next, compactions := 0, uint64(0)
	for range 12 {
		begun, ended := crash(t, path, next, rng)
		l := openLive(t, path, table.LiveOptions{})
		stats := l.Stats()
		compactions = stats.Generation
		if n := int(stats.Sequence); n != ended+1 && n != begun+1 {
			t.Fatalf("the table has %d writes; write %d was acknowledged, %d begun", n, ended, begun)
		}
		for ; next < int(stats.Sequence); next++ {
			ids, rows := crashWrite(next)
			for i, id := range ids {
				if delete(m, id); rows.Rows > 0 {
					m[id] = rows.Row(i)
				}
			}
		}
		snap := l.Snapshot()
		c.compare(t, snap, m)
		snap.Release()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes, %d compactions begun", next, compactions)
}

// crash starts the child and kills it after some of its writes. It returns the
// last write that began, and the last that ended.
func crash(t *testing.T, path string, from int, rng *rand.Rand) (begun, ended int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashTable+"="+path, crashFrom+"="+strconv.Itoa(from))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun, ended = from-1, from-1
	last, lines := from+rng.IntN(150), bufio.NewScanner(out)
	for lines.Scan() {
		var word string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &word, &n); err != nil {
			continue // cut by the kill
		}
		if word == "begin" {
			begun = n
		} else {
			ended = n
		}
		if n == last { // what it does meanwhile is up to the scheduler
			_ = cmd.Process.Kill()
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the child failed: %s", stderr.String())
	}
	return begun, ended
}

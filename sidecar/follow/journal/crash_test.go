//go:build unix

package journal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// The test binary is its own child, in one of these roles.
const (
	childRole = "LIKENESS_JOURNAL_ROLE"
	childDir  = "LIKENESS_JOURNAL_DIR"
)

func child(role string) int {
	roles := map[string]func(dir string) error{"append": appendForever, "disk": diskFails}
	if err := roles[role](os.Getenv(childDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// appendForever appends from several goroutines and finishes some writes. It prints each number
// after its Append and before its Done.
func appendForever(dir string) error {
	j, _, err := journal.Open(dir, journal.Options{Segment: 8 << 10})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(word string, seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(os.Stdout, word, seq)
	}
	failed := make(chan error)
	for i := range 8 {
		go func() {
			for n := i; ; n += 8 {
				seq, err := j.Append(context.Background(), numbered(n))
				if err != nil {
					failed <- err
					return
				}
				say("acknowledged", seq)
				if n%3 > 0 {
					say("done", seq)
					j.Done(seq)
				}
			}
		}()
	}
	return <-failed
}

// TestCrash kills a process that appends, again and again: every acknowledged write that is not
// done is in the journal.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	var known []uint64 // acknowledged, not done
	for range 8 {
		acknowledged, done := crash(t, dir, 50+rand.IntN(400))
		known = append(known, acknowledged...)
		j, entries := open(t, dir, journal.Options{Segment: 8 << 10})
		there := map[uint64]bool{}
		for _, e := range entries {
			there[e.Seq] = true
		}
		var rest []uint64
		for _, seq := range known {
			switch {
			case done[seq]:
			case !there[seq]:
				t.Fatalf("write %d was acknowledged and is lost", seq)
			case rand.IntN(2) == 0:
				j.Done(seq)
			default:
				rest = append(rest, seq)
			}
		}
		known = rest
		closed(t, j)
	}
}

// crash starts the child and kills it after some lines.
func crash(t *testing.T, dir string, lines int) (acknowledged []uint64, done map[uint64]bool) {
	t.Helper()
	cmd, out, stderr := start(t, "append", dir)
	done = map[uint64]bool{}
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		var word string
		var seq uint64
		if _, err := fmt.Sscan(scan.Text(), &word, &seq); err != nil {
			continue // cut by the kill
		}
		if word == "done" {
			done[seq] = true
		} else {
			acknowledged = append(acknowledged, seq)
		}
		if lines--; lines == 0 {
			_ = cmd.Process.Kill()
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatal(stderr.String())
	}
	return acknowledged, done
}

func start(t *testing.T, role, dir string) (*exec.Cmd, io.Reader, *strings.Builder) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, out, stderr
}

// TestDisk runs a process whose files cannot grow beyond a size that it sets.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	cmd, out, stderr := start(t, "disk", dir)
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, said, stderr)
	}
	j, entries := open(t, dir, journal.Options{})
	defer closed(t, j)
	if len(entries) != 1+before+1 {
		t.Errorf("%d entries: %+v", len(entries), entries)
	}
}

const before = 3 // writes in front of the failure

func diskFails(dir string) error {
	signal.Ignore(unix.SIGXFSZ)
	j, _, err := journal.Open(dir, journal.Options{Retry: time.Millisecond})
	if err != nil {
		return err
	}
	finished, err := j.Append(context.Background(), numbered(0))
	for n := 0; n <= before && err == nil; n++ {
		_, err = j.Append(context.Background(), numbered(n))
	}
	if err != nil {
		return err
	}
	size := j.Stats().Bytes
	if err := limitFiles(uint64(size) + 10); err != nil { // within the next record
		return err
	}
	if seq, err := j.Append(context.Background(), numbered(9)); !errors.Is(err, journal.ErrDisk) || !errors.Is(err, unix.EFBIG) || seq != 0 {
		return fmt.Errorf("over the limit: %d, %w", seq, err)
	}
	if err := limitFiles(5); err != nil { // not even a header
		return err
	}
	for range 3 {
		if err := failing(j); err != nil {
			return err
		}
	}
	j.Done(finished) // this cannot be written to disk
	if err := limitFiles(1 << 30); err != nil {
		return err
	}
	for {
		_, err := j.Append(context.Background(), numbered(10))
		if err == nil {
			break
		}
		if !errors.Is(err, journal.ErrDisk) {
			return err
		}
	}
	return j.Close()
}

// failing waits until another attempt has failed.
func failing(j *journal.Journal) error {
	for {
		_, err := j.Append(context.Background(), numbered(11))
		if !errors.Is(err, journal.ErrDisk) {
			return fmt.Errorf("the disk is full: %w", err)
		}
		if strings.Contains(err.Error(), "making") {
			return nil
		}
	}
}

func limitFiles(bytes uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &now); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: now.Max})
}

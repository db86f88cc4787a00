package recent_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/recent"
)

// counted returns a reader that returns 1, 2 and so on.
func counted() func() (int, error) {
	n := 0
	return func() (int, error) {
		n++
		return n, nil
	}
}

func want(t *testing.T, c *recent.Cache[string, int], read func() (int, error), value int, cached bool) {
	t.Helper()
	if v, have, err := c.Load("a", read); v != value || have != cached || err != nil {
		t.Errorf("loaded %d, cached %v, %v; want %d, cached %v", v, have, err, value, cached)
	}
}

func TestAValueIsUsedUntilItIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, read := &recent.Cache[string, int]{Keep: time.Minute}, counted()
		want(t, c, func() (int, error) { <-time.After(time.Second); return read() }, 1, false)
		<-time.After(58 * time.Second)
		want(t, c, read, 1, true)
		<-time.After(time.Second) // a minute after the reading began
		want(t, c, read, 2, false)
	})
}

func TestAnErrorIsNotCached(t *testing.T) {
	c, errRead := &recent.Cache[string, int]{Keep: time.Hour}, errors.New("read")
	if _, _, err := c.Load("a", func() (int, error) { return 0, errRead }); !errors.Is(err, errRead) {
		t.Errorf("the error is %v", err)
	}
	read := counted()
	want(t, c, read, 1, false)
	want(t, c, read, 1, true)
}

// TestAChangeDuringAReading: a value whose reading began before Forget may be the old one.
func TestAChangeDuringAReading(t *testing.T) {
	c, read := &recent.Cache[string, int]{Keep: time.Hour}, counted()
	want(t, c, func() (int, error) { c.Forget("a"); return read() }, 1, false)
	want(t, c, read, 2, false)
	want(t, c, func() (int, error) { panic("a cached value was read") }, 2, true)
	c.ForgetFunc(func(key string) bool { return key == "b" })
	want(t, c, read, 2, true)
	c.ForgetFunc(func(key string) bool { return key == "a" })
	want(t, c, read, 3, false)
}

// TestOldKeysAreDropped: a cache does not grow with the number of keys that were ever read.
func TestOldKeysAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, left := &recent.Cache[string, int]{Keep: time.Minute}, 0
		for i := range 100 {
			_, _, err := c.Load(fmt.Sprint(i), counted())
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Second)
		}
		c.ForgetFunc(func(string) bool { left++; return false })
		if left != 3 {
			t.Errorf("%d keys are left, want 3", left)
		}
	})
}

package loglimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/loglimit"
)

// count calls Allow so often and returns how many lines are written, and how many these say
// were left out.
func count(l *loglimit.Limiter, calls int, caller func(n int) string) (lines, leftOut int) {
	for n := range calls {
		if ok, left := l.Allow(caller(n)); ok {
			lines, leftOut = lines+1, leftOut+int(left)
		}
	}
	return lines, leftOut
}

// TestLimiter: a caller that fails without end gets its own lines and no more, another still
// gets its own, and callers who change their name stay within the bound of all.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loglimit.New(1, 5)
		flood := func(int) string { return "flood" }
		if lines, _ := count(l, 1000, flood); lines != 5 {
			t.Errorf("a flood writes %d lines, want its burst of 5", lines)
		}
		if lines, left := count(l, 1, func(int) string { return "honest" }); lines != 1 || left != 995 {
			t.Errorf("another caller writes %d lines that say %d were left out, want 1 and 995", lines, left)
		}
		<-time.After(2 * time.Second)
		if lines, _ := count(l, 1000, flood); lines != 2 {
			t.Errorf("after two seconds the flood writes %d lines, want 2", lines)
		}
		<-time.After(time.Minute)
		if lines, _ := count(l, 10_000, func(n int) string { return fmt.Sprint(n) }); lines != 50 {
			t.Errorf("10,000 callers write %d lines, want 50", lines)
		}
	})
}

// TestLogger: each caller has its own lines of each warning, however the logger was derived,
// and what is no warning is not bounded.
func TestLogger(t *testing.T) {
	type callerKey struct{}
	var out bytes.Buffer
	log := loglimit.Logger(slog.New(slog.NewTextHandler(&out, nil)), func(ctx context.Context) string {
		name, _ := ctx.Value(callerKey{}).(string)
		return name
	})
	flood, honest := context.WithValue(t.Context(), callerKey{}, "flood"), context.WithValue(t.Context(), callerKey{}, "honest")
	for range 100 {
		log.With("a", 1).WarnContext(flood, "failed")
		log.WithGroup("g").ErrorContext(flood, "failed")
		log.InfoContext(flood, "searched")
	}
	log.WarnContext(honest, "failed")
	log.WarnContext(flood, "another")
	failed, searched := strings.Count(out.String(), "msg=failed"), strings.Count(out.String(), "msg=searched")
	if failed != 6 || searched != 100 || !strings.Contains(out.String(), "msg=failed left_out=195") || !strings.Contains(out.String(), "msg=another") {
		t.Errorf("%d warnings and %d others: %s", failed, searched, out.String()[max(0, out.Len()-300):])
	}
}

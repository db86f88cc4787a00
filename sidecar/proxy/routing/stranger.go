package routing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

// mayWriteWithin limits how long a write waits for mayWrite.
const mayWriteWithin = time.Second

// mayWrite asks the database whether the writer may write to any followed collection that the write
// may change. It returns true unless the database says no. Without this question, a caller without
// rights could hold up the answers to others, by a write whose body trickles, or by a write that
// the database finds faulty before it checks the caller's rights.
func (f *flight) mayWrite(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(adapters.AsCaller(context.WithoutCancel(ctx)), mayWriteWithin)
	defer cancel()
	refused := false
	for name, store := range f.followed() {
		isTarget := slices.ContainsFunc(f.targets, func(t target) bool { return t.collection == name })
		if !isTarget && !f.elsewhere && !f.writing.renames() {
			continue
		}
		check := adapters.AbilitiesOf(store).CheckWrite
		if check == nil {
			return true
		}
		switch err := check.CheckWrite(ctx, name); {
		case errors.Is(err, adapters.ErrRefused):
			refused = true
		case !errors.Is(err, adapters.ErrNotFound): // nobody may write to a missing collection
			return true
		}
	}
	return !refused
}

package trial

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
)

// Titles reads what rows are from a payload field, by their ids. If field is empty, or if no row has it,
// Titles picks one; unknown then says which fields are most like it. Rows without the field are missing in
// the result.
func Titles(ctx context.Context, store adapters.Store, collection string, ids []rerank.ID, field string) (titles map[rerank.ID]string, unknown string, err error) {
	can := adapters.AbilitiesOf(store)
	if can.Fetch == nil || len(ids) == 0 {
		return nil, "", nil
	}
	stored, err := adapters.CanonicalIDs(can.Exclude, ids)
	if err != nil {
		return nil, "", err
	}
	rows, err := can.Fetch.Fetch(ctx, adapters.FetchRequest{Collection: collection, IDs: stored, Payload: true})
	if err != nil {
		return nil, "", err
	}
	if field != "" && len(rows.Payloads) > 0 {
		unknown = UnknownField(field, rows.Payloads)
	}
	if field == "" || unknown != "" {
		found := map[string]*fieldCount{}
		for _, payload := range rows.Payloads {
			countFields(found, "", payload, fieldDepth)
		}
		field = pickTitle(listFields(found), "")
	}
	read := map[rerank.ID]string{}
	for i := range rows.Payloads {
		if text := dataset.PayloadText(rows.Payloads[i], field); text != "" {
			read[rows.IDs[i]] = shorten(text, titleBytes)
		}
	}
	titles = map[rerank.ID]string{}
	for i, id := range ids {
		if text := read[stored[i]]; text != "" {
			titles[id] = text
		}
	}
	return titles, unknown, nil
}

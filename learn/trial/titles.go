package trial

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
)

// Titles reads what rows are from a payload field, by their ids. If field is empty, it
// picks one. Rows without the field are missing in the result.
func Titles(ctx context.Context, store adapters.Store, collection string, ids []rerank.ID, field string) (map[rerank.ID]string, error) {
	fetch := adapters.AbilitiesOf(store).Fetch
	if fetch == nil || len(ids) == 0 {
		return nil, nil //nolint:nilnil // no titles, and no failure
	}
	request := adapters.FetchRequest{Collection: collection, IDs: ids, Payload: true}
	if field != "" {
		request.PayloadFields = []string{topKey(field)}
	}
	rows, err := fetch.Fetch(ctx, request)
	if err != nil {
		return nil, err
	}
	if field == "" {
		found := map[string]*fieldCount{}
		for _, payload := range rows.Payloads {
			countFields(found, "", payload, fieldDepth)
		}
		field = pickTitle(listFields(found), "")
	}
	titles := map[rerank.ID]string{}
	for i := range rows.Payloads {
		if text := dataset.PayloadText(rows.Payloads[i], field); text != "" {
			titles[rows.IDs[i]] = shorten(text, titleBytes)
		}
	}
	return titles, nil
}

package model

import (
	"encoding/json"

	"github.com/likenessdb/likeness/rerank"
)

// FirstStagesKey is the key of the provenance under which a fit of a first stage keeps, as the JSON of a
// rerank.RecallTable, what it found of the model's first stages.
const FirstStagesKey = "first_stages"

// maxFirstStages bounds the JSON under FirstStagesKey.
const maxFirstStages = 1 << 16

// FirstStages returns what a fit found of the model's first stages. The table is empty if no fit measured
// them, or if its JSON is not valid: the provenance of a model is free text.
func (m *Model) FirstStages() rerank.RecallTable {
	var t rerank.RecallTable
	text := m.Provenance[FirstStagesKey]
	if len(text) > maxFirstStages || json.Unmarshal([]byte(text), &t) != nil || !t.IsValid() {
		return rerank.RecallTable{}
	}
	return t
}

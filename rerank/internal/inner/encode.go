package inner

import "github.com/likenessdb/likeness/rerank"

// UnitNorm bounds the norm of a vector that rerank.Normalise has divided: float32 rounds
// each element twice, in the norm and in the division.
const UnitNorm = 1 + 1e-6

// EncodeItems copies base vectors to feature rows and normalises them if the spec says so.
func EncodeItems(s rerank.Spec, dst, base rerank.Matrix) error {
	if err := s.CheckEncode(dst, base); err != nil {
		return err
	}
	for r := range base.Rows {
		row := dst.Row(r)
		copy(row, base.Row(r))
		if s.Normalise {
			rerank.Normalise(row)
		}
	}
	return nil
}

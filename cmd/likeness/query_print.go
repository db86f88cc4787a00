package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// printAnswer prints an answer as text.
func printAnswer(w io.Writer, q *likenessv1.SearchRequest, r *likenessv1.SearchResponse) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	payload := q.GetPayload() != nil
	_, _ = fmt.Fprint(t, "rank\tid\tscore")
	if r.GetRanking() != nil {
		_, _ = fmt.Fprint(t, "\tranked")
	}
	if payload {
		_, _ = fmt.Fprint(t, "\tpayload")
	}
	_, _ = fmt.Fprintln(t)
	for i, h := range r.GetHits() {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%.6g", i+1, idText(h.GetId()), h.GetScore())
		if r.GetRanking() != nil {
			_, _ = fmt.Fprint(t, "\t"+rankedMarks[h.GetRanked()])
		}
		if payload {
			_, _ = fmt.Fprint(t, "\t"+h.GetPayloadJson())
		}
		_, _ = fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.GetHits()) == 0 {
		_, _ = fmt.Fprintln(w, "nothing found")
	}
	printTerms(w, r.GetHits())
	_, err := fmt.Fprintf(w, "\n%s\n%s\n", certificateText(r), timingText(r))
	return err
}

var rankedMarks = map[bool]string{true: "*", false: ""}

func printTerms(w io.Writer, hits []*likenessv1.Hit) {
	for i, h := range hits {
		terms := h.GetExplanation().GetTerms()
		if len(terms) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "\n#%d %s: score %.6g is the sum of gate x logit\n", i+1, idText(h.GetId()), h.GetExplanation().GetScore())
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintln(t, "query component\titem component\tinner product\tlogit\tgate\tpart of the score\t")
		for _, term := range terms {
			_, _ = fmt.Fprintf(t, "%d\t%d\t%.6f\t%.6f\t%.6f\t%.6f\t\n", term.GetQueryComponent(), term.GetItemComponent(),
				term.GetDot(), term.GetLogit(), term.GetGate(), term.GetGate()*term.GetLogit())
		}
		_ = t.Flush()
	}
}

func idText(id *likenessv1.ItemId) string {
	switch v := id.GetId().(type) {
	case *likenessv1.ItemId_Number:
		return fmt.Sprint(v.Number)
	case *likenessv1.ItemId_Negative:
		return fmt.Sprint(v.Negative)
	default:
		return id.GetText()
	}
}

var proofTexts = map[likenessv1.Proof]string{
	likenessv1.Proof_PROOF_INNER_PRODUCT: "the similarity is one inner product, and the store searched it exhaustively",
	likenessv1.Proof_PROOF_TABLE_SCAN:    "every item of the table was scored",
	likenessv1.Proof_PROOF_BOUND_CLOSED:  "no item outside the exhaustive lists can reach the last score",
	likenessv1.Proof_PROOF_EXHAUSTED:     "the exhaustive lists hold every item",
}

var stopTexts = map[likenessv1.Stop]string{
	likenessv1.Stop_STOP_GAP_REACHED: "the gap that was asked is reached",
	likenessv1.Stop_STOP_FIXED_DEPTH: "no proof was asked",
	likenessv1.Stop_STOP_DEADLINE:    "the deadline was near",
	likenessv1.Stop_STOP_DEPTH_LIMIT: "the greatest depth was reached",
	likenessv1.Stop_STOP_EXHAUSTED:   "the store has no more",
	likenessv1.Stop_STOP_NO_BOUND:    "deeper lists cannot narrow the gap",
}

// certificateText describes the certificate in plain words.
func certificateText(r *likenessv1.SearchResponse) string {
	c := r.GetCertificate()
	var b strings.Builder
	b.WriteString(rankingText(r))
	if d := r.GetDegraded(); d != nil && d.GetReason() == failure.Ranker {
		fmt.Fprintf(&b, "DEGRADED (%s): these are the similarity's scores and order, not the ranker's. %s\n", d.GetReason(), d.GetDetail())
	} else if d != nil {
		fmt.Fprintf(&b, "DEGRADED (%s): these are the store's own scores and order, not the similarity's. %s\n", d.GetReason(), d.GetDetail())
	}
	switch c.GetStatus() {
	case likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT:
		fmt.Fprintf(&b, "exact: %s.", proofTexts[c.GetProof()])
		if c.GetOrdered() {
			b.WriteString(" Rounding decided neither the rows nor their order.")
		}
	case likenessv1.CertificateStatus_CERTIFICATE_STATUS_SNAPSHOT:
		fmt.Fprintf(&b, "snapshot%s: %s. Later writes that bypassed this sidecar may be missing.", asOfText(c), proofTexts[c.GetProof()])
		if c.GetRowsVerified() {
			b.WriteString(" The scores of these rows are those of the vectors that the database holds now.")
		}
	case likenessv1.CertificateStatus_CERTIFICATE_STATUS_CALIBRATED:
		if m := c.GetMeasured(); m != nil {
			fmt.Fprintf(&b, "calibrated: nothing is missing if rounding moved no score by more than %.3g, twice the most that was seen on %d pairs of a query and an item.",
				m.GetError(), m.GetPairs())
			break
		}
		k := c.GetCalibration()
		fmt.Fprintf(&b, "calibrated: at least %.4g %% of the true top %d are found for %.4g %% of queries, with confidence %.4g %% from %d queries, audited on %s.",
			100*k.GetRecall(), k.GetK(), 100*k.GetShare(), 100*(1-k.GetAlpha()), k.GetQueries(), k.GetMade().AsTime().Format(time.DateOnly))
	default:
		b.WriteString("unknown: nothing was proved of the items that were not scored.")
		if why := c.GetUncalibrated(); why != "" {
			fmt.Fprintf(&b, " The route's calibration does not hold here: %s.", why)
		}
	}
	switch {
	case c.Gap == nil:
		b.WriteString(" How much a missing item could score is not known.")
	case c.GetProof() == likenessv1.Proof_PROOF_UNSPECIFIED:
		fmt.Fprintf(&b, " A missing item can exceed the last score by at most %.6g.", c.GetGap())
	}
	fmt.Fprintf(&b, " Rounding error %.2g.\n", c.GetEpsilon())
	fmt.Fprintf(&b, "%d items scored in %d round(s) at depth %d; stopped because %s.",
		c.GetCandidates(), c.GetRounds(), c.GetDepth(), stopTexts[c.GetStop()])
	if c.GetTied() {
		b.WriteString(" Another item scores as much as the last one, and the store chose between them.")
	}
	if n := r.GetNotFinite(); n > 0 {
		fmt.Fprintf(&b, " %d candidates had no finite score.", n)
	}
	if n := r.GetNotIndexed(); n > 0 {
		fmt.Fprintf(&b, " %d candidates were not in the table.", n)
	}
	if r.Reembedded != nil {
		fmt.Fprintf(&b, " %.0f %% of the candidates have a vector of the new model.", 100*r.GetReembedded())
	}
	return b.String()
}

// asOfText says when the data of a snapshot was complete, or returns "" if that is unknown.
func asOfText(c *likenessv1.Certificate) string {
	if c.GetAsOf() == nil {
		return ""
	}
	return " as of " + c.GetAsOf().AsTime().Format(time.RFC3339)
}

var cutTexts = map[string]string{
	rank.CutDeadline: "the deadline was near",
	rank.CutBudget:   "the calls were spent",
	rank.CutFailed:   "the ranker gave no score",
}

// rankingText reports the ranker's part in the answer, or returns "" without a ranker.
func rankingText(r *likenessv1.SearchResponse) string {
	k := r.GetRanking()
	if k == nil {
		return ""
	}
	name := k.GetRanker()
	if v := k.GetVersion(); v != "" {
		name += " " + v
	}
	text := fmt.Sprintf("ranker %s: %d of %d calls in %d round(s); * marks its scores.", name, k.GetCalls(), k.GetBudget(), k.GetRounds())
	if k.GetCut() > 0 {
		text += fmt.Sprintf(" %d items that it was to score have none: %s.", k.GetCut(), cutTexts[k.GetReason()])
	}
	return text + "\n"
}

func timingText(r *likenessv1.SearchResponse) string {
	t := r.GetTimings()
	strategy := strings.ToLower(strings.TrimPrefix(r.GetStrategy().String(), "STRATEGY_"))
	if plan := r.GetPlan(); plan != "" {
		strategy += " (" + plan + ")"
	}
	ranked := ""
	if r.GetRanking() != nil {
		ranked = fmt.Sprintf(", rank %v", t.GetRank().AsDuration())
	}
	embedded := ""
	if took := t.GetEmbed().AsDuration(); took > 0 {
		embedded = fmt.Sprintf("embed %v, ", took)
	}
	return fmt.Sprintf("model %s (%s), strategy %s; %sencode %v, retrieve %v, score %v, certify %v%s, total %v",
		r.GetModel().GetName(), r.GetModel().GetVersion(),
		strategy, embedded, t.GetEncode().AsDuration(), t.GetRetrieve().AsDuration(), t.GetScore().AsDuration(), t.GetCertify().AsDuration(), ranked,
		t.GetTotal().AsDuration())
}

package milvus

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// key is a primary key of Milvus: a number or a text.
type key struct {
	text   string
	num    int64
	isText bool
}

// idCodec converts ids to primary keys and back without loss.
type idCodec interface {
	// key returns ErrID for an id that the collection cannot hold. comp is the number
	// of the component, if each component has its own row.
	key(id rerank.ID, comp int) (key, error)
	id(k key) (rerank.ID, error)
	textKeys() bool
	textIDs() bool
}

// plainIDs are the primary keys of a user's own collection.
type plainIDs struct {
	pk   string
	text bool
}

func (p plainIDs) textKeys() bool { return p.text }
func (p plainIDs) textIDs() bool  { return p.text }

func (p plainIDs) key(id rerank.ID, _ int) (key, error) {
	if !p.text {
		return intKey(id, p.pk)
	}
	t, err := textOf(id)
	return key{text: t, isText: true}, err
}

func (p plainIDs) id(k key) (rerank.ID, error) {
	if k.isText {
		return rerank.TextID(k.text), nil
	}
	return rerank.IntID(k.num), nil
}

func intKey(id rerank.ID, pk string) (key, error) {
	n, ok := id.Int64()
	if !ok {
		return key{}, fmt.Errorf("%w: %q is not a signed 64-bit number, as the primary key %q is", adapters.ErrID, id, pk)
	}
	return key{num: n}, nil
}

func textOf(id rerank.ID) (string, error) {
	t, ok := id.Text()
	if !ok {
		return "", fmt.Errorf("%w: %v is a number and the primary key is a VarChar; give it as a string", adapters.ErrID, id)
	}
	if !utf8.ValidString(t) {
		return "", fmt.Errorf("%w: %q is not valid UTF-8", adapters.ErrID, t)
	}
	return t, nil
}

// escapedIDs are the text keys of a companion. They percent-encode characters that
// milvus-lite cannot upsert (an apostrophe, NUL) or express (a line break).
type escapedIDs struct{}

func (escapedIDs) textKeys() bool { return true }
func (escapedIDs) textIDs() bool  { return true }

func (escapedIDs) key(id rerank.ID, _ int) (key, error) {
	t, err := textOf(id)
	return key{text: escapeText(t), isText: true}, err
}

func (escapedIDs) id(k key) (rerank.ID, error) {
	t, err := url.PathUnescape(k.text)
	if err != nil {
		return rerank.ID{}, fmt.Errorf("%w: primary key %q: %w", adapters.ErrStore, k.text, err)
	}
	return rerank.TextID(t), nil
}

// escapeText percent-encodes control characters, quotes, backslash and percent.
func escapeText(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == 0x7f || c == '\'' || c == '"' || c == '\\' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// componentIDs are the keys of rows that hold one component each: "2:17" is component
// 2 of item 17.
type componentIDs struct{ text bool }

func (componentIDs) textKeys() bool  { return true }
func (c componentIDs) textIDs() bool { return c.text }

func (c componentIDs) key(id rerank.ID, comp int) (key, error) {
	prefix := strconv.Itoa(comp) + ":"
	if c.text {
		k, err := escapedIDs{}.key(id, 0)
		return key{text: prefix + k.text, isText: true}, err
	}
	k, err := intKey(id, companionID)
	return key{text: prefix + strconv.FormatInt(k.num, 10), isText: true}, err
}

func (c componentIDs) id(k key) (rerank.ID, error) {
	_, t, _ := strings.Cut(k.text, ":")
	if c.text {
		return escapedIDs{}.id(key{text: t, isText: true})
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return rerank.ID{}, fmt.Errorf("%w: primary key %q of a companion: %w", adapters.ErrStore, k.text, err)
	}
	return rerank.IntID(n), nil
}

// ownerText encodes the id of a row's item in a companion: a number as its digits, a
// string after a $.
func ownerText(id rerank.ID) (string, error) {
	t, ok := id.Text()
	if !ok {
		return id.String(), nil
	}
	if !utf8.ValidString(t) {
		return "", fmt.Errorf("%w: owner %q is not valid UTF-8", adapters.ErrID, t)
	}
	return "$" + escapeText(t), nil
}

func ownerID(text string) (rerank.ID, error) {
	if t, ok := strings.CutPrefix(text, "$"); ok {
		return escapedIDs{}.id(key{text: t})
	}
	var id rerank.ID
	if err := id.UnmarshalJSON([]byte(text)); err != nil {
		return id, fmt.Errorf("%w: owner %q of a companion: %w", adapters.ErrStore, text, err)
	}
	return id, nil
}

// keysOf returns the primary keys in a reply.
func keysOf(ids *schemapb.IDs) []key {
	if texts := ids.GetStrId(); texts != nil {
		return textKeys(texts.GetData())
	}
	return intKeys(ids.GetIntId().GetData())
}

func textKeys(texts []string) []key {
	keys := make([]key, len(texts))
	for i, t := range texts {
		keys[i] = key{text: t, isText: true}
	}
	return keys
}

func intKeys(nums []int64) []key {
	keys := make([]key, len(nums))
	for i, n := range nums {
		keys[i] = key{num: n}
	}
	return keys
}

// literal formats a key for an expression. It escapes only quotes, backslashes and
// line breaks: milvus-lite takes all other characters literally, and Milvus accepts
// both forms.
func (k key) literal() string {
	if k.isText {
		return quote(k.text)
	}
	return strconv.FormatInt(k.num, 10)
}

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`)

func quote(s string) string { return `"` + quoter.Replace(s) + `"` }

// Literal formats a text for an expression. ok is false if milvus-lite would read the
// literal as another text.
func Literal(text string) (literal string, ok bool) {
	k := key{isText: true, text: text}
	return k.literal(), !k.inexpressible()
}

// isAfter reports whether a scan comes to the key after other.
func (k key) isAfter(other key) bool {
	if k.isText {
		return k.text > other.text
	}
	return k.num > other.num
}

// inexpressible reports whether milvus-lite cannot express the key, because it reads
// in a literal as two characters.
func (k key) inexpressible() bool { return k.isText && strings.ContainsAny(k.text, "\r\n") }

// Among returns the expression that selects rows by primary key. It returns
// adapters.ErrID for an id that cannot be a key.
func Among(primary string, ids []rerank.ID) (string, error) {
	keys := make([]key, len(ids))
	for i, id := range ids {
		text, isText := id.Text()
		n, isNumber := id.Int64()
		if !isText && !isNumber {
			return "", fmt.Errorf("%w: %v; Milvus's keys are text and signed 64-bit numbers", adapters.ErrID, id)
		}
		keys[i] = key{isText: isText, text: text, num: n}
	}
	return oneOf(primary, keys), nil
}

// oneOf returns the expression that selects rows by key. The smallest int64, which
// Milvus cannot parse and milvus-lite does not find, is selected by a comparison with
// its neighbour.
func oneOf(pk string, keys []key) string {
	var in []string
	least := false
	for _, k := range keys {
		if !k.isText && k.num == math.MinInt64 {
			least = true
			continue
		}
		in = append(in, k.literal())
	}
	var parts []string
	if len(in) > 0 {
		parts = append(parts, pk+" in ["+strings.Join(in, ",")+"]")
	}
	if least {
		parts = append(parts, fmt.Sprintf("%s < %d", pk, int64(math.MinInt64+1)))
	}
	return strings.Join(parts, " || ")
}

// joinConditions joins the non-empty expressions with "and".
func joinConditions(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if strings.TrimSpace(p) != "" {
			kept = append(kept, "("+p+")")
		}
	}
	if len(kept) == 1 {
		return kept[0][1 : len(kept[0])-1]
	}
	return strings.Join(kept, " && ")
}

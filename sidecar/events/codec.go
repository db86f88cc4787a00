package events

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/likenessdb/likeness/internal/half"
	"github.com/likenessdb/likeness/internal/record"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// The kinds of records in a file of events: a record's number is its kind.
const (
	recordImpression = 1
	recordFeedback   = 2
)

// errRecord means that the body of a record does not match its kind.
var errRecord = errors.New("a record that cannot be read")

// Kinds of an item's id in a file.
const (
	idNumber = iota
	idNegative
	idText
)

// Flags of an impression. The bits from armShift on hold its arm.
const (
	isDegraded = 1 << iota
	isNarrowed

	armShift = 2
)

// appendImpression appends an impression to b.
func appendImpression(b []byte, m *Impression) []byte {
	b = appendAnswer(b, m.Answer)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Time.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(len(m.Vector)))
	for _, x := range m.Vector {
		b = binary.LittleEndian.AppendUint16(b, half.ToFloat16(x))
	}
	b = appendText(b, m.Text)
	b = appendText(b, m.User)
	b = appendText(b, m.Version)
	b = appendText(b, string(m.Status))
	b = appendFloat32(b, m.Gap)
	flags := byte(m.Arm) << armShift
	if m.Degraded {
		flags |= isDegraded
	}
	if m.Narrowed {
		flags |= isNarrowed
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, m.Filter)
	b = binary.AppendUvarint(b, uint64(max(m.First, 1)))
	b = binary.AppendUvarint(b, uint64(len(m.Items)))
	for i := range m.Items {
		b = appendID(b, m.Items[i].ID)
		b = appendFloat32(b, m.Items[i].Score)
		b = append(b, byte(m.Items[i].Arm))
	}
	return b
}

// appendFeedback appends feedback to b.
func appendFeedback(b []byte, f *Feedback) []byte {
	b = appendAnswer(b, f.Answer)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Time.UnixMilli()))
	b = appendText(b, f.ID)
	b = appendID(b, f.Item)
	b = appendText(b, f.Kind)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f.Weight))
}

func appendAnswer(b []byte, a AnswerID) []byte {
	return binary.LittleEndian.AppendUint16(append(b, a.Call[:]...), a.Part)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFloat32(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

func appendID(b []byte, id rerank.ID) []byte {
	if n, ok := id.Uint64(); ok {
		return binary.LittleEndian.AppendUint64(append(b, idNumber), n)
	}
	if n, ok := id.Int64(); ok {
		return binary.LittleEndian.AppendUint64(append(b, idNegative), uint64(n))
	}
	text, _ := id.Text()
	return appendText(append(b, idText), text)
}

// decoder reads fields from the front of b. Once b ends too early, failed is set and every further
// field reads as zero.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.failed, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) uint8() (x uint8) {
	if b := d.take(1); b != nil {
		x = b[0]
	}
	return x
}

func (d *decoder) uint16() (x uint16) {
	if b := d.take(2); b != nil {
		x = binary.LittleEndian.Uint16(b)
	}
	return x
}

func (d *decoder) uint64() (x uint64) {
	if b := d.take(8); b != nil {
		x = binary.LittleEndian.Uint64(b)
	}
	return x
}

func (d *decoder) float32() (x float32) {
	if b := d.take(4); b != nil {
		x = math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	return x
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.failed, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return x
}

// count reads the number of elements that take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.failed, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) text() string { return string(d.take(d.uvarint())) }

func (d *decoder) time() time.Time { return time.UnixMilli(int64(d.uint64())).UTC() }

func (d *decoder) answer() (a AnswerID) {
	copy(a.Call[:], d.take(uint64(len(a.Call))))
	a.Part = d.uint16()
	return a
}

func (d *decoder) id() rerank.ID {
	switch d.uint8() {
	case idNumber:
		return rerank.UintID(d.uint64())
	case idNegative:
		return rerank.IntID(int64(d.uint64()))
	case idText:
		return rerank.TextID(d.text())
	default:
		d.failed = true
		return rerank.ID{}
	}
}

// end returns errRecord unless the body was read completely.
func (d *decoder) end() error {
	if d.failed || len(d.b) > 0 {
		return errRecord
	}
	return nil
}

// timeOf returns when the event of a record happened, or the zero time if the record holds no
// event.
func timeOf(r record.Record) time.Time {
	if r.Number != recordImpression && r.Number != recordFeedback {
		return time.Time{}
	}
	d := decoder{b: r.Body}
	d.answer()
	return d.time()
}

// decodeImpression decodes the body of an impression's record. Its error is errRecord.
func decodeImpression(body []byte) (*Impression, error) {
	d := decoder{b: body}
	m := &Impression{Answer: d.answer(), Time: d.time()}
	if n := d.count(2); n > 0 {
		m.Vector = make([]float32, n)
		for i := range m.Vector {
			m.Vector[i] = half.Float16(d.uint16())
		}
	}
	m.Text, m.User, m.Version, m.Status = d.text(), d.text(), d.text(), rerank.Status(d.text())
	m.Gap = d.float32()
	flags := d.uint8()
	m.Degraded, m.Narrowed = flags&isDegraded != 0, flags&isNarrowed != 0
	m.Arm = experiment.Arm(flags >> armShift)
	m.Filter, m.First = d.uint64(), int(min(d.uvarint(), math.MaxInt32))
	const smallest = 1 + 1 + 4 + 1 // of an item
	if n := d.count(smallest); n > 0 {
		m.Items = make([]Item, n)
		for i := range m.Items {
			m.Items[i] = Item{d.id(), d.float32(), experiment.Arm(d.uint8())}
		}
	}
	return m, d.end()
}

// decodeFeedback decodes the body of a feedback's record. Its error is errRecord.
func decodeFeedback(body []byte) (*Feedback, error) {
	d := decoder{b: body}
	f := &Feedback{Answer: d.answer(), Time: d.time(), ID: d.text(), Item: d.id(), Kind: d.text()}
	f.Weight = math.Float64frombits(d.uint64())
	return f, d.end()
}

package device

import (
	"encoding/binary"
	"math"
	"unsafe"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
)

// littleEndian reports whether this machine stores numbers in the byte order of the wire.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// number lists the number types that messages carry in packed form.
type number interface{ uint32 | float32 }

// numbersOf decodes packed numbers, without copying if the machine allows it. The length
// must be a multiple of 4.
func numbersOf[T number](b []byte) []T {
	first := unsafe.Pointer(unsafe.SliceData(b))
	if littleEndian && uintptr(first)%4 == 0 {
		return unsafe.Slice((*T)(first), len(b)/4)
	}
	out := make([]T, len(b)/4)
	for i := range out {
		bits := binary.LittleEndian.Uint32(b[4*i:])
		out[i] = *(*T)(unsafe.Pointer(&bits))
	}
	return out
}

// bytesOf encodes numbers, without copying if the machine allows it.
func bytesOf[T number](v []T) []byte {
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
	}
	out := make([]byte, 0, 4*len(v))
	for i := range v {
		out = binary.LittleEndian.AppendUint32(out, *(*uint32)(unsafe.Pointer(&v[i])))
	}
	return out
}

func versionOf(v *pluginv1.Loaded) Version { return Version{v.GetName(), v.GetVersion()} }

func (v Version) message() *pluginv1.Loaded {
	return &pluginv1.Loaded{Name: v.Name, Version: v.Version}
}

func versionsOf(all []*pluginv1.Loaded) []Version {
	out := make([]Version, len(all))
	for i, v := range all {
		out[i] = versionOf(v)
	}
	return out
}

func messages(all []Version) []*pluginv1.Loaded {
	out := make([]*pluginv1.Loaded, len(all))
	for i, v := range all {
		out[i] = v.message()
	}
	return out
}

func queryOf(q *likenessv1.Query) rerank.Query {
	return rerank.Query{
		Vector: q.GetVector(), UserID: q.GetUserId(), HasUserID: q != nil && q.UserId != nil, Text: q.GetText(), Context: q.GetContext(),
	}
}

func messageOf(q rerank.Query) *likenessv1.Query {
	m := &likenessv1.Query{Vector: q.Vector, Text: q.Text, Context: q.Context}
	if q.HasUserID {
		m.UserId = &q.UserID
	}
	return m
}

// message encodes the answer. Next is left unset if it is −Inf.
func (b Best) message() *pluginv1.Best {
	m := &pluginv1.Best{
		Rows: bytesOf(b.Rows), Scores: bytesOf(b.Scores), Epsilon: b.Epsilon,
		Scored: count32(b.Scored), NotFinite: count32(b.NotFinite),
		MeasuredPairs: count32(b.Measured), MeasuredError: b.MeasuredError,
	}
	if !math.IsInf(float64(b.Next), -1) {
		m.Next = &b.Next
	}
	return m
}

func count32(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func bestOf(m *pluginv1.Best) Best {
	b := Best{
		Rows: numbersOf[uint32](m.GetRows()), Scores: numbersOf[float32](m.GetScores()), Epsilon: m.GetEpsilon(),
		Scored: int(m.GetScored()), NotFinite: int(m.GetNotFinite()), Next: none,
		Measured: int(m.GetMeasuredPairs()), MeasuredError: m.GetMeasuredError(),
	}
	if m != nil && m.Next != nil {
		b.Next = m.GetNext()
	}
	return b
}

package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	magic = "\x93NUMPY"
	// maxHeader is well above the size that NumPy writes for a plain array (118 bytes).
	maxHeader = 4096
	// align is the multiple of bytes at which NumPy starts the data.
	align = 64
)

// header is the Python dictionary in front of the data.
type header struct {
	descr string // byte order and number type
	shape []int
}

// parse splits a file into its header and its data, which must have exactly the size that
// the header declares.
func parse(b []byte) (header, []byte, error) {
	text, data, err := split(b)
	if err != nil {
		return header{}, nil, err
	}
	h, err := parseDictionary(text)
	if err != nil {
		return header{}, nil, err
	}
	want, err := h.bytes(len(data))
	switch {
	case err != nil:
		return header{}, nil, err
	case want > len(data):
		return header{}, nil, fmt.Errorf("the file is truncated: shape %v of %s needs %d bytes of data, there are %d",
			h.shape, h.descr, want, len(data))
	case want < len(data):
		return header{}, nil, fmt.Errorf("%d bytes follow the data of shape %v; the file is damaged or holds several arrays",
			len(data)-want, h.shape)
	}
	return h, data, nil
}

// split returns the text of the dictionary and the data after it.
func split(b []byte) (text string, data []byte, err error) {
	if len(b) < 10 || string(b[:6]) != magic {
		return "", nil, errors.New("it does not begin with the .npy magic; save it with numpy.save")
	}
	var size, at int
	switch b[6] {
	case 1:
		size, at = int(binary.LittleEndian.Uint16(b[8:])), 10
	case 2, 3:
		if len(b) < 12 {
			return "", nil, errors.New("the file is truncated in its header")
		}
		size, at = int(min(binary.LittleEndian.Uint32(b[8:]), math.MaxInt32)), 12
	default:
		return "", nil, fmt.Errorf("format version is %d.%d, at most 3.0 is known", b[6], b[7])
	}
	if limit := min(len(b)-at, maxHeader); size > limit {
		return "", nil, fmt.Errorf("the header claims %d bytes, at most %d are allowed here", size, limit)
	}
	return string(bytes.TrimSpace(b[at : at+size])), b[at+size:], nil
}

// dictionary matches the header that numpy.lib.format writes, with keys in sorted order.
var dictionary = regexp.MustCompile(
	`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? *\}$`)

func parseDictionary(text string) (header, error) {
	m := dictionary.FindStringSubmatch(text)
	switch {
	case m == nil:
		return header{}, fmt.Errorf("the header %.80q is not a plain array's; save it with numpy.save", text)
	case m[2] == "True":
		return header{}, errors.New("the array is in Fortran order; save numpy.ascontiguousarray of it")
	}
	h := header{descr: m[1]}
	for field := range strings.SplitSeq(m[3], ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		n, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return header{}, fmt.Errorf("dimension %s of the shape is too large, at most %d", field, math.MaxInt32)
		}
		h.shape = append(h.shape, int(n))
	}
	return h, nil
}

// bytes returns the length of the data. limit only serves the error text.
func (h header) bytes(limit int) (int, error) {
	if len(h.descr) >= 3 && (h.descr[1] == 'U' || h.descr[1] == 'S') {
		return 0, fmt.Errorf("the elements of type %q are text, not numbers; ids that are text go into a text file with one a line", h.descr)
	}
	if len(h.descr) < 3 {
		return 0, fmt.Errorf("numbers have type %q, which is not known; save them as float32: np.save(path, x.astype(\"float32\"))", h.descr)
	}
	size, err := strconv.ParseUint(h.descr[2:], 10, 8)
	if err != nil || size == 0 {
		return 0, fmt.Errorf("numbers have type %q, which is not known; save them as float32: np.save(path, x.astype(\"float32\"))", h.descr)
	}
	total := int(size)
	for _, n := range h.shape {
		if n != 0 && total > math.MaxInt/n {
			return 0, fmt.Errorf("shape %v of %s needs more bytes than the %d that are there", h.shape, h.descr, limit)
		}
		total *= n
	}
	return total, nil
}

// encodeHeader returns the beginning of a version 1.0 file of float32, at least `least`
// bytes long.
func encodeHeader(rows, cols, least int) []byte {
	return encodeDictionary(fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, cols), least)
}

// encodeDictionary returns the beginning of a version 1.0 file with the given dictionary,
// at least `least` bytes long.
func encodeDictionary(text string, least int) []byte {
	total := max(least, (10+len(text)+1+align-1)/align*align)
	text += strings.Repeat(" ", total-10-len(text)-1) + "\n"
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

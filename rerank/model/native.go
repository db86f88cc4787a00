package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/safetensors"
)

// Extension is the usual file name extension of a native file.
const Extension = ".safetensors"

const (
	// format is the version of the native format.
	format = 1
	// headerKey and digestKey are the only keys of the file's __metadata__.
	headerKey = "likeness"
	digestKey = "sha256"
)

// noDigest is the placeholder for the digest while the digest is computed.
var noDigest = strings.Repeat("0", 2*sha256.Size)

// header is the JSON value of headerKey.
type header struct {
	Format     int               `json:"format"`
	Kind       rerank.Kind       `json:"kind"`
	Name       string            `json:"name"`
	Normalise  bool              `json:"normalise"`
	Config     json.RawMessage   `json:"config"`
	Provenance map[string]string `json:"provenance,omitempty"`
}

// Write writes a native file in one step: path keeps its old content until the new content
// is complete. Equal models give equal bytes. Write returns the system's error.
func Write(path string, m *Model) error {
	file, err := m.nativeFile()
	if err != nil {
		return fmt.Errorf("writing model %s: %w", path, err)
	}
	return safetensors.WriteFile(path, file)
}

// Encode writes the same bytes as Write to w and returns w's error.
func Encode(w io.Writer, m *Model) error {
	file, err := m.nativeFile()
	if err == nil {
		err = safetensors.Write(w, file)
	}
	if err != nil {
		return fmt.Errorf("writing model %s: %w", m.Name, err)
	}
	return nil
}

// nativeFile returns the model as the content of a native file.
func (m *Model) nativeFile() (*safetensors.File, error) {
	text, err := json.Marshal(header{
		Format: format, Kind: m.Spec().Kind, Name: m.Name, Normalise: m.Spec().Normalise,
		Config: m.config, Provenance: m.Provenance,
	})
	if err != nil {
		return nil, err
	}
	file := &safetensors.File{Tensors: m.tensors, Metadata: map[string]string{headerKey: string(text), digestKey: noDigest}}
	digest := sha256.New()
	if err := safetensors.Write(digest, file); err != nil {
		return nil, err
	}
	file.Metadata[digestKey] = hex.EncodeToString(digest.Sum(nil))
	return file, nil
}

// digestOffset returns the position of the digest in the header.
func digestOffset(raw []byte, digest string) (int, error) {
	member := fmt.Appendf(nil, "%q:%q", digestKey, digest)
	at := bytes.Index(raw, member)
	if at < 0 || bytes.Contains(raw[at+1:], member) {
		return 0, fmt.Errorf("%w: the header must have %q once, as written by likeness", ErrFile, digestKey)
	}
	return at + len(member) - len(digest) - 1, nil
}

func openNative(path string) (*Model, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := Read(f, size)
	if err != nil {
		return nil, err
	}
	if m.Name == "" {
		m.Name = strings.TrimSuffix(filepath.Base(path), Extension)
	}
	return m, nil
}

// Read reads a native file of the given size. It returns ErrFile, or the error of r.
func Read(r io.ReaderAt, size int64) (*Model, error) {
	raw, err := safetensors.RawHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	file, err := safetensors.Read(r, size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	text, ok := file.Metadata[headerKey]
	if !ok {
		return nil, fmt.Errorf("%w: __metadata__ has no %q: it is not a native model file; "+
			"weights with RAILS names are opened as a directory of model.safetensors and config.json", ErrFile, headerKey)
	}
	var h header
	if err := decodeStrict([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("%w: the header %q: %w", ErrFile, headerKey, err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("%w: its format is %d, want %d: a newer likeness wrote it; read it with that one, or write the model again with this one", ErrFile, h.Format, format)
	}
	if err := checkDigest(r, size, raw, file.Metadata[digestKey]); err != nil {
		return nil, err
	}
	m, err := fromHeader(h, file)
	if err != nil {
		return nil, err
	}
	m.native = true
	return m, nil
}

func fromHeader(h header, file *safetensors.File) (*Model, error) {
	if len(file.Ints) > 0 {
		return nil, fmt.Errorf("%w: it has integer tensors, and no kind uses any", ErrFile)
	}
	m, err := New(Parameters{Kind: h.Kind, Name: h.Name, Config: h.Config, Tensors: file.Tensors, Provenance: h.Provenance})
	if err != nil {
		return nil, err
	}
	if m.Spec().Normalise != h.Normalise {
		return nil, fmt.Errorf("%w: the header says normalise: %t, its config %t", ErrFile, h.Normalise, m.Spec().Normalise)
	}
	return m, nil
}

// checkDigest computes the SHA-256 of the file, with noDigest in place of the digest, and
// compares it with want.
func checkDigest(r io.ReaderAt, size int64, raw []byte, want string) error {
	if len(want) != len(noDigest) {
		return fmt.Errorf("%w: __metadata__ has no SHA-256 under %q", ErrFile, digestKey)
	}
	at, err := digestOffset(raw, want)
	if err != nil {
		return err
	}
	digest := sha256.New()
	from := int64(8 + at)
	to := from + int64(len(noDigest))
	for _, part := range []io.Reader{
		io.NewSectionReader(r, 0, from), strings.NewReader(noDigest), io.NewSectionReader(r, to, size-to),
	} {
		if _, err := io.Copy(digest, part); err != nil {
			return fmt.Errorf("reading for the digest: %w", err)
		}
	}
	if have := hex.EncodeToString(digest.Sum(nil)); have != want {
		return fmt.Errorf("%w: its SHA-256 is %s, the header says %s: the file is damaged; fetch it again", ErrFile, have, want)
	}
	return nil
}

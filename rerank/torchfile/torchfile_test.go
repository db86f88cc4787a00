package torchfile_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/bomb"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/rerank/torchfile"
)

const golden = "../../testdata/golden/"

func weights(t testing.TB) tensor.Set {
	t.Helper()
	f, err := safetensors.ReadFile(golden + "mol/v_two_uids/weights.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return f.Tensors
}

// Every format of the same weights gives the same numbers.
func TestFormats(t *testing.T) {
	want := weights(t)
	for name, c := range map[string]struct {
		path, prefix string
		exact        bool
		foreign      int
	}{
		"state_dict": {"", "", true, 0},
		"legacy":     {"", "", true, 0},
		"bf16":       {"", "", false, 0},
		"checkpoint": {"model_state_dict", "module._ndp_module.", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := torchfile.Open(golden + "pt/v_two_uids." + name + ".pt")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if len(f.Dicts) != 1 || f.Dicts[0].Path != c.path || len(f.Dicts[0].Names()) != len(want)+c.foreign {
				t.Fatalf("dicts %+v", f.Dicts)
			}
			for key, w := range want {
				got, err := f.Dicts[0].Load(c.prefix + key)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Shape, w.Shape) || !slices.EqualFunc(got.Data, w.Data, func(a, b float32) bool {
					return a == b || !c.exact && math.Abs(float64(a-b)) <= math.Abs(float64(b))/256
				}) {
					t.Errorf("%s differs", key)
				}
			}
		})
	}
}

// archive is a zip file of PyTorch with that pickle and one storage of floats.
func archive(t testing.TB, pickle string, floats int) []byte {
	t.Helper()
	return archiveOf(t, "m/", "0", pickle, floats)
}

// archiveOf has its records in a folder, and the storage under a key.
func archiveOf(t testing.TB, folder, key, pickle string, floats int) []byte {
	t.Helper()
	return zipOf(t, map[string]string{folder + "data.pkl": pickle, folder + "data/" + key: strings.Repeat("\x00\x00\x80\x3f", floats)})
}

// zipOf is a zip file with those records.
func zipOf(t testing.TB, records map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range records {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tensorPickle is a state dict with the tensor w: shape, strides, offset and
// count of its storage as pickled integers.
func tensorPickle(shape, strides, offset, count string) string {
	return "\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n" +
		"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK" + count + "tQK" + offset + "(" + shape + "t(" + strides + "t\x89}tRs."
}

// great is a shape of 2⁹³ numbers.
const great = "J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f"

// twofold is a tuple that holds one of its size twice, thirty times over: 2³⁰ values.
func twofold() string { return ")" + strings.Repeat("q\x07h\x07\x86", 30) }

// storagePickle is a persistent id of a storage; a type that begins with K is a right one.
func storagePickle(kind, count string) string {
	if kind == "K\x00" {
		kind = "ctorch\nFloatStorage\n"
	}
	return "\x80\x02(X\x07\x00\x00\x00storage" + kind + "X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + count + "tQ."
}

func open(b []byte) (*torchfile.File, error) {
	return torchfile.Read(bytes.NewReader(b), int64(len(b)))
}

func TestStrides(t *testing.T) {
	f, err := open(archive(t, tensorPickle("K\x02K\x03", "K\x01K\x02", "\x00", "\x06"), 6))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Dicts[0].Load("w")
	if err != nil || !slices.Equal(got.Shape, []int{2, 3}) || len(got.Data) != 6 {
		t.Errorf("%v %v", got, err)
	}
}

// Nothing but tensors and plain data is read, and no view leaves its storage.
// TestNamesAreNoPaths: whatever records and storages are called, they are found in the
// archive or not at all; nothing is opened or written by their names.
func TestNamesAreNoPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte{1}, 24), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../", "../../m/", "/", "/etc/", dir + "/", `..\`, "%2e%2e%2f", "m\x00/", "\uff0e\uff0e\u2215", strings.Repeat("long/", 5000), "./", "CON/"} {
		pickle := tensorPickle("K\x02K\x03", "K\x01K\x02", "\x00", "\x06")
		if err := loadAll(archiveOf(t, name, "0", pickle, 6)); err != nil {
			t.Errorf("folder %.20q: %v", name, err)
		}
		// A storage of the name of a file that is there.
		key := name + "secret"
		if len(key) > 255 {
			continue
		}
		other := strings.Replace(pickle, "X\x01\x00\x00\x000", "X"+string([]byte{byte(len(key)), 0, 0, 0})+key, 1)
		if err := loadAll(archive(t, other, 6)); !errors.Is(err, torchfile.ErrFormat) {
			t.Errorf("storage %q: %v, want ErrFormat", key, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// legacy is a file from before PyTorch 1.6 with that pickle and one storage of floats.
func legacy(pickle string, floats int) []byte {
	return []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + "\x80\x02M\xe9\x03." + "\x80\x02}." + pickle + "\x80\x02]X\x01\x00\x00\x000a." +
		string([]byte{byte(floats), 0, 0, 0, 0, 0, 0, 0}) + strings.Repeat("\x00\x00\x80\x3f", floats))
}

func TestRefusals(t *testing.T) {
	one := tensorPickle("K\x06", "K\x01", "\x00", "\x06N")
	if err := loadAll(legacy(one, 6)); err != nil {
		t.Errorf("a legacy file: %v", err)
	}
	two := strings.TrimPrefix(strings.Replace(one, "FloatStorage", "HalfStorage", 1), "\x80\x02}")
	ofTwoTypes := strings.TrimSuffix(one, ".") + two
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"a function":     {archive(t, "\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", 1), `"os.system"`},
		"by stack":       {archive(t, "\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", 1), `"builtins.eval"`},
		"an object":      {archive(t, "\x80\x02cargparse\nNamespace\n)\x81.", 1), `"argparse.Namespace"`},
		"an opcode":      {archive(t, "\x80\x02i.", 1), "opcode 0x69"},
		"protocol":       {archive(t, "\x80\x09.", 1), "protocol 9"},
		"no tensor":      {archive(t, "\x80\x02}.", 1), "no dict in it holds a tensor"},
		"cut pickle":     {archive(t, "\x80\x02}X\xff\x00\x00\x00", 1), "cut short"},
		"beyond":         {archive(t, tensorPickle("K\x02K\x03", "K\x03K\x01", "\x01", "\x06"), 6), "does not lie in its storage"},
		"overlap":        {archive(t, tensorPickle("K\xffK\xff", "K\x00K\x00", "\x00", "\x06"), 6), "does not lie in its storage"},
		"empty":          {archive(t, tensorPickle("K\x00", "K\x01", "\x00", "\x06"), 6), "does not lie in its storage"},
		"call a storage": {archive(t, "\x80\x02ctorch\nFloatStorage\n)R.", 1), "no function"},
		"add to a dict":  {archive(t, "\x80\x02}Na.", 1), "dict"},
		"put in a list":  {archive(t, "\x80\x02]NNs.", 1), "list"},
		"not PyTorch":    {[]byte("GIF89a"), "begins neither"},
		"nothing":        {nil, "begins neither"},
		"a long text":    {archive(t, "\x80\x02}X\xff\xff\xff\xff", 1), "cut short"},
		"a great shape":  {archive(t, tensorPickle(great, "K\x00K\x00K\x00", "\x00", "\x06"), 6), "does not lie in its storage"},
		"a great count":  {archive(t, storagePickle("K\x00", "\x8a\x06\x00\x00\x00\x00\x00\x01"), 1), "has 1099511627776 numbers, want 0 to 2147483647"},
		"counts twofold": {archive(t, storagePickle("K\x00", twofold()), 1), "has torchfile.tuple numbers"},
		"types twofold":  {archive(t, storagePickle(twofold(), "K\x01"), 1), "of type torchfile.tuple"},
		"big endian":     {zipOf(t, map[string]string{"m/data.pkl": "\x80\x02}.", "m/byteorder": "big"}), `its byte order is "big", want little`},
		"a legacy view":  {legacy(tensorPickle("K\x06", "K\x01", "\x00", "\x06K\x01"), 6), "is a view of another"},
		"of two types":   {legacy(ofTwoTypes, 6), "described twice"},
		"deep counts":    {archive(t, storagePickle("K\x00", ")"+strings.Repeat("\x85", 40_000)), 1), "has torchfile.tuple numbers"},
	} {
		bomb.Refused(t, name, func() error {
			_, err := open(c.file)
			return err
		}, torchfile.ErrFormat, c.want)
	}
	f, err := open(archive(t, tensorPickle("K\x06", "K\x01", "\x00", "\x06"), 5))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Dicts[0].Load("w"); !errors.Is(err, torchfile.ErrFormat) {
		t.Errorf("a storage that is too short: %v", err)
	}
}

// Dicts within dicts end, however deep, and so does one within itself.
func TestNesting(t *testing.T) {
	deep := "\x80\x02" + strings.Repeat("}K\x01", 100_000) + "K\x01" + strings.Repeat("s", 100_000) + "."
	self := "\x80\x02}q\x00K\x01h\x00s."
	for name, pickle := range map[string]string{"deep": deep, "self": self} {
		if _, err := open(archive(t, pickle, 1)); !errors.Is(err, torchfile.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file cut anywhere is refused, and no byte that changes makes a panic.
func TestDamage(t *testing.T) {
	files, err := filepath.Glob(golden + "pt/*.pt")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(b); n += 97 {
			if err := loadAll(b[:n]); err == nil {
				t.Errorf("%s cut at %d is read", path, n)
			}
			changed := bytes.Clone(b)
			changed[n] ^= 0x40
			_ = loadAll(changed)
		}
	}
}

func loadAll(b []byte) error {
	f, err := open(b)
	if err != nil {
		return err
	}
	for _, d := range f.Dicts {
		for _, name := range d.Names() {
			if _, err := d.Load(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func FuzzRead(f *testing.F) {
	f.Add(archive(f, tensorPickle("K\x02K\x03", "K\x03K\x01", "\x00", "\x06"), 6))
	f.Add(archive(f, "\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", 1))
	for _, name := range []string{"state_dict", "legacy", "bf16", "checkpoint"} {
		b, err := os.ReadFile(golden + "pt/v_two_uids." + name + ".pt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := loadAll(b); err != nil && !errors.Is(err, torchfile.ErrFormat) {
			t.Errorf("%v is not ErrFormat", err)
		}
	})
}

// FuzzPickle puts the bytes where a pickle stands, which a fuzzer cannot reach
// through the archive's checksums.
func FuzzPickle(f *testing.F) {
	f.Add(tensorPickle("K\x02K\x03", "K\x03K\x01", "\x00", "\x06"))
	f.Add("\x80\x04\x8c\x08builtins\x8c\x04eval\x93.")
	f.Add("\x80\x02ccollections\nOrderedDict\n)Rq\x00}q\x01h\x00h\x01s}b.")
	f.Fuzz(func(t *testing.T, pickle string) {
		if err := loadAll(archive(t, pickle, 6)); err != nil && !errors.Is(err, torchfile.ErrFormat) {
			t.Errorf("%v is not ErrFormat", err)
		}
	})
}

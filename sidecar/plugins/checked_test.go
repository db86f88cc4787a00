package plugins_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/plugins"
)

// installed is a plugin with a model beside it, as it would be installed.
type installed struct {
	t      *testing.T
	folder string
}

func install(t *testing.T) installed {
	t.Helper()
	i := installed{t, t.TempDir()}
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	i.write("ranker", binary, 0o755)
	i.write("model/weights", []byte("1 2 3"), 0o644)
	i.write("MANIFEST", []byte(i.sum("ranker")+i.sum("model/weights")), 0o644)
	return i
}

func (i installed) path(name string) string { return filepath.Join(i.folder, filepath.FromSlash(name)) }

func (i installed) write(name string, content []byte, mode os.FileMode) {
	i.t.Helper()
	if err := os.MkdirAll(filepath.Dir(i.path(name)), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(i.path(name), content, mode); err != nil {
		i.t.Fatal(err)
	}
}

// digest returns the SHA-256 of one of the files.
func (i installed) digest(name string) string {
	i.t.Helper()
	content, err := os.ReadFile(i.path(name))
	if err != nil {
		i.t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// sum returns a line of sha256sum.
func (i installed) sum(name string) string { return i.digest(name) + "  " + name + "\n" }

// flip changes one bit of a file.
func (i installed) flip(name string) {
	i.t.Helper()
	content, err := os.ReadFile(i.path(name))
	if err != nil {
		i.t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	i.write(name, content, 0o755)
}

func (i installed) options() plugins.Options {
	o := options(i.t)
	o.Path, o.SHA256 = i.path("ranker"), i.digest("ranker")
	o.QuarantineAfter, o.Quarantine = 1, time.Hour
	return o
}

func TestWhatWasCheckedIsStarted(t *testing.T) {
	i := install(t)
	o := i.options()
	o.Manifest = i.path("MANIFEST")
	o.Args = append(o.Args, "-say-file", "model/weights")
	log := &logged{}
	o.Logger = log.logger()
	p := start(t, o)
	ready(t, p)
	answers(t, p)
	i.flip("ranker") // the running file is a copy
	answers(t, p)
	if !strings.Contains(log.String(), "1 2 3") {
		t.Errorf("the plugin did not find its model: %s", log.String())
	}
}

func TestChangedFilesAreNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(i installed, o *plugins.Options)
		say    string
	}{
		"a bit of the executable": {func(i installed, _ *plugins.Options) { i.flip("ranker") }, "SHA-256"},
		"a bit of a file": {func(i installed, o *plugins.Options) {
			o.Manifest = i.path("MANIFEST")
			i.flip("model/weights")
		}, "weights has SHA-256"},
		"a file that is gone": {func(i installed, o *plugins.Options) {
			o.Manifest = i.path("MANIFEST")
			os.Remove(i.path("model/weights"))
		}, "no such file"},
		"a symbolic link": {func(i installed, o *plugins.Options) {
			o.Manifest = i.path("MANIFEST")
			_ = os.Rename(i.path("model/weights"), i.path("elsewhere"))
			_ = os.Symlink("../elsewhere", i.path("model/weights"))
		}, "symbolic link"},
		"a folder that is a link": {func(i installed, o *plugins.Options) {
			o.Manifest = i.path("MANIFEST")
			_ = os.Rename(i.path("model"), i.path("elsewhere"))
			_ = os.Symlink("elsewhere", i.path("model"))
		}, "symbolic link"},
		"out of the folder": {func(i installed, o *plugins.Options) {
			o.Manifest = i.path("model/MANIFEST")
			i.write("model/MANIFEST", []byte(i.digest("ranker")+"  ../ranker\n"), 0o644)
		}, "not a file in the manifest's folder"},
		"an executable that is not listed": {func(i installed, o *plugins.Options) {
			o.Manifest, o.SHA256 = i.path("MANIFEST"), ""
			i.write("MANIFEST", []byte(i.sum("model/weights")), 0o644)
		}, "not in the manifest"},
		"two digests": {func(i installed, o *plugins.Options) {
			o.Manifest, o.SHA256 = i.path("MANIFEST"), i.digest("model/weights")
		}, "different digests"},
	} {
		t.Run(name, func(t *testing.T) {
			i := install(t)
			o := i.options()
			c.change(i, &o)
			p := start(t, o)
			unavailable(t, p.Ready(t.Context()), "checksum", c.say)
			if s := p.State(); s.Ends[plugins.Checksum] != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestAFileThatIsRepairedIsStarted(t *testing.T) {
	i := install(t)
	i.flip("ranker")
	o := i.options()
	i.flip("ranker")
	o.Quarantine = 100 * time.Millisecond
	p := start(t, o)
	until(t, p, "refused", ended(plugins.Checksum))
	i.flip("ranker")
	answers(t, p)
}

// The folder of a killed sidecar is removed, a folder in use is not.
func TestFoldersOfTheDeadAreRemoved(t *testing.T) {
	o := options(t)
	dead := filepath.Join(o.TempDir, "likeness-host-1")
	if err := os.MkdirAll(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dead, "lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	p := start(t, o)
	ready(t, p)
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	answers(t, p)
}

package trial

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/rerank/model"
)

// Files of the folder.
const (
	ConfigFile = "likeness.yaml"
	ReportFile = "report.html"
	modelFile  = "model" + model.Extension
)

// exactRows is the number of rows up to which the route asks for exhaustive searches,
// which answers then can be proved by.
const exactRows = 200_000

// checkOut returns a *RefusalError if the folder exists and may not be replaced. A folder with a report alone, of a trial
// that learned nothing, may.
func (o Options) checkOut() error {
	entries, err := os.ReadDir(o.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &RefusalError{fmt.Sprintf("the folder %s cannot be used: %v; name another with --out", o.Out, err), err}
	case len(entries) == 0, len(entries) == 1 && entries[0].Name() == ReportFile, o.Force:
		return nil
	}
	return &RefusalError{fmt.Sprintf("the folder %s is not empty; replace what is in it with --force, or name another with --out", o.Out), nil}
}

// makeFolder makes the folder to write, before work whose result would be lost without it.
func (t *trial) makeFolder() error {
	if err := os.MkdirAll(t.Out, 0o755); err != nil {
		return &RefusalError{fmt.Sprintf("the folder %s cannot be made: %v; name another with --out", t.Out, err), err}
	}
	return nil
}

// writeFolder writes the model and the configuration that serves it.
func (t *trial) writeFolder(m *model.Model) error {
	if err := model.Write(filepath.Join(t.Out, modelFile), m); err != nil {
		return err
	}
	text, err := t.configuration()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(t.Out, ConfigFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// configuration is the text of likeness.yaml.
func (t *trial) configuration() ([]byte, error) {
	store, err := t.Access.store(t.look.Server)
	if err != nil {
		return nil, err
	}
	f := t.look.field
	route := routeKeys{Store: storeName, Collection: t.Collection, Vector: f.Name, Model: modelName, UnitVectors: t.sample.unit && string(f.Metric) != "cosine"}
	route.ExactSearch = canBeExact(f) && t.look.Rows <= exactRows
	content := file{
		Stores: map[string]storeKeys{storeName: store},
		Models: map[string]modelKeys{modelName: {Path: modelFile}},
		Listen: listen(),
		Proxy:  t.look.proxy(),
	}
	if e := t.Embedder; e.URL != "" {
		embedder := embedderKeys{URL: e.URL, Model: e.Model, QueryPrefix: e.QueryPrefix, DocumentPrefix: e.DocumentPrefix, Dimension: f.Dim}
		if os.Getenv(EmbedderKey) != "" {
			embedder.TokenEnv = EmbedderKey
		}
		content.Embedders = map[string]embedderKeys{embedderName: embedder}
		route.Embedder = embedderName
	}
	content.Routes = map[string]routeKeys{t.Collection: route}
	text, err := encodeYAML(content)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("# Written by `likeness try`. Serves collection %q by the similarity that was learned from it:\n#   likeness serve --config %s\n", t.Collection, filepath.Join(t.Out, ConfigFile))
	if content.Proxy != nil {
		head += "# The proxy answers the database's own clients: give them its address in place of the database's.\n"
	}
	head += "# Where another program has a port, write another one.\n"
	if route.ExactSearch {
		head += "# exact_search: searches are exhaustive, and proved exact.\n"
	}
	return append([]byte(head), text...), nil
}

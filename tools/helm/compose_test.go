package helm

import (
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// TestCompose reads the compose files as `docker compose` does: by the specification's schema, with references resolved.
func TestCompose(t *testing.T) {
	for _, name := range []string{"qdrant", "milvus"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, "deploy/compose")
			file := types.ConfigFile{Filename: filepath.Join(dir, name+".yaml")}
			project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
				WorkingDir: dir, ConfigFiles: []types.ConfigFile{file}, Environment: types.Mapping{"LIKENESS_IMAGE": "likeness:1.2.3"},
			}, func(o *loader.Options) { o.SetProjectName("likeness", true) })
			if err != nil {
				t.Fatal(err)
			}
			own, err := project.GetService("likeness")
			if err != nil {
				t.Fatal(err)
			}
			if own.DependsOn[name].Condition != types.ServiceConditionHealthy {
				t.Errorf("the sidecar waits for %v", own.DependsOn)
			}
		})
	}
}

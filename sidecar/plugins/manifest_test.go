package plugins

import (
	"path/filepath"
	"strings"
	"testing"
)

const sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestManifest(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string // the paths, or what is wrong
		ok   bool
	}{
		"two files":      {sum + "  a\n" + sum + " *b/c\r\n\n", "a b/c", true},
		"no newline":     {sum + "  a b", "a b", true},
		"inner dots":     {sum + "  b/../a", "a", true},
		"empty":          {"\n", "names no file", false},
		"short":          {sum[1:] + "  a", "63 characters", false},
		"no hex":         {"x" + sum[1:] + "  a", "line 1", false},
		"one space":      {sum + " a", "is not", false},
		"no path":        {sum, "is not", false},
		"absolute":       {sum + "  /etc/passwd", "manifest's folder", false},
		"out":            {sum + "  a/../../b", "manifest's folder", false},
		"parent":         {sum + "  ..", "manifest's folder", false},
		"itself":         {sum + "  .", "manifest's folder", false},
		"up alone":       {sum + " *../plugin", "manifest's folder", false},
		"encoded":        {sum + "  %2e%2e/a", "%2e%2e/a", true}, // a name as any other
		"look-alikes":    {sum + "  \uff0e\uff0e\u2215a", "\uff0e\uff0e\u2215a", true},
		"NUL":            {sum + "  a\x00b", "control character", false},
		"the folder":     {sum + "  ./", "manifest's folder", false},
		"two digests":    {sum + "  a\n" + strings.ToUpper(sum) + "  a\n" + strings.Repeat("0", 64) + "  a", "line 3", false},
		"escaped name":   {`\` + sum + `  a\n`, "line 1", false},
		"very long line": {sum + "  " + strings.Repeat("a", 1<<20), "too long", false},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := parseManifest([]byte(c.text))
			if !c.ok {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v", files, err)
				}
				return
			}
			if err != nil || len(files) != len(strings.Split(c.want, " ")) && c.want != "a b" {
				t.Errorf("%v, %v", files, err)
			}
		})
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(sum + "  a\n" + sum + " *b/c\n"))
	f.Add([]byte(sum + "  ../a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, err := parseManifest(text)
		if err != nil {
			return
		}
		for name := range files {
			if !filepath.IsLocal(name) || name == "." || len(files) == 0 {
				t.Errorf("%q", name)
			}
		}
	})
}

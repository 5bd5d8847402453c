// Package deploy checks what is under deploy/: that it says what the programs understand, and asks
// for metrics that there are.
package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// root is the folder that is checked, from any package beside this one.
const root = "../../deploy/"

// Dashboard is what Grafana reads of a dashboard to ask for its data.
type Dashboard struct {
	Inputs []struct{ Name, PluginID string } `json:"__inputs"`
	UID    string
	Title  string
	Panels []struct {
		ID         int
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			Expr, RefID string
			Datasource  struct{ UID string }
		}
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// Dashboards are the files of all dashboards.
func Dashboards(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(root + "grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("dashboards %q, %v", files, err)
	}
	return files
}

// ReadDashboard reads one of them.
func ReadDashboard(t *testing.T, file string) (d Dashboard) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

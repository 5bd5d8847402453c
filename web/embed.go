// Package web holds the built page. Its sources are beside it; `make generate` builds them.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files are the built files: index.html and assets/.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return files
}

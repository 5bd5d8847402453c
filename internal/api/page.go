package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// asset is a file of the page, ready to be sent.
type asset struct {
	contentType, etag string
	plain, gzipped    []byte // gzipped is nil where it would not be smaller
}

// newPage serves the files, index.html for "/". Files are small and few, so all are compressed
// once, at the start.
func newPage(files fs.FS) http.Handler {
	assets := map[string]*asset{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err == nil {
			assets["/"+name] = newAsset(name, content)
		}
		return err
	})
	if err != nil {
		panic("BUG: reading the embedded page: " + err.Error())
	}
	assets["/"] = assets["/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, "%s only answers to GET", r.URL.Path)
			return
		}
		a := assets[r.URL.Path]
		if a == nil {
			writeError(w, http.StatusNotFound, "there is no %s", r.URL.Path)
			return
		}
		a.serve(w, r)
	})
}

func newAsset(name string, content []byte) *asset {
	sum := sha256.Sum256(content)
	a := &asset{plain: content, contentType: mime.TypeByExtension(path.Ext(name)),
		etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	if a.contentType == "" {
		a.contentType = "application/octet-stream"
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(content)                               // a buffer takes everything
	_ = z.Close()
	if b.Len() < len(content) {
		a.gzipped = b.Bytes()
	}
	return a
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("ETag", a.etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(r.URL.Path, "/assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // their names hold their hash
	}
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := a.plain
	if a.gzipped != nil && acceptsGzip(r) {
		body = a.gzipped
		h.Set("Content-Encoding", "gzip")
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // who asked has gone
	}
}

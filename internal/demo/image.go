package demo

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// imageFile is a file of an image: content, or the host's file from, or a directory.
type imageFile struct {
	path    string
	mode    int64
	content string
	from    string
	dir     bool
}

// image is a root file system that is made of files of this host.
type image struct {
	files []imageFile
	env   []string
}

// newImage is a program of this host with the libraries that it needs, installed at target,
// and what any program expects to find.
func newImage(program, target string, more ...imageFile) (image, error) {
	c, err := resolveClosure("/", program)
	if err != nil {
		return image{}, err
	}
	im := image{files: []imageFile{
		{path: "/tmp", dir: true, mode: 0o1777},
		{path: controlDir, dir: true, mode: 0o755},
		{path: "/etc/passwd", mode: 0o644,
			content: "root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"},
		{path: "/etc/group", mode: 0o644, content: "root:x:0:\nnogroup:x:65534:\n"},
		{path: target, mode: 0o755, from: c.files[0]},
	}}
	for _, f := range c.files[1:] {
		im.files = append(im.files, imageFile{path: f, mode: 0o755, from: f})
	}
	if len(c.dirs) > 0 {
		im.env = []string{"LD_LIBRARY_PATH=" + strings.Join(c.dirs, ":")}
	}
	im.files = append(im.files, more...)
	return im, nil
}

// write writes the image as a tar stream, parents before children.
func (im image) write(w io.Writer) error {
	t := tar.NewWriter(w)
	made := map[string]bool{"/": true}
	for _, f := range im.files {
		if err := writeParents(t, made, path.Dir(f.path)); err != nil {
			return err
		}
		if err := f.write(t); err != nil {
			return fmt.Errorf("writing %q of an image: %w", f.path, err)
		}
		made[f.path] = made[f.path] || f.dir
	}
	return t.Close()
}

func writeParents(t *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := writeParents(t, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return imageFile{path: dir, dir: true, mode: 0o755}.write(t)
}

func (f imageFile) write(t *tar.Writer) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.path, "/"), Mode: f.mode, Typeflag: tar.TypeReg,
		Size: int64(len(f.content))}
	if f.dir {
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	}
	if f.from == "" {
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(t, f.content)
		return err
	}
	file, err := os.Open(filepath.Clean(f.from))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	h.Size, h.ModTime = info.Size(), info.ModTime()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, file)
	return err
}

// nginxConfig is nginx as a reverse proxy that keeps its connections to the gateway. dir is
// where it may write. It logs its start, which the launcher waits for, and no request.
func nginxConfig(gateway, dir string, port int) string {
	return fmt.Sprintf(`daemon off;
user nobody nogroup;
worker_processes 1;
pid %[2]s/nginx.pid;
error_log stderr notice;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	proxy_max_temp_file_size 0;
	keepalive_timeout 1h;
	upstream gateway {
		server %[1]s max_fails=0;
		keepalive 256;
		keepalive_timeout 1h;
	}
	server {
		listen %[3]d backlog=4096;
		location / {
			proxy_pass http://gateway;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_next_upstream off;
		}
	}
}
`, gateway, dir, port)
}

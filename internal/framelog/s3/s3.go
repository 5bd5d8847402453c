// Package s3 keeps segments of a frame log in a bucket of a server that speaks S3.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"outsight/internal/framelog"
)

// Options say where a bucket is.
type Options struct {
	// Endpoint is the host and port of the server. Plain means HTTP without TLS.
	Endpoint string
	Plain    bool
	// Bucket is there already. Prefix comes before the names of all objects, such as "outsight/".
	Bucket, Prefix string
	// Region is asked for where it is empty.
	Region string
	// AccessKey and SecretKey, where they are empty, come from the environment: AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY.
	AccessKey, SecretKey string
}

// Bucket implements framelog.Bucket.
type Bucket struct {
	core           *minio.Core
	bucket, prefix string
	transport      *http.Transport
}

// New makes a Bucket. It does not connect.
func New(o Options) (*Bucket, error) {
	if o.Endpoint == "" || o.Bucket == "" {
		return nil, errors.New("a bucket needs an endpoint and a name")
	}
	keys := credentials.NewEnvAWS()
	if o.AccessKey != "" {
		keys = credentials.NewStaticV4(o.AccessKey, o.SecretKey, "")
	}
	transport, err := minio.DefaultTransport(!o.Plain)
	if err != nil {
		return nil, fmt.Errorf("the bucket %q: %w", o.Bucket, err)
	}
	core, err := minio.NewCore(o.Endpoint, &minio.Options{Creds: keys, Secure: !o.Plain, Region: o.Region,
		Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("the bucket %q at %q: %w", o.Bucket, o.Endpoint, err)
	}
	return &Bucket{core: core, bucket: o.Bucket, prefix: o.Prefix, transport: transport}, nil
}

// Close closes connections that are not in use.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// Put implements framelog.Bucket.
func (b *Bucket) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	_, err := b.core.Client.PutObject(ctx, b.bucket, b.prefix+name, content, size,
		minio.PutObjectOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return fmt.Errorf("writing %q to the bucket %q: %w", name, b.bucket, err)
	}
	return nil
}

// ReadAt implements framelog.Bucket.
func (b *Bucket) ReadAt(ctx context.Context, name string, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+int64(len(p))-1); err != nil {
		return fmt.Errorf("reading %d bytes at %d: %w", len(p), offset, err)
	}
	content, _, _, err := b.core.GetObject(ctx, b.bucket, b.prefix+name, o)
	if err != nil {
		return fmt.Errorf("reading %q of the bucket %q: %w", name, b.bucket, err)
	}
	defer content.Close()
	if _, err := io.ReadFull(content, p); err != nil {
		return fmt.Errorf("reading %q of the bucket %q: %w", name, b.bucket, err)
	}
	return nil
}

// List implements framelog.Bucket.
func (b *Bucket) List(ctx context.Context) (all []framelog.Object, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // it ends the listing where an error does
	for o := range b.core.Client.ListObjects(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if o.Err != nil {
			return nil, fmt.Errorf("listing the bucket %q: %w", b.bucket, o.Err)
		}
		all = append(all, framelog.Object{Name: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size})
	}
	return all, nil
}

// Remove implements framelog.Bucket.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if err := b.core.Client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("removing %q of the bucket %q: %w", name, b.bucket, err)
	}
	return nil
}

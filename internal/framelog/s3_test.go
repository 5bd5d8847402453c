//go:build s3

package framelog_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/framelog"
	"outsight/internal/framelog/s3"
)

// server is a gateway that keeps the objects of S3 in files.
const server = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// startServer builds and starts a server of S3 with a bucket (make test-s3).
func startServer(t *testing.T) *s3.Bucket {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", "install", server)
	build.Env = append(os.Environ(), "GOBIN="+bin)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", server, err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "frames"), 0o700); err != nil {
		t.Fatal(err)
	}
	gateway := exec.Command(filepath.Join(bin, "versitygw"), "--port", address, "--access", "key", "--secret",
		"secret-of-the-test", "posix", data)
	var said bytes.Buffer
	gateway.Stdout, gateway.Stderr = &said, &said
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gateway.Process.Kill()
		gateway.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	b, err := s3.New(s3.Options{Endpoint: address, Plain: true, Bucket: "frames", Prefix: "outsight/", Region: "us-east-1",
		AccessKey: "key", SecretKey: "secret-of-the-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err = b.List(context.Background()); err == nil {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v\n%s", err, said.String())
		}
	}
}

func TestS3(t *testing.T) {
	b := startServer(t)
	t.Run("objects", func(t *testing.T) { testObjects(t, b) })
	t.Run("log", func(t *testing.T) { framelog.CheckLogInBucket(t, b) })
}

func testObjects(t *testing.T, b *s3.Bucket) {
	ctx := context.Background()
	content := make([]byte, 20<<20) // in more than one part
	random := rand.NewChaCha8([32]byte{1})
	if _, err := io.ReadFull(random, content); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is done again where the program ended in between
		if err := b.Put(ctx, "a.frames", bytes.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
	}
	all, err := b.List(ctx)
	if err != nil || len(all) != 1 || all[0] != (framelog.Object{Name: "a.frames", Size: int64(len(content))}) {
		t.Fatalf("objects: %v, %v", all, err)
	}
	for _, at := range []int{0, 1, 16 << 20, len(content) - 1000} {
		got := make([]byte, 1000)
		if err := b.ReadAt(ctx, "a.frames", got, int64(at)); err != nil || !bytes.Equal(got, content[at:at+1000]) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	if err := b.ReadAt(ctx, "a.frames", make([]byte, 1000), int64(len(content)-999)); err == nil {
		t.Error("read behind the end")
	}
	if err := b.ReadAt(ctx, "b.frames", make([]byte, 1), 0); err == nil || !strings.Contains(err.Error(), "b.frames") {
		t.Errorf("read what is not there: %v", err)
	}
	for range 2 {
		if err := b.Remove(ctx, "a.frames"); err != nil {
			t.Error(err)
		}
	}
	if all, err := b.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("objects: %v, %v", all, err)
	}
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"outsight/internal/queue"
)

// ErrInUse means that another process has the queue's directory open.
var ErrInUse = errors.New("in use")

// maxMessage is the greatest message of the embedded queue, in bytes.
const maxMessage = 8 << 20

// Embedded is a NATS server inside this process. It listens nowhere.
type Embedded struct {
	server   *server.Server
	lock     *os.File
	repaired Repaired
}

// Embed starts a JetStream server with at most maxBytes in dir. What it has acknowledged is on the disk, not only in
// the page cache. If another process has dir open, the error is ErrInUse.
func Embed(dir string, maxBytes int64, logger *slog.Logger) (*Embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the queue's directory: %w", err)
	}
	lock, err := os.OpenFile(dir+"/lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the queue's directory %q cannot be written: %w", dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the queue's directory %q is %w by another server", dir, ErrInUse)
		}
		return nil, fmt.Errorf("locking the queue's directory %q: %w", dir, err)
	}
	repaired, err := repairStreams(dir, logger)
	if err != nil {
		lock.Close()
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "outsight", DontListen: true, NoSigs: true, NoSystemAccount: true, DisableJetStreamBanner: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, MaxPayload: maxMessage,
		JetStreamMaxStore: maxBytes, JetStreamMaxMemory: 16 << 20,
	})
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("starting the queue in %q: %w", dir, err)
	}
	s.SetLoggerV2(natsLogger{logger}, logger.Enabled(context.Background(), slog.LevelDebug-4), false, false)
	s.Start()
	e := &Embedded{s, lock, repaired}
	if !s.ReadyForConnections(startTime) || !s.JetStreamEnabled() {
		e.Close()
		return nil, fmt.Errorf("starting the queue in %q: not ready after %v", dir, startTime)
	}
	return e, nil
}

// startTime bounds the time in which the server reads its files.
const startTime = time.Minute

// Connect connects to the server without a socket.
func (e *Embedded) Connect() (*nats.Conn, error) {
	c, err := nats.Connect("", nats.InProcessServer(e.server), nats.MaxReconnects(-1),
		nats.SyncQueueLen(queue.PullLength))
	if err != nil {
		return nil, fmt.Errorf("connecting to the queue in this process: %w", err)
	}
	return c, nil
}

// Repaired returns what was damaged when the queue was opened.
func (e *Embedded) Repaired() Repaired { return e.repaired }

// Close ends the server.
func (e *Embedded) Close() error {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	return e.lock.Close()
}

// natsLogger passes warnings and errors on.
type natsLogger struct{ log *slog.Logger }

func (l natsLogger) Noticef(format string, v ...any) {
	l.log.Debug("queue: " + fmt.Sprintf(format, v...))
}
func (l natsLogger) Warnf(format string, v ...any) { l.log.Warn("queue: " + fmt.Sprintf(format, v...)) }
func (l natsLogger) Fatalf(format string, v ...any) {
	l.log.Error("queue: " + fmt.Sprintf(format, v...))
}
func (l natsLogger) Errorf(format string, v ...any) {
	l.log.Error("queue: " + fmt.Sprintf(format, v...))
}
func (l natsLogger) Debugf(format string, v ...any) {
	l.log.Debug("queue: " + fmt.Sprintf(format, v...))
}
func (l natsLogger) Tracef(string, ...any) {}

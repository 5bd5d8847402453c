package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Server is a NATS server or a cluster of them. Only URL must be there.
type Server struct {
	// URL of one server or of several, with commas between them; they tell of the others of their cluster. A user and a
	// password, or a token, may be in it.
	URL string
	// Credentials is a file with a user's JWT and key, as nsc and nk write it.
	Credentials string
	// CA is a file of certificates one of which must have signed the servers' (the system's), Cert and Key are files of
	// this client's own. With any of them nothing goes over the network without TLS.
	CA, Cert, Key string
}

// connectTimeout bounds an attempt to connect.
const connectTimeout = 5 * time.Second

// Connect connects to a server of a cluster. When that one goes away, it goes on with another one, for as long as it
// takes.
func Connect(s Server, logger *slog.Logger) (*nats.Conn, error) {
	shown, err := redacted(s.URL)
	if err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name("outsight server"), nats.Timeout(connectTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.SyncQueueLen(PullLength),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if err != nil { // nil when this end has closed it
				logger.Warn("a server of the queue is away", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { logger.Info("the queue is back", "server", c.ConnectedUrlRedacted()) }),
	}
	if s.Credentials != "" {
		options = append(options, nats.UserCredentials(s.Credentials))
	}
	if s.CA != "" {
		options = append(options, nats.RootCAs(s.CA))
	}
	if s.Cert != "" || s.Key != "" {
		options = append(options, nats.ClientCert(s.Cert, s.Key))
	}
	c, err := nats.Connect(s.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS at %q: %w", shown, err)
	}
	return c, nil
}

// redacted is what may be shown of URLs: a user without a password is a token.
func redacted(urls string) (string, error) {
	var all []string
	for text := range strings.SplitSeq(urls, ",") {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			var of *url.Error
			if errors.As(err, &of) {
				err = of.Err // without the URL, which may have a password
			}
			return "", fmt.Errorf("reading the URL of NATS: %w", err)
		}
		if u.Host == "" {
			return "", errors.New("reading the URL of NATS: want nats://host:4222, or several with commas between them")
		}
		if u.User != nil {
			u.User = url.User("xxxxx")
		}
		all = append(all, u.String())
	}
	return strings.Join(all, ","), nil
}

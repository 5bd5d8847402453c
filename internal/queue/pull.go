package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullRequest is the JSON of a JetStream pull request.
type pullRequest struct {
	Batch    int           `json:"batch"`
	MaxBytes int           `json:"max_bytes"`
	Expires  time.Duration `json:"expires"`
}

// messageTimeout bounds the wait for the next message of a group, also when the server has gone away.
const messageTimeout = 2 * time.Second

// pull asks for a group of messages and waits until it is complete. The client library's Fetch ends at the first status
// message. In a cluster the status overtakes the messages, which wait for a quorum: of a long backlog Fetch would
// return nothing, and all of it would be redelivered after AckWait, and be overtaken again.
func (q *Queue) pull(ctx context.Context) (group []*nats.Msg, err error) {
	inbox := q.conn.NewInbox()
	sub, err := q.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("asking for messages: %w", err)
	}
	defer sub.Unsubscribe()
	request, err := json.Marshal(pullRequest{Batch: groupMessages, MaxBytes: groupBytes, Expires: groupTime})
	if err != nil {
		return nil, fmt.Errorf("asking for messages: %w", err)
	}
	next := jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + q.options.Stream + "." + consumerName
	if err := q.conn.PublishRequest(next, inbox, request); err != nil {
		return nil, fmt.Errorf("asking for messages: %w", err)
	}
	for wanted := groupMessages; len(group) < wanted; {
		msg, err := q.nextMessage(ctx, sub)
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			return group, nil
		}
		if err != nil {
			return group, fmt.Errorf("waiting for messages: %w", err)
		}
		status := msg.Header.Get("Status")
		switch {
		case msg.Reply != "": // where to acknowledge it: a message of the stream
			group = append(group, msg)
		case status == "100": // the request still stands
		case status == "503":
			return group, fmt.Errorf("waiting for messages: %w", nats.ErrNoResponders)
		default:
			left, err := strconv.Atoi(msg.Header.Get("Nats-Pending-Messages"))
			if err != nil {
				return group, fmt.Errorf("waiting for messages: the server answers %q %q", status, msg.Header.Get("Description"))
			}
			wanted = groupMessages - left
		}
	}
	return group, nil
}

func (q *Queue) nextMessage(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTime+messageTimeout)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

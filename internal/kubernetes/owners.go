package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// owner is an object that others belong to.
type owner struct{ kind, name string }

// ownerKey names an owner in its namespace.
type ownerKey struct {
	owner
	namespace string
}

// above are the kinds that may themselves be owned by what people deploy, and where to ask.
var above = map[string]struct{ group, resource string }{
	"ReplicaSet": {"/apis/apps/v1", "replicasets"},
	"Job":        {"/apis/batch/v1", "jobs"},
}

// acceptMetadata asks for an object without its spec and status.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

const ownerQueue = 4096

// owners knows what owns replica sets and jobs. They are asked for one by one, each once, since
// there are far more old ones in a cluster than have pods. All but the queue is guarded by the
// cluster's lock.
type owners struct {
	// known are answers; the empty owner is one, too.
	known map[ownerKey]owner
	asked map[ownerKey]bool
	queue chan ownerKey
	// refused are the kinds that may not be read, and when to ask again.
	refused map[string]refusal
	// full counts owners that found no room, or had to wait for the next sweep.
	full uint64
	max  int
}

type refusal struct {
	err   error
	until time.Time
}

func newOwners(max int) *owners {
	return &owners{known: map[ownerKey]owner{}, asked: map[ownerKey]bool{}, refused: map[string]refusal{},
		queue: make(chan ownerKey, ownerQueue), max: max}
}

// ask has the owner of a pod looked up, if that is of use and was not done yet.
func (o *owners) ask(p *pod, now time.Time) {
	key := ownerKey{p.owner, p.namespace}
	if _, ok := above[key.kind]; !ok || o.asked[key] || o.refused[key.kind].until.After(now) {
		return
	}
	if len(o.asked) >= o.max {
		o.full++
		return
	}
	select {
	case o.queue <- key:
		o.asked[key] = true
	default:
		o.full++
	}
}

// keep forgets the owners that no pod has.
func (o *owners) keep(used map[ownerKey]bool) {
	for key := range o.asked {
		if !used[key] {
			delete(o.asked, key)
			delete(o.known, key)
		}
	}
}

// workload is what people deployed that a pod belongs to: the owner of its replica set or job, else
// its owner, else the pod itself. The pods of a static pod's file are one workload on all nodes. It
// is the empty owner while that is being found out.
func (o *owners) workload(p *pod) owner {
	switch p.owner.kind {
	case ofHistory:
		return p.workload
	case "":
		return owner{"Pod", p.name}
	case "Node":
		return owner{"StaticPod", strings.TrimSuffix(p.name, "-"+p.owner.name)}
	}
	if _, ok := above[p.owner.kind]; !ok {
		return p.owner
	}
	found, answered := o.known[ownerKey{p.owner, p.namespace}]
	if found.name != "" {
		return found
	}
	// A deployment names its replica sets after itself and a hash that only it writes.
	if name, ok := strings.CutSuffix(p.owner.name, "-"+p.templateHash); ok && p.owner.kind == "ReplicaSet" &&
		p.templateHash != "" {
		return owner{"Deployment", name}
	}
	if answered || o.refused[p.owner.kind].err != nil {
		return p.owner
	}
	return owner{}
}

// runOwners asks for the owners in the queue until ctx ends.
func (c *Cluster) runOwners(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-c.owners.queue:
			if err := c.findOwner(ctx, key); err != nil && ctx.Err() == nil {
				c.options.Logger.Debug("Kubernetes: the owner of a pod is not known", "kind", key.kind, "name", key.name, "error",
					err)
				select {
				case <-ctx.Done():
				case <-time.After(c.timing.least):
				}
			}
		}
	}
}

// findOwner asks for the owner of an owner.
func (c *Cluster) findOwner(ctx context.Context, key ownerKey) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	if c.passOver(key) {
		return nil
	}
	found, err := c.readOwner(ctx, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case refused(err, http.StatusNotFound):
		found = owner{} // it was removed before its last pods: its owner cannot be found any more
	case err != nil:
		delete(c.owners.asked, key) // the next sweep asks again
		if refused(err, http.StatusForbidden, http.StatusUnauthorized) {
			c.owners.refused[key.kind] = refusal{fmt.Errorf("getting %s: %w", above[key.kind].resource, err),
				c.now().Add(c.timing.refusal)}
			c.wake()
		}
		return err
	}
	delete(c.owners.refused, key.kind)
	c.owners.known[key] = found
	c.wake()
	return nil
}

// passOver drops an owner from the queue whose kind was refused just now: one request tells for all.
func (c *Cluster) passOver(key ownerKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.owners.refused[key.kind].until.After(c.now()) {
		return false
	}
	delete(c.owners.asked, key)
	return true
}

func (c *Cluster) readOwner(ctx context.Context, key ownerKey) (owner, error) {
	of := above[key.kind]
	path := of.group + "/namespaces/" + url.PathEscape(key.namespace) + "/" + of.resource + "/" + url.PathEscape(key.name)
	body, err := c.client.get(ctx, path, nil, acceptMetadata)
	if err != nil {
		return owner{}, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, int64(c.options.MaxObjectBytes)+1))
	if err != nil {
		return owner{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(text) > c.options.MaxObjectBytes {
		return owner{}, fmt.Errorf("reading %s: %w", path, errTooLarge)
	}
	var o struct {
		Metadata metadata `json:"metadata"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return owner{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if o.Metadata.Name != key.name {
		return owner{}, errors.New("reading " + path + ": the answer is another object")
	}
	if found := o.Metadata.owner(); found.name != "" {
		return found, nil
	}
	return key.owner, nil
}
